# crash: predictions are turned into arrays for a plot, "Can't call numpy() on Tensor that requires grad"
# evidence: call
import numpy as np
import torch
from torch import nn


class MLP(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(1, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1)
        )

    def forward(self, x):
        return self.net(x)


def fit(x, y, steps=20):
    model = MLP()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def residuals(model, x, y):
    pred = model(x)
    pred = pred.detach().numpy()  # mistake: pred = pred.numpy()
    return np.abs(pred - y.numpy())


def main():
    x = torch.linspace(-3, 3, 100).unsqueeze(1)
    y = torch.sin(2 * x) + 0.1 * torch.randn_like(x)
    model = fit(x, y)
    print(f"largest residual {residuals(model, x, y).max():.3f}")


if __name__ == "__main__":
    main()
