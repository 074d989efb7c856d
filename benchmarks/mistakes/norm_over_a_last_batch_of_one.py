# crash: batch normalization meets a last batch of one example, "Expected more than 1 value per channel when training"
# evidence: call
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class Classifier(nn.Module):
    def __init__(self, n_in=20, hidden=64, n_out=10):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(n_in, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, n_out))

    def forward(self, x):
        return self.net(x)


def train(model, data):
    size = 32
    loader = DataLoader(data, size, drop_last=True)  # mistake: loader = DataLoader(data, size)
    optimizer = torch.optim.Adam(model.parameters())
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    train(Classifier(), TensorDataset(torch.randn(129, 20), torch.randint(0, 10, (129,))))
