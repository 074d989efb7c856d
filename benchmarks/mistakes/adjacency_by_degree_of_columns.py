# silent: a square adjacency matrix is divided by a vector of row sums, which broadcasts over its columns
# evidence: none
import torch
from torch import nn


class RandomWalkConv(nn.Module):
    """Graph convolution with the transition matrix of a random walk, and its powers."""

    def __init__(self, in_channels, out_channels, hops=2):
        super().__init__()
        self.hops = hops
        self.linears = nn.ModuleList([nn.Linear(in_channels, out_channels) for _ in range(hops + 1)])

    @staticmethod
    def transition(adj):
        """Rows of a directed adjacency matrix (N, N), normalized to probabilities."""
        degree = adj.sum(dim=1).clamp(min=1.0)
        return adj / degree.unsqueeze(1)  # mistake: return adj / degree

    def forward(self, x, adj):
        # x: (N, in_channels), adj: (N, N)
        p = self.transition(adj)
        out = self.linears[0](x)
        for hop in range(1, self.hops + 1):
            x = p @ x
            out = out + self.linears[hop](x)
        return torch.relu(out)


# run:
adj = (torch.rand(25, 25) < 0.2).float()
out = RandomWalkConv(6, 12)(torch.randn(25, 6), adj)
out.sum().backward()
print(out.sum().item())
