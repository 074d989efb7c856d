# targets: Attention, AttentionWithoutTranspose, AttentionWithView, gram, gram_of_rows, LowRank,
#  LowRankWithoutTranspose, SkipGram, SkipGramOfRows, Aligned, AlignedByColumns, Spectral, SpectralWithoutTranspose
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim: int = 64, heads: int = 4):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (y.view(B, T, self.heads, C // self.heads).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        scores = q @ k.transpose(-2, -1)
        y = scores.softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(B, T, C))


class AttentionWithoutTranspose(nn.Module):
    def __init__(self, dim: int = 64, heads: int = 4):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (y.view(B, T, self.heads, C // self.heads).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        scores = q @ k
        #        ^^^^^ warning[dimension]: `q @ k` only works when T == 16. Is a dimension missing or swapped?
        y = scores.softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(B, T, C))


class AttentionWithView(nn.Module):
    def __init__(self, dim: int = 64, heads: int = 4):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (y.view(B, T, self.heads, C // self.heads).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        scores = q @ k.transpose(-2, -1)
        y = scores.softmax(-1) @ v
        return self.out(y.transpose(1, 2).view(B, T, C))
        #               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ error[shape]:
        #  Cannot view a tensor with shape torch.Size([4, 8, 4, 16]) and strides (512, 16, 128, 1) as a tensor with
        #  shape (4, 8, 64)! (y.transpose(1, 2): f32[4, 8, 4, 16](512, 16, 128, 1)).


def gram(features):
    b, c, h, w = features.shape
    flat = features.view(b, c, h * w)
    return torch.bmm(flat, flat.transpose(1, 2))


def gram_of_rows(features):
    b, c, h, w = features.shape
    flat = features.view(b, c, h * w)
    return torch.bmm(flat, flat)
    #      ^^^^^^^^^^^^^^^^^^^^^ warning[dimension]:
    #  `torch.bmm(flat, flat)` only works when c == h * w. Is a dimension missing or swapped?


class LowRank(nn.Module):
    def __init__(self, width, outputs, rank=8):
        super().__init__()
        self.base = nn.Linear(width, outputs)
        self.down, self.up = nn.Parameter(torch.zeros(rank, width)), nn.Parameter(torch.zeros(outputs, rank))

    def forward(self, x):
        return self.base(x) + x @ self.down.T @ self.up.T


class LowRankWithoutTranspose(nn.Module):
    def __init__(self, width, outputs, rank=8):
        super().__init__()
        self.base = nn.Linear(width, outputs)
        self.down, self.up = nn.Parameter(torch.zeros(rank, width)), nn.Parameter(torch.zeros(outputs, rank))

    def forward(self, x):
        return self.base(x) + x @ self.down @ self.up
        #                     ^^^^^^^^^^^^^ warning[dimension]:
        #  `x @ self.down` only works when x.shape[2] == 8. Is a dimension missing or swapped?


class SkipGram(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.words = nn.Embedding(500, dim)

    def forward(self, centre, negatives):
        return torch.bmm(self.words(negatives), self.words(centre).unsqueeze(2)).squeeze(2)


class SkipGramOfRows(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.words = nn.Embedding(500, dim)

    def forward(self, centre, negatives):
        return torch.bmm(self.words(negatives), self.words(centre)).squeeze(2)
        #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ warning[dimension]:
        #  `torch.bmm(self.words(negatives), self.words(centre))` only works when centre.shape[1] == init.dim. Is a
        #  dimension missing or swapped?


class Aligned(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.turn = nn.Conv1d(3, 64, 1), nn.Linear(64, 9)

    def forward(self, x):
        turn = self.turn(self.conv(x).amax(2)).view(-1, 3, 3)
        return torch.bmm(turn, x)


class AlignedByColumns(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.turn = nn.Conv1d(3, 64, 1), nn.Linear(64, 9)

    def forward(self, x):
        turn = self.turn(self.conv(x).amax(2)).view(-1, 3, 3)
        return torch.bmm(x, turn)
        #      ^^^^^^^^^^^^^^^^^^ warning[dimension]:
        #  `torch.bmm(x, turn)` only works when x.shape[2] == 3. Is a dimension missing or swapped?


class Spectral(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift, self.mix, self.skip = nn.Linear(2, 32), nn.Parameter(torch.zeros(32, 32)), nn.Conv1d(32, 32, 1)

    def forward(self, x):
        x = self.lift(x).transpose(1, 2)
        return torch.einsum("bix,io->box", x.relu(), self.mix) + self.skip(x)


class SpectralWithoutTranspose(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift, self.mix, self.skip = nn.Linear(2, 32), nn.Parameter(torch.zeros(32, 32)), nn.Conv1d(32, 32, 1)

    def forward(self, x):
        x = self.lift(x)
        return torch.einsum("bix,io->box", x.relu(), self.mix) + self.skip(x)
        #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ warning[dimension]:
        #  `torch.einsum('bix,io->box', x.relu(), self.mix)` only works when x.shape[1] == 32. Is a dimension missing
        #  or swapped?
