# silent: a mean that keeps its dimension is compared with one number for each example
# evidence: call
import torch
from torch import nn


class Forecast(nn.Module):
    def __init__(self, steps=24, hidden=32):
        super().__init__()
        self.rnn = nn.GRU(1, hidden, batch_first=True)
        self.out = nn.Linear(hidden, steps)

    def forward(self, series):
        _, state = self.rnn(series.unsqueeze(-1))
        return self.out(state[-1])


def relative_error(forecast, typical):
    """How far the mean of each forecast is from what is typical of its series."""
    mean = forecast.mean(dim=1)  # mistake: mean = forecast.mean(dim=1, keepdim=True)
    return ((mean - typical).abs() / typical).mean()  # effect


if __name__ == "__main__":
    torch.manual_seed(0)
    series = torch.rand(16, 96) + torch.rand(16, 1) + 0.1
    error = relative_error(Forecast()(series), series.mean(dim=1))
    print(f"{error.item():.4f}")
