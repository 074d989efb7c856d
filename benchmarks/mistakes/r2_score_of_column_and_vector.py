# silent: the residuals of a score are taken between a vector of targets and a column of predictions
# evidence: call
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class SolubilityMLP(nn.Module):
    """Solubility of molecules from their fingerprints."""

    def __init__(self, n_bits=128, hidden=64):
        super().__init__()
        self.inp = nn.Linear(n_bits, hidden)
        self.mid = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        h = torch.relu(self.inp(x))
        return self.out(torch.relu(self.mid(h)) + h)


def r2_score(pred, target):
    pred = pred.view(-1)  # mistake: pass
    residual = ((target - pred) ** 2).sum()  # effect
    total = ((target - target.mean()) ** 2).sum()
    return 1 - residual / total


def fit(model, loader, steps=30):
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(steps):
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y.unsqueeze(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def main():
    torch.manual_seed(0)
    x = (torch.rand(200, 128) > 0.8).float()
    y = x[:, :10].sum(dim=1) - x[:, 10:20].sum(dim=1)
    model = SolubilityMLP()
    fit(model, DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True))
    with torch.no_grad():
        print(f"R2 = {r2_score(model(x), y).item():.3f}")


if __name__ == "__main__":
    main()
