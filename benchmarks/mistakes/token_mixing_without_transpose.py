# crash: the network over the tokens is applied to the channels, which lie last
# evidence: none
import torch
from torch import nn


def feed_forward(width, hidden):
    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))


class MixerBlock(nn.Module):
    """Mixes the patches of an image, and then the channels of each patch."""

    def __init__(self, patches=196, channels=512, hidden_patches=256, hidden_channels=2048):
        super().__init__()
        self.norm1 = nn.LayerNorm(channels)
        self.tokens = feed_forward(patches, hidden_patches)
        self.norm2 = nn.LayerNorm(channels)
        self.channels = feed_forward(channels, hidden_channels)

    def forward(self, x):
        y = self.norm1(x).transpose(1, 2)  # mistake: y = self.norm1(x)
        y = self.tokens(y)
        x = x + y.transpose(1, 2)
        return x + self.channels(self.norm2(x))


# run:
MixerBlock(49, 64, 32, 128)(torch.randn(2, 49, 64)).sum().backward()
