# crash: a letter of an einsum stands for two different sizes, heads and dependents are swapped with labels
# evidence: none
import torch
from torch import Tensor, nn


class Biaffine(nn.Module):
    def __init__(self, n_in: int, n_out: int = 1):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(n_out, n_in + 1, n_in + 1))
        nn.init.xavier_normal_(self.weight)

    def forward(self, dep: Tensor, head: Tensor) -> Tensor:
        """(batch, length, n_in), twice, to (batch, n_out, length, length)"""
        dep = torch.cat((dep, torch.ones_like(dep[..., :1])), -1)
        head = torch.cat((head, torch.ones_like(head[..., :1])), -1)
        letters = "bxi,oij,byj->boxy"  # mistake: letters = "bxi,ioj,byj->boxy"
        return torch.einsum(letters, dep, self.weight, head)


class DependencyScorer(nn.Module):
    def __init__(self, n_hidden: int, n_labels: int, n_arc: int = 100, n_label: int = 50):
        super().__init__()
        self.arc_dep, self.arc_head = nn.Linear(n_hidden, n_arc), nn.Linear(n_hidden, n_arc)
        self.lab_dep, self.lab_head = nn.Linear(n_hidden, n_label), nn.Linear(n_hidden, n_label)
        self.arc = Biaffine(n_arc)
        self.label = Biaffine(n_label, n_labels)

    def forward(self, h: Tensor) -> tuple[Tensor, Tensor]:
        arcs = self.arc(torch.relu(self.arc_dep(h)), torch.relu(self.arc_head(h))).squeeze(1)
        labels = self.label(torch.relu(self.lab_dep(h)), torch.relu(self.lab_head(h)))
        return arcs, labels.permute(0, 2, 3, 1)


# run:
arcs, labels = DependencyScorer(64, 12)(torch.randn(3, 15, 64))
(arcs.sum() + labels.sum()).backward()
