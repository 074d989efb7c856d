# crash: .backward() of the running sum of losses in every turn, "backward through the graph a second time"
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


def train(model, loader, epochs=2):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)  # mistake: total = total + F.cross_entropy(model(x), y)
            loss.backward()  # mistake: total.backward()
            optimizer.step()
            total += loss.item()  # mistake: pass
        print(epoch, float(total) / len(loader))


if __name__ == "__main__":
    data = TensorDataset(torch.randn(128, 20), torch.randint(0, 10, (128,)))
    train(Net(), DataLoader(data, batch_size=32, shuffle=True))
