# crash: the similarities of both views make 2 N rows, the labels count only N, "Expected input batch_size to match"
# evidence: none
import torch
import torch.nn as nn
import torch.nn.functional as F


class NTXentLoss(nn.Module):
    """Normalized temperature-scaled cross entropy over two views of a batch."""

    def __init__(self, temperature=0.5):
        super().__init__()
        self.temperature = temperature

    def forward(self, z_i, z_j):
        # z_i, z_j: (N, D)
        n = z_i.size(0)
        z = F.normalize(torch.cat([z_i, z_j], dim=0), dim=1)
        sim = z @ z.T / self.temperature
        sim.fill_diagonal_(float("-inf"))
        labels = torch.arange(2 * n, device=z.device).roll(n)  # mistake: labels = torch.arange(n, device=z.device)
        return F.cross_entropy(sim, labels)


class ProjectionHead(nn.Module):
    def __init__(self, in_dim=512, hidden=512, out_dim=128):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(in_dim, hidden, bias=False), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, out_dim)
        )

    def forward(self, h):
        return self.net(h)


# run:
head = ProjectionHead(64, 64, 32)
z = head(torch.randn(16, 64))
z2 = head(torch.randn(16, 64))
NTXentLoss()(z, z2).backward()
