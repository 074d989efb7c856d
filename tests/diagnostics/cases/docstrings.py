# targets: Images, ImagesWithoutStride, ImagesOfParameter, Joined
import torch
from torch import nn


class Images(nn.Module):
    """Classifies CIFAR images (3 x 32 x 32)."""

    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Linear(8 * 16 * 16, 10)

    def forward(self, x):
        return self.fc(self.conv(x).flatten(1))


class ImagesWithoutStride(nn.Module):
    """Classifies CIFAR images (3 x 32 x 32)."""

    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Linear(8 * 32 * 32, 10)

    def forward(self, x):
        return self.fc(self.conv(x).flatten(1))
        #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ warning[dimension]:
        #  `self.fc(self.conv(x).flatten(1))` only works when x.shape[2] == 64, but the size in the docstring is 32.


class ImagesOfParameter(nn.Module):
    """Classifies CIFAR images."""

    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Linear(8 * 32 * 32, 10)

    def forward(self, x):
        """x: (B, 3, 32, 32)"""
        return self.fc(self.conv(x).flatten(1))
        #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ warning[dimension]:
        #  `self.fc(self.conv(x).flatten(1))` only works when x.shape[2] == 64, but the size in the docstring is 32.


class Joined(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv1d(128, width, 1)

    def forward(self, near, far, points, others):
        """
        near: places, [B, C, N]
        far: places, [B, C, S]
        points: what is known there, [B, D, N]
        others: what is known there, [B, D, S]
        """
        weights = torch.cdist(near.permute(0, 2, 1), far.permute(0, 2, 1)).softmax(-1)
        points = torch.cat([points.permute(0, 2, 1), weights @ others.permute(0, 2, 1)], -1)
        return self.conv(points.permute(0, 2, 1))
