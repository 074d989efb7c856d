# targets: Scan, ScanRight, Pooled, PooledRight, Masked, MaskedRight, FirstAlone, FirstAloneRight, Edges, Padded,
#  Strided
import torch
import torch.nn.functional as F
from torch import nn


class Scan(nn.Module):
    def __init__(self, dim=64, state=16):
        super().__init__()
        self.A = nn.Parameter(torch.randn(dim, state))

    def forward(self, u, delta, B):
        h = u.new_zeros(u.shape[0], *self.A.shape)
        for t in range(u.shape[1]):
            h = torch.exp(delta[:, t, :, None] * self.A) * h + u[:, t, :, None] * B[:, t, :]
            #   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ warning[dimension]:
            #  `torch.exp(delta[:, t, :, None] * self.A) * h + u[:, t, :,…` only broadcasts when B.shape[0] == 64. Is
            #  a dimension missing or swapped?
        return h


class ScanRight(nn.Module):
    def __init__(self, dim=64, state=16):
        super().__init__()
        self.A = nn.Parameter(torch.randn(dim, state))

    def forward(self, u, delta, B):
        h = u.new_zeros(u.shape[0], *self.A.shape)
        for t in range(u.shape[1]):
            h = torch.exp(delta[:, t, :, None] * self.A) * h + u[:, t, :, None] * B[:, t, None, :]
        return h


class Pooled(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.score = nn.Linear(dim, 1)

    def forward(self, frames):
        weights = self.score(frames).squeeze(-1).softmax(dim=1)
        return (weights * frames).sum(dim=1)
        #       ^^^^^^^^^^^^^^^^ warning[dimension]:
        #  `weights * frames` only broadcasts when frames.shape[1] == frames.shape[0]. Is a dimension missing or
        #  swapped?


class PooledRight(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.score = nn.Linear(dim, 1)

    def forward(self, frames):
        weights = self.score(frames).softmax(dim=1)
        return (weights * frames).sum(dim=1)


class Masked(nn.Module):
    def __init__(self, words=100, dim=64):
        super().__init__()
        self.embed = nn.Embedding(words, dim)

    def forward(self, idx):
        x = self.embed(idx)
        n = x.size(0)
        mask = torch.ones(n, n).tril() == 0
        return (x @ x.transpose(1, 2)).masked_fill(mask, float("-inf")).softmax(-1) @ x
        #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ warning[dimension]:
        #  `(x @ x.transpose(1, 2)).masked_fill(mask, float('-inf'))` only works when idx.shape[1] == idx.shape[0]. Is
        #  a dimension missing or swapped?


class MaskedRight(nn.Module):
    def __init__(self, words=100, dim=64):
        super().__init__()
        self.embed = nn.Embedding(words, dim)

    def forward(self, idx):
        x = self.embed(idx)
        n = x.size(1)
        mask = torch.ones(n, n).tril() == 0
        return (x @ x.transpose(1, 2)).masked_fill(mask, float("-inf")).softmax(-1) @ x


class FirstAlone(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        b, t, c = x.shape
        return self.fc(x).view(t, c)
        #      ^^^^^^^^^^^^^^^^^^^^^ error[shape]:
        #  shape '[8, 32]' is invalid for input of size 1024 (self.fc(x): f32[4, 8, 32]).


class FirstAloneRight(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        b, t, c = x.shape
        return self.fc(x).view(b * t, c)


class Edges(nn.Module):
    """A kernel for images of one channel."""

    def __init__(self):
        super().__init__()
        self.register_buffer("kernel", torch.ones(1, 1, 3, 3))

    def forward(self, image):
        return F.conv2d(image, self.kernel, padding=1)


class Padded(nn.Module):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.conv = nn.Conv1d(inputs, outputs, 3, stride=stride)

    def forward(self, x):
        return self.conv(F.pad(x, (1, 1)))


class Strided(nn.Module):
    def __init__(self, width, factors):
        super().__init__()
        self.layers = nn.ModuleList()
        for i in range(max(factor.bit_length() - 1 for factor in factors)):
            channels = 3 if i == 0 else width
            self.layers.append(Padded(channels, width, 2))
        self.last = Padded(channels, width)

    def forward(self, x):
        h = x
        for layer in self.layers:
            h = F.relu(layer(h))
        return self.last(h)
