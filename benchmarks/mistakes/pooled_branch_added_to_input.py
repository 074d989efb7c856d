# crash: the branch of a residual block halves height and width, what is added to it is not pooled
# evidence: none
import torch
from torch import nn


class DownBlock(nn.Module):
    """A residual block that halves the resolution (discriminator of a GAN)."""

    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.body = nn.Sequential(
            nn.LeakyReLU(0.2),
            nn.Conv2d(channels_in, channels_out, 3, padding=1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(channels_out, channels_out, 3, padding=1),
        )
        self.skip = nn.Conv2d(channels_in, channels_out, 1)
        self.pool = nn.AvgPool2d(2)

    def forward(self, x):
        y = self.pool(self.body(x))
        return y + self.pool(self.skip(x))  # mistake: return y + self.skip(x)


# run:
DownBlock(16, 32)(torch.randn(4, 16, 64, 64)).sum().backward()
