# silent: the biases of users and items are columns and the product of their factors is none, so all pairs are added
# evidence: none
import torch
import torch.nn as nn


class MatrixFactorization(nn.Module):
    def __init__(self, n_users=100, n_items=50, k=8):
        super().__init__()
        self.user_factors = nn.Embedding(n_users, k)
        self.item_factors = nn.Embedding(n_items, k)
        self.user_bias = nn.Embedding(n_users, 1)
        self.item_bias = nn.Embedding(n_items, 1)
        self.mu = nn.Parameter(torch.zeros(1))

    def forward(self, user, item):
        dot = (self.user_factors(user) * self.item_factors(item)).sum(dim=1)
        bias = self.user_bias(user) + self.item_bias(item)
        return dot + bias.squeeze(1) + self.mu  # mistake: return dot + bias + self.mu


# run:
torch.manual_seed(0)
model = MatrixFactorization()
rating = model(torch.randint(0, 100, (16,)), torch.randint(0, 50, (16,)))
print(rating.shape)
