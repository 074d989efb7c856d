# crash: losses without dimensions are joined, "zero-dimensional tensor cannot be concatenated"
# evidence: call
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, n_in=20, hidden=64, n_out=10):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_in, hidden), nn.ReLU())
        self.head = nn.Linear(hidden, n_out)

    def forward(self, x):
        return self.head(self.body(x))


def evaluate(model, loader):
    losses = []
    with torch.no_grad():
        for x, y in loader:
            losses.append(F.cross_entropy(model(x), y))
    return torch.stack(losses).mean()  # mistake: return torch.cat(losses).mean()


def train(model, loader):
    optimizer = torch.optim.Adam(model.parameters())
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("loss", evaluate(model, loader).item())


if __name__ == "__main__":
    data = TensorDataset(torch.randn(128, 20), torch.randint(0, 10, (128,)))
    train(Net(), DataLoader(data, batch_size=32))
