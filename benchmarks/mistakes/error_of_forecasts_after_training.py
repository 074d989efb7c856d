# silent: the error of all forecasts is computed at the end between a column and a vector
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


@torch.no_grad()
def forecast(model, loader):
    predictions, targets = [], []
    for x, y in loader:
        predictions.append(model(x))
        targets.append(y)
    return torch.cat(predictions), torch.cat(targets)


def report(model, loader):
    predictions, targets = forecast(model, loader)
    predictions = predictions.squeeze(1)  # mistake: pass
    rmse = torch.sqrt(torch.mean((predictions - targets) ** 2))  # effect
    mae = torch.mean(torch.abs(predictions - targets))  # effect
    print(f"{rmse.item():.4f} {mae.item():.4f}")


torch.manual_seed(0)
report(Net(n_out=1), DataLoader(TensorDataset(torch.randn(60, 20), torch.randn(60)), batch_size=20))
