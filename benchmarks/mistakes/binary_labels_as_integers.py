# crash: BCELoss wants targets of the dtype of its input, "Found dtype Long but expected Float"
# evidence: call
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class LogisticRegression(nn.Module):
    def __init__(self, n_inputs):
        super().__init__()
        self.linear = nn.Linear(n_inputs, 1)

    def forward(self, x):
        return torch.sigmoid(self.linear(x)).squeeze(-1)


def make_data(n=256, d=8):
    x = torch.randn(n, d)
    w = torch.randn(d)
    y = (x @ w > 0).long()
    return TensorDataset(x, y)


def train(lr=0.1, epochs=2):
    loader = DataLoader(make_data(), batch_size=64, shuffle=True)
    model = LogisticRegression(8)
    criterion = nn.BCELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for epoch in range(epochs):
        for x, y in loader:
            p = model(x)
            loss = criterion(p, y.float())  # mistake: loss = criterion(p, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")
    return model


if __name__ == "__main__":
    train()
