# targets: Scaled, ScaledRight, Gated, Residual, ResidualRight, Asserted, Scale, ScaleRight, BasicBlock, ResBlock,
#  PreAct, scaled_given, scaled_right
import torch
import torch.nn as nn


class Scaled(nn.Module):
    def __init__(self, fan_in, fan_out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(fan_out, fan_in))
        self.length = nn.Parameter(torch.ones(fan_out))

    def forward(self, x):
        ratio = self.length / self.weight.norm(dim=1, keepdim=True)
        return x @ (self.weight * ratio).t()
        #           ^^^^^^^^^^^^^^^^^^^ warning[dimension]:
        #  `self.weight * ratio` only broadcasts when init.fan_in == init.fan_out. Is a dimension missing or swapped?
        #  line 12: a column and a row broadcast here to all pairs of their elements


class ScaledRight(nn.Module):
    def __init__(self, fan_in, fan_out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(fan_out, fan_in))
        self.length = nn.Parameter(torch.ones(fan_out))

    def forward(self, x):
        ratio = self.length[:, None] / self.weight.norm(dim=1, keepdim=True)
        return x @ (self.weight * ratio).t()


class Gated(nn.Module):
    def __init__(self, width, parts, use_gate=False):
        super().__init__()
        self.score = nn.Linear(width, parts)
        self.use_gate = use_gate
        if use_gate:
            self.gate = nn.Linear(parts, width)

    def forward(self, x):
        p = self.score(x)
        if self.use_gate:
            p = p * self.gate(p)
            #   ^^^^^^^^^^^^^^^^ warning[dimension]:
            #  with use_gate=True: `p * self.gate(p)` only broadcasts when init.parts == init.width. Is a dimension
            #  missing or swapped?
        return p


class Residual(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, 3, padding=1)

    def forward(self, x):
        return x + self.conv(x).relu()
        #      ^^^^^^^^^^^^^^^^^^^^^^^ warning[dimension]:
        #  `x + self.conv(x).relu()` only broadcasts when init.in_channels == init.out_channels. Is a dimension
        #  missing or swapped?


class ResidualRight(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, 3, padding=1)
        self.skip = nn.Conv2d(in_channels, out_channels, 1)

    def forward(self, x):
        return self.skip(x) + self.conv(x).relu()


class Asserted(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        assert a == b, "the same"
        self.lin = nn.Linear(a, b)

    def forward(self, x):
        return x + self.lin(x)


class Scale(nn.Module):
    def __init__(self, rank, size):
        super().__init__()
        self.u = nn.Parameter(torch.randn(size, rank))
        self.v = nn.Parameter(torch.randn(size, rank))

    def forward(self, x):
        return x @ (self.u @ self.v)
        #           ^^^^^^^^^^^^^^^ warning[dimension]:
        #  `self.u @ self.v` only works when init.rank == init.size. Is a dimension missing or swapped?


class ScaleRight(nn.Module):
    def __init__(self, rank, size):
        super().__init__()
        self.u = nn.Parameter(torch.randn(size, rank))
        self.v = nn.Parameter(torch.randn(size, rank))

    def forward(self, x):
        return x @ (self.u @ self.v.t())


class BasicBlock(nn.Module):
    def __init__(self, inplanes, planes, stride=1, downsample=None):
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.downsample = downsample

    def forward(self, x):
        identity = x
        out = self.conv2(self.conv1(x).relu())
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return out.relu()


class ResBlock(nn.Module):
    def __init__(self, in_channels, out_channels, downsample):
        super().__init__()
        if downsample:
            self.conv = nn.Conv2d(in_channels, out_channels, 3, 2, 1)
            self.shortcut = nn.Conv2d(in_channels, out_channels, 1, 2)
        else:
            self.conv = nn.Conv2d(in_channels, out_channels, 3, 1, 1)
            self.shortcut = nn.Sequential()

    def forward(self, x):
        return self.shortcut(x) + self.conv(x)


class PreAct(nn.Module):
    def __init__(self, in_planes, planes, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(in_planes, planes, 3, stride, 1)
        if stride != 1 or in_planes != planes:
            self.shortcut = nn.Conv2d(in_planes, planes, 1, stride)

    def forward(self, x):
        shortcut = self.shortcut(x) if hasattr(self, "shortcut") else x
        return self.conv(x) + shortcut


# fx: length=f32[5], weight=f32[5, 3]
def scaled_given(length: torch.Tensor, weight: torch.Tensor):
    ratio = length / weight.norm(dim=1, keepdim=True)
    return weight * ratio
    #      ^^^^^^^^^^^^^^ error[shape]:
    #  shapes [5, 5] and [5, 3] do not broadcast: size 5 at dimension -1 does not match (weight: f32[5, 3], ratio:
    #  f32[5, 5]); line 135: a column and a row broadcast here to all pairs of their elements.


def scaled_right(length: torch.Tensor, weight: torch.Tensor):
    ratio = length[:, None] / weight.norm(dim=1, keepdim=True)
    return weight * ratio
