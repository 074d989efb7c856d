# crash: feature maps are permuted as if height and width had been flattened
# evidence: none
import torch
import torch.nn as nn


class HybridEncoder(nn.Module):
    def __init__(self, dim=64, heads=4, num_classes=10):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, dim, 3, 2, 1))
        self.layer = nn.TransformerEncoderLayer(dim, heads, 128, batch_first=True)
        self.fc = nn.Linear(dim, num_classes)

    def forward(self, x):
        x = self.stem(x)
        x = x.flatten(2).permute(0, 2, 1)  # mistake: x = x.permute(0, 2, 1)
        x = self.layer(x)
        return self.fc(x.mean(dim=1))


# run:
torch.manual_seed(0)
model = HybridEncoder()
model(torch.randn(2, 3, 32, 32)).sum().backward()
