"""The functions whose kernels are timed: as people write them, at the sizes of a large model."""

import torch
import torch.nn.functional as F
from torch import nn


# fx: x=bf16[8192, 4096], bias=bf16[4096]
def bias_gelu(x, bias):
    return F.gelu(x + bias)


# fx: gate=bf16[8192, 4096], up=bf16[8192, 4096]
def swiglu(gate, up):
    return F.silu(gate) * up


# fx: x=bf16[8192, 4096], weight=bf16[4096]
def rms_norm(x, weight):
    h = x.float()
    return (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * weight


# fx: x=bf16[8192, 4096], residual=bf16[8192, 4096], weight=bf16[4096]
def add_rms_norm(x, residual, weight):
    total = x + residual
    return rms_norm(total, weight), total


# fx: x=bf16[8192, 4096], weight=bf16[4096], bias=bf16[4096]
def layer_norm(x, weight, bias):
    return F.layer_norm(x, (x.size(-1),), weight, bias)


# fx: x=bf16[8192, 4096]
def softmax(x):
    return torch.softmax(x, dim=-1)


# fx: logits=bf16[4096, 128256], target=i64[4096]
def cross_entropy(logits, target):
    return F.cross_entropy(logits, target)


def rotated(x):
    left, right = x.chunk(2, dim=-1)
    return torch.cat((-right, left), dim=-1)


# fx: q=bf16[4, 32, 4096, 128], k=bf16[4, 8, 4096, 128], cos=bf16[4096, 128], sin=bf16[4096, 128]
def rope(q, k, cos, sin):
    return q * cos + rotated(q) * sin, k * cos + rotated(k) * sin


class Spike(torch.autograd.Function):
    """A step forward; backward, the slope of a fast sigmoid around the threshold."""

    @staticmethod
    def forward(ctx, distance):
        ctx.save_for_backward(distance)
        return (distance > 0).to(distance.dtype)

    @staticmethod
    def backward(ctx, grad):
        (distance,) = ctx.saved_tensors
        return grad / (1 + 10 * distance.abs()) ** 2


# fx: current=bf16[16, 64, 128, 1024]
def lif(current):
    voltage = torch.zeros_like(current[0])
    spikes = []
    for step in current:
        voltage = 0.9 * voltage + step
        spike = Spike.apply(voltage - 1.0)
        voltage = voltage - spike
        spikes.append(spike)
    return torch.stack(spikes)


# fx: x=bf16[8192, 4096], weight=bf16[4096, 4096], bias=bf16[4096]
def linear_gelu(x, weight, bias):
    return F.gelu(F.linear(x, weight, bias))


# fx: q=bf16[4, 16, 2048, 64], k=bf16[4, 16, 2048, 64], v=bf16[4, 16, 2048, 64]
def attention(q, k, v):
    scores = q @ k.transpose(-2, -1) * q.size(-1) ** -0.5
    keep = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool, device=q.device).tril()
    return torch.softmax(scores.masked_fill(~keep, float("-inf")), dim=-1) @ v


class Attention(nn.Module):
    """The same under another name, for comparison: PyTorch's own kernels."""

    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
