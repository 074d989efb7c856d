# crash: the labels count from one, "Target 10 is out of bounds"
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


def train(model, loader):
    optimizer = torch.optim.Adam(model.parameters())
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    labels = torch.arange(1, 11).repeat(10)
    features = torch.randn(100, 20)
    data = TensorDataset(features, labels - 1)  # mistake: data = TensorDataset(features, labels)
    train(Net(), DataLoader(data, batch_size=20))
