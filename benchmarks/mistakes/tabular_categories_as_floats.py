# crash: categorical columns of a float matrix are given to an embedding, "Expected tensor to have scalar types Long"
# evidence: none
import torch
import torch.nn as nn


class TabularModel(nn.Module):
    """Entity embeddings for the categorical columns of a table, batch norm for the continuous ones."""

    def __init__(self, cardinalities, n_cont, layers=(200, 100), out=1, p=0.1):
        super().__init__()
        self.n_cat = len(cardinalities)
        self.embeds = nn.ModuleList([nn.Embedding(c, min(50, (c + 1) // 2)) for c in cardinalities])
        n_emb = sum(e.embedding_dim for e in self.embeds)
        self.bn_cont = nn.BatchNorm1d(n_cont)
        self.drop = nn.Dropout(p)
        blocks, size = [], n_emb + n_cont
        for width in layers:
            blocks += [nn.Linear(size, width), nn.ReLU(), nn.BatchNorm1d(width), nn.Dropout(p)]
            size = width
        self.layers = nn.Sequential(*blocks, nn.Linear(size, out))

    def forward(self, features):
        # features: float matrix as it comes from the data frame, the categorical columns first
        cat = features[:, : self.n_cat].long()  # mistake: cat = features[:, : self.n_cat]
        cont = features[:, self.n_cat :]
        x = torch.cat([e(cat[:, i]) for i, e in enumerate(self.embeds)], dim=1)
        x = torch.cat([self.drop(x), self.bn_cont(cont)], dim=1)
        return self.layers(x)


# run:
model = TabularModel([12, 7, 31], 5)
model(torch.cat([torch.randint(0, 7, (16, 3)).float(), torch.randn(16, 5)], dim=1)).sum().backward()
