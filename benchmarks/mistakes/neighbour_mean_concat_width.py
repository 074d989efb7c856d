# crash: a graph layer joins a node with the mean of its neighbours and takes the width of one
# evidence: none
import torch
import torch.nn as nn


class SAGELayer(nn.Module):
    def __init__(self, in_dim, out_dim):
        super().__init__()
        self.linear = nn.Linear(2 * in_dim, out_dim)  # mistake: self.linear = nn.Linear(in_dim, out_dim)

    def forward(self, x, adj):
        degree = adj.sum(dim=1, keepdim=True).clamp(min=1)
        neighbours = adj @ x / degree
        return torch.relu(self.linear(torch.cat([x, neighbours], dim=-1)))


class GraphSAGE(nn.Module):
    def __init__(self, in_dim=16, hidden=32, num_classes=4):
        super().__init__()
        self.first = SAGELayer(in_dim, hidden)
        self.second = SAGELayer(hidden, num_classes)

    def forward(self, x, adj):
        return self.second(self.first(x, adj), adj)


# run:
GraphSAGE()(torch.randn(10, 16), torch.ones(10, 10)).sum().backward()
