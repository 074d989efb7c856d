# crash: the adjacency matrix stands on the wrong side of the features in a graph convolution
# evidence: call
import torch
import torch.nn as nn
import torch.nn.functional as F


class GraphConvolution(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_features, out_features))
        self.bias = nn.Parameter(torch.zeros(out_features))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x, adj):
        support = x @ self.weight
        return adj @ support + self.bias  # mistake: return support @ adj + self.bias


class GCN(nn.Module):
    def __init__(self, nfeat, nhid, nclass, dropout=0.5):
        super().__init__()
        self.gc1 = GraphConvolution(nfeat, nhid)
        self.gc2 = GraphConvolution(nhid, nclass)
        self.dropout = dropout

    def forward(self, x, adj):
        x = F.relu(self.gc1(x, adj))
        x = F.dropout(x, self.dropout, training=self.training)
        return F.log_softmax(self.gc2(x, adj), dim=1)


def normalize(adj):
    adj = adj + torch.eye(adj.size(0))
    d = adj.sum(1).pow(-0.5)
    return d[:, None] * adj * d[None, :]


n_nodes = 270
features = torch.rand(n_nodes, 143)
edges = (torch.rand(n_nodes, n_nodes) < 0.02).float()
adj = normalize(((edges + edges.t()) > 0).float())
labels = torch.randint(0, 7, (n_nodes,))

model = GCN(nfeat=143, nhid=16, nclass=7)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for _ in range(2):
    optimizer.zero_grad()
    loss = F.nll_loss(model(features, adj), labels)
    loss.backward()
    optimizer.step()
