# crash: the output of a global average pooling has two more dimensions, the linear layer is applied to the last one
# evidence: none
import torch
from torch import nn


class ConvBNAct(nn.Sequential):
    def __init__(self, cin, cout, k=3, s=1):
        super().__init__(
            nn.Conv2d(cin, cout, k, s, padding=k // 2, bias=False),
            nn.BatchNorm2d(cout),
            nn.SiLU(),
        )


class TinyClassifier(nn.Module):
    def __init__(self, num_classes, width=32):
        super().__init__()
        self.stem = ConvBNAct(3, width, s=2)
        self.stages = nn.ModuleList()
        for i in range(3):
            self.stages.append(ConvBNAct(width * 2**i, width * 2 ** (i + 1), s=2))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(width * 8, num_classes)

    def forward_features(self, x):
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        return x

    def forward(self, x):
        x = self.pool(self.forward_features(x))
        return self.fc(x.flatten(1))  # mistake: return self.fc(x)


# run:
model = TinyClassifier(100)
model(torch.randn(4, 3, 96, 96)).mean().backward()
