"""A spiking neuron: its spikes have a surrogate gradient, and its state is a loop over time."""

from __future__ import annotations

import torch


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v):
        ctx.save_for_backward(v)
        return (v > 0).to(v.dtype)

    @staticmethod
    def backward(ctx, grad):
        (v,) = ctx.saved_tensors
        return grad / (1 + 10 * v.abs()) ** 2


def lif(x):
    v, spikes = torch.zeros_like(x[0]), []
    for t in range(len(x)):
        v = 0.9 * v + x[t]
        s = Spike.apply(v - 1.0)
        v = v - s
        spikes.append(s)
    return torch.stack(spikes)
