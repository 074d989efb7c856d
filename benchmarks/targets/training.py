"""Two small models to train: one is made of many short Python functions, the other of few large operations."""

from __future__ import annotations

import torch
from torch import nn


def mean_square(x: torch.Tensor) -> torch.Tensor:
    return x.pow(2).mean(-1, keepdim=True)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return x * torch.rsqrt(mean_square(x) + eps) * weight


def split_heads(x: torch.Tensor, heads: int) -> torch.Tensor:
    batch, time, width = x.shape
    return x.view(batch, time, heads, width // heads).transpose(1, 2)


def merge_heads(x: torch.Tensor) -> torch.Tensor:
    batch, heads, time, width = x.shape
    return x.transpose(1, 2).reshape(batch, time, heads * width)


def scaled(q: torch.Tensor) -> torch.Tensor:
    return q * q.shape[-1] ** -0.5


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(scaled(q) @ k.transpose(-1, -2), -1) @ v


def gelu(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x**3)))


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, self.weight)


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = Norm(width), Norm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (split_heads(part, self.heads) for part in self.qkv(x).chunk(3, -1))
        return self.out(merge_heads(attend(q, k, v)))

    def mlp(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(gelu(self.up(x)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.before(x))
        return x + self.mlp(self.between(x))


class Transformer(nn.Module):
    """`example` is a batch so small that Python takes as much time as the arithmetic."""

    def __init__(self, width: int = 32, heads: int = 2, layers: int = 4) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.example = torch.randn(2, 8, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks(x)


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(x + self.norms[1](self.second(y)))


class ResNet(nn.Module):
    """`example` is a batch of 16 images of 32 × 32."""

    def __init__(self, channels: int = 16, blocks: int = 6) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.blocks = nn.Sequential(*(Residual(channels) for _ in range(blocks)))
        self.example = torch.randn(16, 3, 32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks(self.stem(x)).mean((2, 3))


def loss_of(y: torch.Tensor) -> torch.Tensor:
    return (y**2).mean()
