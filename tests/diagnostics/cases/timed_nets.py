# targets: Up, Net, NetTimed, embedded, Block2d, Modulated, Noised, WidthForgotten
import torch
import torch.nn as nn
import torch.nn.functional as F


class Up(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv1d(cin, cout, 3, padding=1)

    def forward(self, x):
        return self.conv(F.interpolate(x, scale_factor=2, mode="nearest"))


class Net(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.inp = nn.Conv1d(2, width, 7, padding=3)
        self.down = nn.Conv1d(width, 2 * width, 3, stride=2, padding=1)
        self.up = Up(2 * width, width)

    def forward(self, noisy):
        a = self.inp(noisy)
        return self.up(self.down(a)) + a


class NetTimed(Net):
    def __init__(self, width=32):
        super().__init__(width)
        self.time = nn.Linear(64, 2 * width)

    def forward(self, noisy, sigma):
        freqs = torch.exp(torch.linspace(0, -6, 32, device=noisy.device))
        angles = sigma[:, None] * freqs * 1000
        t = self.time(torch.cat([angles.sin(), angles.cos()], dim=-1))
        a = self.inp(noisy)
        return self.up(self.down(a) + t[:, :, None]) + a


def embedded(t, dim):
    half = dim // 2
    freqs = torch.exp(-torch.arange(half, device=t.device) / half)
    args = t.float().unsqueeze(-1) * freqs
    return torch.cat([args.cos(), args.sin()], dim=-1)


class Block2d(nn.Module):
    def __init__(self, channels=32):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.mlp = nn.Sequential(nn.Linear(64, 128), nn.SiLU(), nn.Linear(128, channels))

    def forward(self, x, timestep):
        h = self.conv(x)
        return self.conv(h + self.mlp(embedded(timestep, 64))[:, :, None, None])


class Modulated(nn.Module):
    def __init__(self, cond=16, channels=8):
        super().__init__()
        self.inner = nn.Conv1d(channels, channels, 3, padding=1)
        self.to_scale = nn.Linear(cond, 2 * channels)

    def forward(self, signal, speaker):
        scale, shift = self.to_scale(speaker).chunk(2, dim=-1)
        h = self.inner(signal)
        return self.inner(h * (1 + scale.unsqueeze(-1)) + shift.unsqueeze(-1))


class Noised(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x, sigma):
        c_in = 1 / (sigma**2 + 1).sqrt()
        return self.net(x * c_in[:, None, None, None])


class WidthForgotten(NetTimed):
    def forward(self, noisy, sigma):
        t = self.time(torch.cat([sigma[:, None].sin().expand(-1, 32), sigma[:, None].cos()], dim=-1))
        #   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ error[shape]:
        #  matrices of 32×33 and 64×64 cannot be multiplied: the inner sizes 33 and 64 differ (input: f32[32, 33],
        #  weight: f32[64, 64], bias: f32[64]).
        return self.up(self.down(self.inp(noisy)) + t[:, :, None])
