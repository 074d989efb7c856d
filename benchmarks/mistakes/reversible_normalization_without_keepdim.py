# crash: the statistics of a series have lost the dimension for time
# evidence: none
import torch
import torch.nn as nn


class Forecaster(nn.Module):
    """Normalize each series, forecast, and undo it."""

    def __init__(self, seq_len=96, pred_len=24):
        super().__init__()
        self.linear = nn.Linear(seq_len, pred_len)

    def forward(self, x):
        B, T, C = x.shape
        mean = x.mean(dim=1, keepdim=True)  # mistake: mean = x.mean(dim=1)
        x = x - mean
        std = torch.sqrt(x.var(dim=1, keepdim=True, unbiased=False) + 1e-5)
        x = x / std
        y = self.linear(x.permute(0, 2, 1)).permute(0, 2, 1)
        return y * std + mean


# run:
torch.manual_seed(0)
Forecaster()(torch.randn(8, 96, 7)).sum().backward()
