# silent: risks (B, 1) minus the log of the summed risks (B,) is a matrix, and so is the likelihood of a Cox model
# evidence: config
from dataclasses import dataclass

import torch
import torch.nn as nn


@dataclass
class SurvivalConfig:
    n_genes: int = 200
    n_clinical: int = 6
    hidden: int = 32
    dropout: float = 0.0


class Branch(nn.Module):
    def __init__(self, n_inputs, hidden, dropout):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(n_inputs, hidden), nn.SELU(), nn.AlphaDropout(dropout))

    def forward(self, x):
        return self.net(x)


class CoxNet(nn.Module):
    def __init__(self, config: SurvivalConfig):
        super().__init__()
        self.genes = Branch(config.n_genes, config.hidden, config.dropout)
        self.clinical = Branch(config.n_clinical, config.hidden, config.dropout)
        self.risk = nn.Linear(2 * config.hidden, 1, bias=False)

    def forward(self, genes, clinical):
        h = torch.cat([self.genes(genes), self.clinical(clinical)], dim=1)
        return self.risk(h)

    def loss(self, genes, clinical, time, event):
        """Negative partial log likelihood; time and event are vectors."""
        risk = self.forward(genes, clinical).squeeze(-1)  # mistake: risk = self.forward(genes, clinical)
        order = time.argsort(descending=True)
        risk, event = risk[order], event[order]
        log_cumulative = torch.logcumsumexp(risk.flatten(), dim=0)
        return -((risk - log_cumulative) * event).sum() / event.sum()


def build_cox() -> CoxNet:
    return CoxNet(SurvivalConfig())


# run:
event = (torch.rand(40) < 0.6).float()
loss = build_cox().loss(torch.randn(40, 200), torch.randn(40, 6), torch.rand(40), event)
loss.backward()
print(loss.item())
