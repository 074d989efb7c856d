# crash: the gate of squeeze-and-excitation is a matrix and is multiplied to images without the spatial dimensions
# evidence: none
import torch
from torch import nn


class SELayer(nn.Module):
    def __init__(self, channel, reduction=16):
        super().__init__()
        self.avg_pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Sequential(
            nn.Linear(channel, channel // reduction, bias=False),
            nn.ReLU(inplace=True),
            nn.Linear(channel // reduction, channel, bias=False),
            nn.Sigmoid(),
        )

    def forward(self, x):
        b, c, _, _ = x.size()
        y = self.avg_pool(x).view(b, c)
        y = self.fc(y).view(b, c, 1, 1)  # mistake: y = self.fc(y)
        return x * y


class SEBlock(nn.Module):
    def __init__(self, channel, reduction=16):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(channel, channel, 3, padding=1, bias=False), nn.BatchNorm2d(channel))
        self.se = SELayer(channel, reduction)

    def forward(self, x):
        return torch.relu(x + self.se(self.conv(x)))


# run:
SEBlock(64)(torch.randn(4, 64, 14, 14)).sum().backward()
