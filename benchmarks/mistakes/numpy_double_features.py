# crash: arrays of NumPy are float64 and the model is float32, "mat1 and mat2 must have the same dtype"
# evidence: call
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class SensorWindows(Dataset):
    """Sliding windows over a multivariate time series."""

    def __init__(self, series: np.ndarray, window: int = 24, horizon: int = 1):
        mean, std = series.mean(axis=0), series.std(axis=0)
        self.series = (series - mean) / std
        self.window, self.horizon = window, horizon

    def __len__(self):
        return len(self.series) - self.window - self.horizon + 1

    def __getitem__(self, i):
        x = self.series[i : i + self.window]
        y = self.series[i + self.window + self.horizon - 1]
        x = torch.from_numpy(x).float()  # mistake: x = torch.from_numpy(x)
        y = torch.from_numpy(y).float()  # mistake: y = torch.from_numpy(y)
        return x, y


class Forecaster(nn.Module):
    def __init__(self, n_features=6, hidden=32):
        super().__init__()
        self.inp = nn.Linear(n_features, hidden)
        self.gru = nn.GRU(hidden, hidden, batch_first=True)
        self.out = nn.Linear(hidden, n_features)

    def forward(self, x):
        h, _ = self.gru(torch.relu(self.inp(x)))
        return self.out(h[:, -1])


def main():
    t = np.arange(300)[:, None] / np.linspace(5.0, 30.0, 6)[None, :]
    loader = DataLoader(SensorWindows(np.sin(t)), batch_size=64, shuffle=True)
    model = Forecaster()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()


if __name__ == "__main__":
    main()
