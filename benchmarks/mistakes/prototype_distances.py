# crash: the distances of queries to class prototypes are taken with both unsqueezed at the same dimension
# evidence: none
import torch
import torch.nn as nn
import torch.nn.functional as F


def euclidean_dist(x, y):
    # x: N x D
    # y: M x D
    x = x.unsqueeze(1)
    y = y.unsqueeze(0)  # mistake: y = y.unsqueeze(1)
    return torch.pow(x - y, 2).sum(-1)


class PrototypicalNet(nn.Module):
    def __init__(self, encoder, n_way, k_shot):
        super().__init__()
        self.encoder = encoder
        self.n_way = n_way
        self.k_shot = k_shot

    def forward(self, support, query, query_labels):
        # support: (n_way * k_shot, ...), sorted by class
        z_support = self.encoder(support)
        prototypes = z_support.view(self.n_way, self.k_shot, -1).mean(1)
        z_query = self.encoder(query)
        log_p = F.log_softmax(-euclidean_dist(z_query, prototypes), dim=1)
        loss = F.nll_loss(log_p, query_labels)
        acc = (log_p.argmax(1) == query_labels).float().mean()
        return loss, acc


# run:
net = PrototypicalNet(nn.Linear(20, 16), 5, 3)
net(torch.randn(15, 20), torch.randn(40, 20), torch.randint(0, 5, (40,)))[0].backward()
