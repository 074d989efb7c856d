# crash: nn.LSTM returns its output and its state, and the pair is given to the next layer
# evidence: none
import torch
from torch import nn


class StockPredictor(nn.Module):
    """Predicts the next closing price from a window of days."""

    def __init__(self, input_size=5, hidden_size=64, num_layers=2, output_size=1):
        super().__init__()
        self.hidden_size = hidden_size
        self.norm = nn.LayerNorm(input_size)
        self.lstm = nn.LSTM(input_size, hidden_size, num_layers, batch_first=True, dropout=0.2)
        self.head = nn.Sequential(
            nn.Linear(hidden_size, hidden_size // 2),
            nn.ReLU(),
            nn.Linear(hidden_size // 2, output_size),
        )

    def forward(self, x):
        """x: (batch, days, features)"""
        out, _ = self.lstm(self.norm(x))  # mistake: out = self.lstm(self.norm(x))
        out = self.head(out)
        return out[:, -1]


# run:
StockPredictor()(torch.randn(16, 30, 5)).sum().backward()
