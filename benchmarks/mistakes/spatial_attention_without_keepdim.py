# crash: the maps that are joined for spatial attention have lost the dimension for channels
# evidence: none
import torch
import torch.nn as nn


class SpatialAttention(nn.Module):
    def __init__(self, kernel_size=7):
        super().__init__()
        self.conv = nn.Conv2d(2, 1, kernel_size, padding=kernel_size // 2, bias=False)

    def forward(self, x):
        avg_out = torch.mean(x, dim=1, keepdim=True)  # mistake: avg_out = torch.mean(x, dim=1)
        max_out = torch.amax(x, dim=1, keepdim=True)  # mistake: max_out = torch.amax(x, dim=1)
        weights = torch.sigmoid(self.conv(torch.cat([avg_out, max_out], dim=1)))
        return x * weights


class Block(nn.Module):
    def __init__(self, channels=32):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.attention = SpatialAttention()

    def forward(self, x):
        return x + self.attention(torch.relu(self.conv(x)))


# run:
Block()(torch.randn(4, 32, 16, 16)).sum().backward()
