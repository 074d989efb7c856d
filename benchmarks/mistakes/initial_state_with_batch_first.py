# crash: batch_first does not change the layout of the states, they are made with the length in place of the batch size
# evidence: none
import torch
import torch.nn as nn


class ActivityLSTM(nn.Module):
    """Classifies windows of accelerometer data (batch, time, channels)."""

    def __init__(self, n_channels: int, n_classes: int, hidden: int = 100, layers: int = 2):
        super().__init__()
        self.hidden, self.layers = hidden, layers
        self.lstm = nn.LSTM(n_channels, hidden, layers, batch_first=True)
        self.dropout = nn.Dropout(0.5)
        self.fc = nn.Linear(hidden, n_classes)

    def init_state(self, x):
        batch = x.size(0)  # mistake: batch = x.size(1)
        h0 = torch.zeros(self.layers, batch, self.hidden, device=x.device)
        c0 = torch.zeros(self.layers, batch, self.hidden, device=x.device)
        return h0, c0

    def forward(self, x):
        out, _ = self.lstm(x, self.init_state(x))
        return self.fc(self.dropout(out[:, -1, :]))


# run:
ActivityLSTM(9, 6)(torch.randn(32, 128, 9)).sum().backward()
