# crash: messages of all edges are added up with scatter_add_, whose index has to have the shape of the messages
# evidence: none
import torch
import torch.nn as nn


class EdgeConvLayer(nn.Module):
    """Message passing with edge features on a graph that is given as a list of edges."""

    def __init__(self, node_dim, edge_dim, hidden=64):
        super().__init__()
        self.message = nn.Sequential(nn.Linear(2 * node_dim + edge_dim, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
        self.update = nn.Sequential(nn.Linear(node_dim + hidden, hidden), nn.SiLU(), nn.Linear(hidden, node_dim))
        self.norm = nn.LayerNorm(node_dim)

    def forward(self, x, edge_index, edge_attr):
        # x: (num_nodes, node_dim), edge_index: (2, num_edges), edge_attr: (num_edges, edge_dim)
        src, dst = edge_index
        msg = self.message(torch.cat([x[src], x[dst], edge_attr], dim=-1))
        agg = msg.new_zeros(x.size(0), msg.size(1))
        index = dst.unsqueeze(1).expand_as(msg)  # mistake: index = dst
        agg = agg.scatter_add_(0, index, msg)
        return self.norm(x + self.update(torch.cat([x, agg], dim=-1)))


# run:
edges = torch.randint(0, 20, (2, 70))
EdgeConvLayer(16, 4)(torch.randn(20, 16), edges, torch.randn(70, 4)).sum().backward()
