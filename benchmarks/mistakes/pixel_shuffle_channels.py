# crash: sub-pixel convolution needs channels * r * r outputs before the shuffle
# evidence: none
import torch
import torch.nn as nn


class UpsampleBlock(nn.Module):
    def __init__(self, channels, up_scale):
        super().__init__()
        out = channels * up_scale**2  # mistake: out = channels * up_scale
        self.conv = nn.Conv2d(channels, out, kernel_size=3, padding=1)
        self.pixel_shuffle = nn.PixelShuffle(up_scale)
        self.prelu = nn.PReLU()

    def forward(self, x):
        return self.prelu(self.pixel_shuffle(self.conv(x)))


class SRNet(nn.Module):
    """Super-resolution by a factor of 4."""

    def __init__(self, channels=64, n_blocks=2):
        super().__init__()
        self.head = nn.Conv2d(3, channels, 9, padding=4)
        self.body = nn.Sequential(
            *(nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.PReLU()) for _ in range(n_blocks))
        )
        self.up = nn.Sequential(UpsampleBlock(channels, 2), UpsampleBlock(channels, 2))
        self.tail = nn.Conv2d(channels, 3, 9, padding=4)

    def forward(self, lr):
        x = self.head(lr)
        x = x + self.body(x)
        return torch.tanh(self.tail(self.up(x)))


# run:
SRNet(channels=16)(torch.randn(1, 3, 24, 24)).sum().backward()
