# crash: nodes are added up along the axis of the features in place of that of the nodes
# evidence: none
import torch
from torch import nn


class GraphReadout(nn.Module):
    """Adds up the nodes of each graph of a batch; `batch` says to which graph a node belongs."""

    def __init__(self, width: int, classes: int):
        super().__init__()
        self.node = nn.Sequential(nn.Linear(width, width), nn.ReLU())
        self.graph = nn.Linear(width, classes)

    def forward(self, nodes: torch.Tensor, batch: torch.Tensor, graphs: int):
        h = self.node(nodes)
        total = h.new_zeros(graphs, h.size(1))
        total = total.index_add(0, batch, h)  # mistake: total = total.index_add(1, batch, h)
        return self.graph(total)


# run:
GraphReadout(16, 3)(torch.randn(30, 16), torch.randint(0, 4, (30,)), 4).sum().backward()
