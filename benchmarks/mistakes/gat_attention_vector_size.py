# crash: the attention vector of a graph attention layer meets two concatenated nodes, so it has twice the size
# evidence: none
import torch
import torch.nn as nn
import torch.nn.functional as F


class GraphAttentionLayer(nn.Module):
    def __init__(self, in_dim, out_dim, dropout=0.1, alpha=0.2, concat=True):
        super().__init__()
        self.dropout = dropout
        self.out_dim = out_dim
        self.concat = concat
        self.W = nn.Parameter(torch.empty(in_dim, out_dim))
        self.a = nn.Parameter(torch.empty(2 * out_dim, 1))  # mistake: self.a = nn.Parameter(torch.empty(out_dim, 1))
        nn.init.xavier_uniform_(self.W, gain=1.414)
        nn.init.xavier_uniform_(self.a, gain=1.414)
        self.leakyrelu = nn.LeakyReLU(alpha)

    def forward(self, h, adj):
        Wh = torch.mm(h, self.W)  # (N, out_dim)
        n = Wh.size(0)
        left = Wh.repeat_interleave(n, dim=0)
        right = Wh.repeat(n, 1)
        pairs = torch.cat([left, right], dim=1).view(n, n, 2 * self.out_dim)
        e = self.leakyrelu(torch.matmul(pairs, self.a).squeeze(2))
        attention = torch.where(adj > 0, e, torch.full_like(e, -9e15))
        attention = F.dropout(F.softmax(attention, dim=1), self.dropout, training=self.training)
        h_prime = torch.matmul(attention, Wh)
        return F.elu(h_prime) if self.concat else h_prime


# run:
GraphAttentionLayer(12, 8)(torch.randn(30, 12), torch.rand(30, 30).round()).sum().backward()
