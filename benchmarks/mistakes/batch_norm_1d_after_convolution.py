# crash: the normalization of vectors stands after a convolution over images
# evidence: none
import torch
from torch import nn


def conv_block(c_in, c_out):
    return nn.Sequential(
        nn.Conv2d(c_in, c_out, 3, padding=1, bias=False),
        nn.BatchNorm2d(c_out),  # mistake: nn.BatchNorm1d(c_out),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
    )


class FewShotEncoder(nn.Module):
    """Four blocks of convolutions, as in prototypical networks."""

    def __init__(self, channels=3, hidden=64, width=64):
        super().__init__()
        self.layers = nn.Sequential(
            conv_block(channels, hidden),
            conv_block(hidden, hidden),
            conv_block(hidden, hidden),
            conv_block(hidden, width),
        )

    def forward(self, images):
        return self.layers(images).flatten(1)


# run:
FewShotEncoder()(torch.randn(5, 3, 84, 84)).sum().backward()
