# crash: a channel shuffle splits the channels into groups, but keeps all of them in each group
# evidence: none
import torch
from torch import Tensor, nn


def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    batch, channels, height, width = x.size()
    per_group = channels // groups  # mistake: per_group = channels
    x = x.view(batch, groups, per_group, height, width)
    x = x.transpose(1, 2).contiguous()
    return x.view(batch, channels, height, width)


class ShuffleUnit(nn.Module):
    """A unit of ShuffleNet without stride: one half of the channels passes unchanged."""

    def __init__(self, channels: int):
        super().__init__()
        half = channels // 2
        self.branch = nn.Sequential(
            nn.Conv2d(half, half, 1, bias=False),
            nn.BatchNorm2d(half),
            nn.ReLU(inplace=True),
            nn.Conv2d(half, half, 3, padding=1, groups=half, bias=False),
            nn.BatchNorm2d(half),
            nn.Conv2d(half, half, 1, bias=False),
            nn.BatchNorm2d(half),
            nn.ReLU(inplace=True),
        )

    def forward(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, dim=1)
        out = torch.cat((left, self.branch(right)), dim=1)
        return channel_shuffle(out, 2)


# run:
ShuffleUnit(48)(torch.randn(3, 48, 14, 14)).sum().backward()
