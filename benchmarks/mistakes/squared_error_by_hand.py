# silent: a squared error is written out between a column of predictions and a vector of prices, all pairs
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


def train(model, loader, epochs=1):
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(epochs):
        for x, price in loader:
            pred = model(x)
            error = pred.squeeze(-1) - price  # mistake: error = pred - price
            loss = (error**2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"{loss.item():.4f}")


if __name__ == "__main__":
    torch.manual_seed(1)
    data = TensorDataset(torch.randn(96, 20), torch.randn(96))
    train(Net(n_out=1), DataLoader(data, batch_size=32))
