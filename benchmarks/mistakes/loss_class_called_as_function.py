# crash: the class of a loss is called with tensors, "Boolean value of Tensor with more than one value is ambiguous"
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


def train(model, loader):
    optimizer = torch.optim.Adam(model.parameters())
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.CrossEntropyLoss()(model(x), y)  # mistake: loss = nn.CrossEntropyLoss(model(x), y)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    data = TensorDataset(torch.randn(128, 20), torch.randint(0, 10, (128,)))
    train(Net(), DataLoader(data, batch_size=32, shuffle=True))
