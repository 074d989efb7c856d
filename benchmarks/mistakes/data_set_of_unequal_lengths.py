# crash: targets are shifted by one step and the inputs are not cut, "Size mismatch between tensors"
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


def windows(series, length=12):
    """Windows of a series and the value after each."""
    inputs = series.unfold(0, length, 1)[:-1]  # mistake: inputs = series.unfold(0, length, 1)
    targets = series[length:]
    return TensorDataset(inputs, targets)


def train(model, data):
    optimizer = torch.optim.Adam(model.parameters())
    for x, y in DataLoader(data, batch_size=16):
        loss = F.mse_loss(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


series = torch.sin(torch.linspace(0, 30, 200))
train(Net(12, 32, 1), windows(series))
