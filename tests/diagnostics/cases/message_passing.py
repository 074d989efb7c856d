# targets: Passing.propagate, Heads, Heads.message, Plain
import inspect

import torch
import torch.nn as nn


class Passing(nn.Module):
    """Sends a message along each edge and adds them up where they arrive."""

    def __init__(self, node_dim=-2):
        super().__init__()
        self.node_dim = node_dim

    def propagate(self, edge_index, x):
        source, target = edge_index[0], edge_index[1]
        size = x.size(self.node_dim)
        known = {
            "x_j": x.index_select(self.node_dim, source),
            "x_i": x.index_select(self.node_dim, target),
            "index": target,
            "size_i": size,
        }
        wanted = inspect.signature(self.message).parameters
        sent = self.message(**{name: known[name] for name in wanted})
        shape = list(sent.shape)
        shape[self.node_dim] = size
        return sent.new_zeros(shape).index_add(self.node_dim, target, sent)

    def message(self, x_j):
        return x_j


class Heads(Passing):
    def __init__(self, dim, heads=2):
        super().__init__(node_dim=0)
        self.dim, self.heads = dim, heads
        self.project = nn.Linear(dim, heads * dim)
        self.att = nn.Parameter(torch.randn(1, heads, 2 * dim))

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=self.project(x).view(-1, self.heads, self.dim))

    def message(self, x_i, x_j, index, size_i):
        alpha = (torch.cat([x_i, x_j], dim=-1) * self.att).sum(dim=-1)
        alpha = alpha.exp()
        total = alpha.new_zeros(size_i, self.heads).index_add(0, index, alpha)
        return x_j * (alpha / total.index_select(0, index)).unsqueeze(-1)


class Plain(Passing):
    def __init__(self, cin=16, cout=32):
        super().__init__()
        self.lin = nn.Linear(cin, cout)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, self.lin(x)).relu()
