# targets: Subsampling, Kernels, Views, Views.embedded, Velocity, PrototypesOfRows, Decoder
import torch
import torch.nn as nn
import torch.nn.functional as F


class Subsampling(nn.Module):
    def __init__(self, n_mels, dim):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, dim, 3, 2), nn.ReLU(), nn.Conv2d(dim, dim, 3, 2), nn.ReLU())
        self.out = nn.Linear(dim * (((n_mels - 1) // 2 - 1) // 2), dim)

    def forward(self, x):
        x = self.conv(x.unsqueeze(1))
        b, c, t, f = x.shape
        return self.out(x.transpose(1, 2).reshape(b, t, c * f))


class Kernels(nn.Module):
    def __init__(self, channels, kernels):
        super().__init__()
        self.kernels = kernels
        self.conv = nn.Conv2d(channels, channels * kernels, 1)

    def forward(self, x, A):
        assert A.size(0) == self.kernels
        n, c, t, v = x.size()
        return torch.einsum("nkctv,kvw->nctw", self.conv(x).view(n, self.kernels, c, t, v), A)


class Views(nn.Module):
    def __init__(self, width=128, frequencies=4):
        super().__init__()
        self.bands = 2.0 ** torch.arange(frequencies)
        self.points = nn.Linear(3 * frequencies, width)
        self.colors = nn.Linear(width + 3 * frequencies, 3)

    def embedded(self, x):
        return (x[..., None] * self.bands).flatten(-2)

    def forward(self, points, directions):
        """points: (n_rays, n_samples, 3), directions: (n_rays, 3)"""
        h = self.points(self.embedded(points))
        directions = self.embedded(directions)[:, None].expand(-1, points.shape[1], -1)
        return self.colors(torch.cat([h, directions], -1))


class Velocity(nn.Module):
    def __init__(self, width, t_dim=64):
        super().__init__()
        self.t_dim = t_dim
        self.inp = nn.Conv2d(3, width, 3, padding=1)
        self.proj = nn.Linear(t_dim, width)

    def forward(self, x, t):
        angles = t[:, None] * torch.arange(self.t_dim)
        return self.inp(x) + self.proj(angles)[:, :, None, None]


class PrototypesOfRows(nn.Module):
    def __init__(self, encoder, n_way, k_shot):
        super().__init__()
        self.encoder = encoder
        self.n_way, self.k_shot = n_way, k_shot

    def forward(self, support, query, labels):
        prototypes = self.encoder(support).view(self.n_way, self.k_shot, -1).mean(1)
        distances = torch.pow(self.encoder(query).unsqueeze(1) - prototypes.unsqueeze(1), 2).sum(-1)
        #                     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ warning[dimension]:
        #  `self.encoder(query).unsqueeze(1) - prototypes.unsqueeze(1)` only broadcasts when query.shape[0] ==
        #  init.n_way. Is a dimension missing or swapped?
        return F.nll_loss(F.log_softmax(-distances, dim=1), labels)


class Decoder(nn.Module):
    def __init__(self, hidden, vocab):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.query, self.key = nn.Linear(hidden, hidden), nn.Linear(hidden, 1)
        self.gru = nn.GRU(2 * hidden, hidden, batch_first=True)

    def forward(self, token, hidden, encoded):
        scores = self.key(torch.tanh(self.query(hidden.transpose(0, 1)) + encoded)).transpose(1, 2)
        return self.gru(torch.cat([self.embedding(token), scores.softmax(-1) @ encoded], 2), hidden)
