# crash: torch.mm does not take batches of matrices, "self must be a matrix"
# evidence: none
import torch
from torch import Tensor, nn


class DenseSAGE(nn.Module):
    """Mean aggregation on dense batches of graphs: x is (B, N, F), adj is (B, N, N)."""

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.lin_rel = nn.Linear(in_channels, out_channels, bias=False)
        self.lin_root = nn.Linear(in_channels, out_channels)

    def forward(self, x: Tensor, adj: Tensor, mask: Tensor | None = None) -> Tensor:
        out = torch.bmm(adj, x)  # mistake: out = torch.mm(adj, x)
        out = out / adj.sum(dim=-1, keepdim=True).clamp(min=1)
        out = self.lin_rel(out) + self.lin_root(x)
        if mask is not None:
            out = out * mask.unsqueeze(-1).to(out.dtype)
        return out


class GraphClassifier(nn.Module):
    def __init__(self, in_channels: int, hidden: int, num_classes: int):
        super().__init__()
        self.conv1 = DenseSAGE(in_channels, hidden)
        self.conv2 = DenseSAGE(hidden, hidden)
        self.readout = nn.Linear(hidden, num_classes)

    def forward(self, x: Tensor, adj: Tensor, mask: Tensor | None = None) -> Tensor:
        x = torch.relu(self.conv1(x, adj, mask))
        x = torch.relu(self.conv2(x, adj, mask))
        return self.readout(x.amax(dim=1))


# run:
GraphClassifier(9, 32, 2)(torch.randn(4, 20, 9), torch.rand(4, 20, 20).round()).sum().backward()
