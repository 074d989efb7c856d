# silent: a Huber loss between a column of forecasts and a vector of values is taken over all pairs
# evidence: call
import argparse

import torch
import torch.nn.functional as F
from torch import nn


class LoadForecaster(nn.Module):
    """Tomorrow's electricity load from two weeks of history."""

    def __init__(self, n_inputs: int = 5, hidden: int = 48):
        super().__init__()
        self.gru = nn.GRU(n_inputs, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 1)

    def forward(self, history: torch.Tensor) -> torch.Tensor:
        _, h = self.gru(history)
        return self.head(h[-1])


def synthetic(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    history = torch.randn(n, 14, 5).cumsum(dim=1) * 0.1
    return history, history[:, -1, 0] + 0.5 * history[:, -7, 0]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--delta", type=float, default=1.0)
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = LoadForecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(args.steps):
        history, load = synthetic(64)
        forecast = model(history)[:, 0]  # mistake: forecast = model(history)
        loss = F.huber_loss(forecast, load, delta=args.delta)  # effect
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item())


if __name__ == "__main__":
    main()
