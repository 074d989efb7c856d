# crash: a moving average runs over the variables of a series, not over its steps
# evidence: none
import torch
import torch.nn as nn


class MovingAverage(nn.Module):
    def __init__(self, kernel_size=25):
        super().__init__()
        self.kernel_size = kernel_size
        self.avg = nn.AvgPool1d(kernel_size, stride=1)

    def forward(self, x):
        pad = (self.kernel_size - 1) // 2
        x = torch.cat([x[:, :1].repeat(1, pad, 1), x, x[:, -1:].repeat(1, pad, 1)], dim=1)
        return self.avg(x.permute(0, 2, 1)).permute(0, 2, 1)  # mistake: return self.avg(x)


class Decomposition(nn.Module):
    def __init__(self, seq_len=96, pred_len=24):
        super().__init__()
        self.average = MovingAverage()
        self.seasonal = nn.Linear(seq_len, pred_len)
        self.trend = nn.Linear(seq_len, pred_len)

    def forward(self, x):
        trend = self.average(x)
        seasonal = x - trend
        out = self.seasonal(seasonal.transpose(1, 2)) + self.trend(trend.transpose(1, 2))
        return out.transpose(1, 2)


# run:
Decomposition()(torch.randn(8, 96, 7)).sum().backward()
