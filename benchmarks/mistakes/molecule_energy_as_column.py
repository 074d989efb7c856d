# silent: the energies of molecules are predicted as a column and compared with a vector
# evidence: config
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass
class SchNetConfig:
    hidden: int = 32
    filters: int = 24
    blocks: int = 2
    cutoff: float = 5.0
    max_z: int = 20


class ContinuousFilter(nn.Module):
    def __init__(self, cfg: SchNetConfig):
        super().__init__()
        self.cutoff = cfg.cutoff
        hidden = cfg.hidden
        self.filter = nn.Sequential(nn.Linear(cfg.filters, hidden), nn.Softplus(), nn.Linear(hidden, hidden))
        self.register_buffer("centers", torch.linspace(0, cfg.cutoff, cfg.filters))

    def forward(self, h: Tensor, distance: Tensor) -> Tensor:
        # h: (B, N, hidden), distance: (B, N, N)
        rbf = torch.exp(-10 * (distance.unsqueeze(-1) - self.centers) ** 2)
        w = self.filter(rbf) * (distance < self.cutoff).unsqueeze(-1)
        return torch.einsum("bijc,bjc->bic", w, h)


class EnergyModel(nn.Module):
    def __init__(self, cfg: SchNetConfig):
        super().__init__()
        self.embed = nn.Embedding(cfg.max_z, cfg.hidden)
        self.convs = nn.ModuleList([ContinuousFilter(cfg) for _ in range(cfg.blocks)])
        self.atom_energy = nn.Sequential(nn.Linear(cfg.hidden, cfg.hidden), nn.Softplus(), nn.Linear(cfg.hidden, 1))

    def forward(self, z: Tensor, positions: Tensor) -> Tensor:
        h, distance = self.embed(z), torch.cdist(positions, positions)
        for conv in self.convs:
            h = h + conv(h, distance)
        return self.atom_energy(h).sum(dim=1).squeeze(-1)  # mistake: return self.atom_energy(h).sum(dim=1)

    def loss(self, z: Tensor, positions: Tensor, energy: Tensor) -> Tensor:
        # energy: (B,)
        return (self(z, positions) - energy).abs().mean()


# run:
model = EnergyModel(SchNetConfig())
loss = model.loss(torch.randint(1, 10, (8, 6)), torch.randn(8, 6, 3), torch.randn(8))
loss.backward()
print(loss.item())
