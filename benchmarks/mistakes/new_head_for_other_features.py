# crash: the last layer of a model is replaced for another task, with the wrong number of features
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


def finetune(model, loader, n_classes):
    for parameter in model.body.parameters():
        parameter.requires_grad = False
    old = model.head
    model.head = nn.Linear(old.in_features, n_classes)  # mistake: model.head = nn.Linear(old.out_features, n_classes)
    optimizer = torch.optim.Adam(model.head.parameters())
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    data = TensorDataset(torch.randn(64, 20), torch.randint(0, 3, (64,)))
    finetune(Net(), DataLoader(data, batch_size=16), n_classes=3)
