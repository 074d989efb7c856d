# crash: an average of the weights is updated outside of no_grad, "a leaf Variable ... used in an in-place operation"
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


def update_average(average, model, decay=0.999):
    with torch.no_grad():  # mistake: with torch.enable_grad():
        for a, p in zip(average.parameters(), model.parameters(), strict=True):
            a.mul_(decay).add_(p, alpha=1 - decay)


def train(model, average, loader):
    average.load_state_dict(model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        update_average(average, model)


if __name__ == "__main__":
    data = TensorDataset(torch.randn(128, 20), torch.randint(0, 10, (128,)))
    train(Net(), Net(), DataLoader(data, batch_size=32))
