# targets: Regression, RegressionOfColumns, RegressionOfOtherWidth
import torch
from torch import nn


class Regression(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 1)

    def forward(self, x, y):
        return (self.head(x).squeeze(-1) - y).pow(2).mean()


class RegressionOfColumns(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 1)

    def forward(self, x, y):
        return (self.head(x) - y).pow(2).mean()
        #       ^^^^^^^^^^^^^^^^ warning[all-pairs]:
        #  f32[32, 1] and f32[32] broadcast to all pairs of their elements: one of them has one dimension too many.


class RegressionOfOtherWidth(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(9, 1)

    def forward(self, x, y):
        return (self.head(x).squeeze(-1) - y).pow(2).mean()
        #       ^^^^^^^^^^^^ error[shape]:
        #  matrices of 32×8 and 9×1 cannot be multiplied: the inner sizes 8 and 9 differ (input: f32[32, 8], weight:
        #  f32[1, 9], bias: f32[1]).
        #  line 32: also reached from __main__


if __name__ == "__main__":
    Regression()(torch.randn(32, 8), torch.randn(32))
    RegressionOfColumns()(torch.randn(32, 8), torch.randn(32))
    RegressionOfOtherWidth()(torch.randn(32, 8), torch.randn(32))
