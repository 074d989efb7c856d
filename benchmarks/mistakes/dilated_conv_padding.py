# crash: the padding of dilated convolutions does not grow with the dilation, and the residual is longer than the output
# evidence: none
import torch
import torch.nn as nn


class GatedResidualBlock(nn.Module):
    """One layer of a non-causal WaveNet: dilated convolution, gate, residual and skip."""

    def __init__(self, channels, dilation, kernel_size=3):
        super().__init__()
        padding = dilation * (kernel_size - 1) // 2  # mistake: padding = (kernel_size - 1) // 2
        self.conv = nn.Conv1d(channels, 2 * channels, kernel_size, padding=padding, dilation=dilation)
        self.res = nn.Conv1d(channels, channels, 1)
        self.skip = nn.Conv1d(channels, channels, 1)

    def forward(self, x):
        a, b = self.conv(x).chunk(2, dim=1)
        h = torch.tanh(a) * torch.sigmoid(b)
        return x + self.res(h), self.skip(h)


class WaveNet(nn.Module):
    def __init__(self, in_channels=1, channels=32, n_layers=6, out_channels=1):
        super().__init__()
        self.inp = nn.Conv1d(in_channels, channels, 1)
        self.layers = nn.ModuleList([GatedResidualBlock(channels, 2**i) for i in range(n_layers)])
        self.out = nn.Sequential(nn.ReLU(), nn.Conv1d(channels, channels, 1), nn.ReLU())
        self.final = nn.Conv1d(channels, out_channels, 1)

    def forward(self, x):
        x = self.inp(x)
        total = 0
        for layer in self.layers:
            x, skip = layer(x)
            total = total + skip
        return self.final(self.out(total))


# run:
WaveNet()(torch.randn(2, 1, 500)).sum().backward()
