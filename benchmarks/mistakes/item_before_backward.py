# crash: the loss is turned into a number before .backward(), "'float' object has no attribute 'backward'"
# evidence: call
import torch
from torch import nn
from torch.nn import functional as F


class MatrixFactorization(nn.Module):
    def __init__(self, n_users, n_items, dim=16):
        super().__init__()
        self.user, self.item = nn.Embedding(n_users, dim), nn.Embedding(n_items, dim)
        self.user_bias, self.item_bias = nn.Embedding(n_users, 1), nn.Embedding(n_items, 1)
        self.mean = nn.Parameter(torch.tensor(3.5))

    def forward(self, user, item):
        dot = (self.user(user) * self.item(item)).sum(dim=1)
        return dot + self.user_bias(user).squeeze(1) + self.item_bias(item).squeeze(1) + self.mean


def train(model, ratings, epochs=2, batch_size=256):
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    users, items, stars = ratings
    for epoch in range(epochs):
        total = 0.0
        for idx in torch.randperm(len(stars)).split(batch_size):
            optimizer.zero_grad()
            pred = model(users[idx], items[idx])
            loss = F.mse_loss(pred, stars[idx])  # mistake: loss = F.mse_loss(pred, stars[idx]).item()
            loss.backward()
            optimizer.step()
            total += float(loss) * len(idx)
        print(epoch, total / len(stars))


if __name__ == "__main__":
    n = 1000
    data = torch.randint(0, 80, (n,)), torch.randint(0, 120, (n,)), torch.randint(1, 6, (n,)).float()
    train(MatrixFactorization(80, 120), data)
