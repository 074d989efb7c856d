# crash: spectral normalization is put around a block of layers, which has no weight of its own
# evidence: none
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm


class Critic(nn.Module):
    """Tells real images from made ones, with weights of bounded norm."""

    def __init__(self, channels=3, width=32):
        super().__init__()
        self.first = self.block(channels, width)
        self.second = self.block(width, 2 * width)
        self.third = self.block(2 * width, 4 * width)
        self.out = spectral_norm(nn.Linear(4 * width, 1))

    @staticmethod
    def block(c_in, c_out):
        conv = nn.Conv2d(c_in, c_out, 4, stride=2, padding=1)
        return nn.Sequential(spectral_norm(conv), nn.LeakyReLU(0.1))  # mistake: return spectral_norm(nn.Sequential(conv, nn.LeakyReLU(0.1)))

    def forward(self, x):
        x = self.third(self.second(self.first(x)))
        return self.out(x.mean(dim=(2, 3)))


# run:
Critic()(torch.randn(2, 3, 32, 32)).sum().backward()
