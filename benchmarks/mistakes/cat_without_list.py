# crash: tensors that are to be joined are given one by one, not as a list
# evidence: none
import torch
import torch.nn as nn


class FactorNet(nn.Module):
    def __init__(self, n_users=100, n_items=200, dim=16):
        super().__init__()
        self.users = nn.Embedding(n_users, dim)
        self.items = nn.Embedding(n_items, dim)
        self.mlp = nn.Sequential(nn.Linear(2 * dim, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, user, item):
        u = self.users(user)
        v = self.items(item)
        x = torch.cat([u, v], dim=-1)  # mistake: x = torch.cat(u, v, dim=-1)
        return self.mlp(x).squeeze(-1)


# run:
torch.manual_seed(0)
model = FactorNet()
model(torch.randint(0, 100, (8,)), torch.randint(0, 200, (8,))).sum().backward()
print("done")
