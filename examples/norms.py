"""Normalizations over the last dimension."""

import torch
from torch import nn


def rms_norm(x, weight, eps=1e-6):
    scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return x * scale * weight


def layer_norm(x, weight, bias, eps=1e-5):
    mean = x.mean(-1, keepdim=True)
    centred = x - mean
    variance = centred.square().mean(-1, keepdim=True)
    return centred * torch.rsqrt(variance + eps) * weight + bias


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float = 1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return rms_norm(x.float(), self.weight, self.eps).to(x.dtype)
