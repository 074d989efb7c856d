# crash: the steps of a diffusion process, which are indices, go into a linear layer as they are
# evidence: none
import torch
import torch.nn as nn
import torch.nn.functional as F


class NoisePredictor(nn.Module):
    def __init__(self, dim=2, hidden=64, steps=100):
        super().__init__()
        self.steps = steps
        self.time = nn.Sequential(nn.Linear(1, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
        self.inp = nn.Linear(dim, hidden)
        self.out = nn.Sequential(nn.SiLU(), nn.Linear(hidden, dim))
        self.register_buffer("alpha_bar", torch.cumprod(1 - torch.linspace(1e-4, 0.02, steps), dim=0))

    def forward(self, x, t):
        emb = self.time(t.float()[:, None] / self.steps)  # mistake: emb = self.time(t[:, None])
        return self.out(self.inp(x) + emb)

    def loss(self, x):
        t = torch.randint(0, self.steps, (x.shape[0],))
        noise = torch.randn_like(x)
        a = self.alpha_bar[t][:, None]
        return F.mse_loss(self(a.sqrt() * x + (1 - a).sqrt() * noise, t), noise)


# run:
NoisePredictor().loss(torch.randn(16, 2)).backward()
