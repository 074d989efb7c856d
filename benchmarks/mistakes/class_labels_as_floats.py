# crash: the labels of a classification are floats, "expected scalar type Long but found Float"
# evidence: call
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class WineDataset(Dataset):
    """Rows of a table; the last column is the class."""

    def __init__(self, table):
        self.x = table[:, :-1].float()
        self.y = table[:, -1].long()  # mistake: self.y = table[:, -1].float()

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class Classifier(nn.Module):
    def __init__(self, n_features, n_classes, hidden=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(n_features, hidden), nn.ReLU(), nn.Linear(hidden, n_classes))

    def forward(self, x):
        return self.net(x)


def run_epoch(model, loader, optimizer):
    total = 0.0
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(x)
    return total / len(loader.dataset)


if __name__ == "__main__":
    table = torch.cat([torch.randn(178, 13), torch.randint(0, 3, (178, 1))], dim=1)
    loader = DataLoader(WineDataset(table), batch_size=32, shuffle=True)
    model = Classifier(n_features=13, n_classes=3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(2):
        print(epoch, run_epoch(model, loader, optimizer))
