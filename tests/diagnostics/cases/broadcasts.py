# targets: Positions, PositionsOfBatch, Residual, ResidualOfOtherChannels, Rotary, RotaryOfHeads, Slopes,
#  SlopesOfColumns, Halved, HalvedOnce, nearest, nearest_of_one_set, Patches, PatchesWithoutFirst
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


class Positions(nn.Module):
    def __init__(self, dim: int = 64):
        super().__init__()
        self.register_buffer("table", torch.zeros(512, 1, dim))

    def forward(self, x):
        T, B, C = x.shape
        return x + self.table[: x.size(0)]


class PositionsOfBatch(nn.Module):
    def __init__(self, dim: int = 64):
        super().__init__()
        self.register_buffer("table", torch.zeros(512, 1, dim))

    def forward(self, x):
        T, B, C = x.shape
        return x + self.table[: x.size(1)]
        #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^ warning[dimension]:
        #  `x + self.table[:x.size(1)]` only broadcasts when B == T. Is a dimension missing or swapped?


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, x):
        y = self.first(x)
        return F.relu(self.second(y) + y)


class ResidualOfOtherChannels(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)

    def forward(self, x):
        y = self.first(x)
        return F.relu(self.second(y) + y)
        #             ^^^^^^^^^^^^^^^^^^ error[shape]:
        #  shapes [4, 16, 64, 64] and [4, 32, 64, 64] do not broadcast: size 16 at dimension -3 does not match
        #  (self.second(y): f32[4, 32, 64, 64], y: f32[4, 16, 64, 64]).


class Rotary(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.query = heads, nn.Linear(dim, dim)
        self.register_buffer("rates", 1.0 / 10000 ** (torch.arange(0, dim // heads) / (dim // heads)))

    def forward(self, x):
        B, T, C = x.shape
        q = self.query(x).view(B, T, self.heads, -1)
        angles = torch.outer(torch.arange(T), self.rates)
        return q * angles[:, None, :].cos()


class RotaryOfHeads(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.query = heads, nn.Linear(dim, dim)
        self.register_buffer("rates", 1.0 / 10000 ** (torch.arange(0, dim // heads) / (dim // heads)))

    def forward(self, x):
        B, T, C = x.shape
        q = self.query(x).view(B, T, self.heads, -1)
        angles = torch.outer(torch.arange(T), self.rates)
        return q * angles.cos()
        #      ^^^^^^^^^^^^^^^^ warning[dimension]:
        #  `q * angles.cos()` only broadcasts when T == init.heads. Is a dimension missing or swapped?


class Slopes(nn.Module):
    def __init__(self, dim: int = 96, heads: int = 6):
        super().__init__()
        self.heads, self.qk = heads, nn.Linear(dim, 2 * dim)
        self.register_buffer("slopes", torch.ones(heads).view(-1, 1, 1))

    def forward(self, x):
        B, T, C = x.shape
        q, k = (y.view(B, T, self.heads, -1).transpose(1, 2) for y in self.qk(x).chunk(2, -1))
        distance = torch.arange(T)[None, :] - torch.arange(T)[:, None]
        return (q @ k.transpose(-2, -1) + self.slopes * distance).softmax(-1)


class SlopesOfColumns(nn.Module):
    def __init__(self, dim: int = 96, heads: int = 6):
        super().__init__()
        self.heads, self.qk = heads, nn.Linear(dim, 2 * dim)
        self.register_buffer("slopes", torch.ones(heads))

    def forward(self, x):
        B, T, C = x.shape
        q, k = (y.view(B, T, self.heads, -1).transpose(1, 2) for y in self.qk(x).chunk(2, -1))
        distance = torch.arange(T)[None, :] - torch.arange(T)[:, None]
        return (q @ k.transpose(-2, -1) + self.slopes * distance).softmax(-1)
        #                                 ^^^^^^^^^^^^^^^^^^^^^^ warning[dimension]:
        #  `self.slopes * distance` only broadcasts when T == 6. Is a dimension missing or swapped?


class Halved(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body, self.pool = nn.Conv2d(channels, channels, 3, padding=1), nn.AvgPool2d(2)

    def forward(self, x):
        return self.pool(self.body(x)) + self.pool(x)


class HalvedOnce(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body, self.pool = nn.Conv2d(channels, channels, 3, padding=1), nn.AvgPool2d(2)

    def forward(self, x):
        return self.pool(self.body(x)) + x
        #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^ warning[dimension]:
        #  `self.pool(self.body(x)) + x` only broadcasts when x.shape[3] == 2. Is a dimension missing or swapped?


def nearest(first, second):
    """The distance of points to the nearest of others, first: (batch, n, 3), second: (batch, m, 3)."""
    return (first.unsqueeze(2) - second.unsqueeze(1)).pow(2).sum(-1).amin(2)


def nearest_of_one_set(first, second):
    """The distance of points to the nearest_of_one_set of others, first: (batch, n, 3), second: (batch, m, 3)."""
    return (first.unsqueeze(2) - second).pow(2).sum(-1).amin(2)
    #       ^^^^^^^^^^^^^^^^^^^^^^^^^^^ warning[dimension]:
    #  `first.unsqueeze(2) - second` only works when second.shape[0] == 8, but batch is 4.


@dataclass
class Settings:
    image_size: int = 32
    patch: int = 4


class Patches(nn.Module):
    def __init__(self, settings: Settings):
        super().__init__()
        count = (settings.image_size // settings.patch) ** 2
        self.patches = nn.Conv2d(3, 64, settings.patch, settings.patch)
        self.first, self.places = nn.Parameter(torch.zeros(1, 1, 64)), nn.Parameter(torch.zeros(1, count + 1, 64))

    def forward(self, pixels):
        x = self.patches(pixels).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1)
        return x + self.places


class PatchesWithoutFirst(nn.Module):
    def __init__(self, settings: Settings):
        super().__init__()
        count = (settings.image_size // settings.patch) ** 2
        self.patches = nn.Conv2d(3, 64, settings.patch, settings.patch)
        self.first, self.places = nn.Parameter(torch.zeros(1, 1, 64)), nn.Parameter(torch.zeros(1, count, 64))

    def forward(self, pixels):
        x = self.patches(pixels).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1)
        return x + self.places
        #      ^^^^^^^^^^^^^^^ warning[dimension]:
        #  `x + self.places` only works when pixels.shape[2] == 28, but image_size is 32.
