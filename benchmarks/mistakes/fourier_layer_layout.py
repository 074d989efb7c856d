# crash: the modes of a Fourier layer are mixed with the channels still in the last place
# evidence: none
import torch
import torch.nn as nn


class SpectralConv1d(nn.Module):
    def __init__(self, width=32, modes=8):
        super().__init__()
        self.modes = modes
        self.weights = nn.Parameter(torch.randn(width, width, modes, dtype=torch.cfloat) / width)

    def forward(self, x):
        x_ft = torch.fft.rfft(x)
        out_ft = torch.einsum("bix,iox->box", x_ft[:, :, : self.modes], self.weights)
        return torch.fft.irfft(out_ft, n=x.size(-1))


class FNO1d(nn.Module):
    def __init__(self, in_channels=2, width=32, modes=8):
        super().__init__()
        self.lift = nn.Linear(in_channels, width)
        self.conv = SpectralConv1d(width, modes)
        self.skip = nn.Conv1d(width, width, 1)
        self.proj = nn.Linear(width, 1)

    def forward(self, x):
        x = self.lift(x).permute(0, 2, 1)  # mistake: x = self.lift(x)
        x = torch.relu(self.conv(x) + self.skip(x))
        return self.proj(x.permute(0, 2, 1))


# run:
FNO1d()(torch.randn(4, 64, 2)).sum().backward()
