# crash: a pooling step was forgotten when the input of the classifier was computed, asked about in every CNN tutorial
# evidence: none
import torch
import torch.nn as nn


class SmallConvNet(nn.Module):
    """Three conv blocks and a classifier for CIFAR images (3 x 32 x 32)."""

    def __init__(self, num_classes=10, dropout=0.3):
        super().__init__()
        self.features = nn.Sequential(
            self._block(3, 32),
            self._block(32, 64),
            self._block(64, 128),
        )
        self.dropout = nn.Dropout(dropout)
        self.fc1 = nn.Linear(128 * 4 * 4, 256)  # mistake: self.fc1 = nn.Linear(128 * 8 * 8, 256)
        self.fc2 = nn.Linear(256, num_classes)

    @staticmethod
    def _block(c_in, c_out):
        return nn.Sequential(
            nn.Conv2d(c_in, c_out, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(c_out),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
        )

    def forward(self, x):
        x = self.features(x)
        x = torch.flatten(x, 1)
        x = self.dropout(torch.relu(self.fc1(x)))
        return self.fc2(x)


# run:
model = SmallConvNet()
model(torch.randn(16, 3, 32, 32)).sum().backward()
