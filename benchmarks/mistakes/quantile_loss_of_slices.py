# silent: a slice keeps the dimension of the quantile, so that errors of (B, 1) and (B,) become a matrix
# evidence: call
import torch
import torch.nn as nn


class QuantileRegressor(nn.Module):
    def __init__(self, n_features=10, quantiles=(0.1, 0.5, 0.9), hidden=64):
        super().__init__()
        self.quantiles = quantiles
        self.net = nn.Sequential(nn.Linear(n_features, hidden), nn.ELU(), nn.Linear(hidden, len(quantiles)))

    def forward(self, x):
        return self.net(x)


def pinball_loss(preds, target, quantiles):
    """preds: (batch, quantiles), target: (batch,)"""
    total = 0.0
    for i, q in enumerate(quantiles):
        errors = target - preds[:, i]  # mistake: errors = target - preds[:, i : i + 1]
        total = total + torch.max((q - 1) * errors, q * errors).mean()
    return total / len(quantiles)


def test_training_lowers_the_loss():
    torch.manual_seed(0)
    model = QuantileRegressor()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x = torch.randn(128, 10)
    y = x[:, 0] + 0.3 * torch.randn(128)
    losses = []
    for _ in range(10):
        loss = pinball_loss(model(x), y, model.quantiles)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    print(losses[-1])


# run:
test_training_lowers_the_loss()
