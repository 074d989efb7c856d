# crash: the weights leave one class out, "weight tensor should be defined either for all 10 classes ..."
# evidence: call
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, n_in=20, hidden=64, n_out=10):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_in, hidden), nn.ReLU())
        self.head = nn.Linear(hidden, n_out)

    def forward(self, x):
        return self.head(self.body(x))


def train(model, loader, counts):
    weight = counts.sum() / counts  # mistake: weight = counts[1:].sum() / counts[1:]
    criterion = nn.CrossEntropyLoss(weight=weight)
    optimizer = torch.optim.Adam(model.parameters())
    for x, y in loader:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    data = TensorDataset(torch.randn(128, 20), torch.randint(0, 10, (128,)))
    train(Net(), DataLoader(data, batch_size=32), counts=torch.arange(10, 20).float())
