"""A layer of leaky integrate-and-fire neurons, trained with a surrogate gradient."""

import torch
from torch import nn


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


def lif_step(current, voltage, decay=0.9, threshold=1.0):
    voltage = decay * voltage + current
    spike = Spike.apply(voltage - threshold)
    return spike, voltage - spike * threshold


class LIFLayer(nn.Module):
    def __init__(self, inputs=32, neurons=64, decay=0.9):
        super().__init__()
        self.linear = nn.Linear(inputs, neurons)
        self.decay = decay

    def forward(self, x):
        """`x` is [steps, batch, inputs]; returns the spikes, [steps, batch, neurons]."""
        currents = self.linear(x)
        voltage = torch.zeros_like(currents[0])
        spikes = []
        for current in currents:
            spike, voltage = lif_step(current, voltage, self.decay)
            spikes.append(spike)
        return torch.stack(spikes)
