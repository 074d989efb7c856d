# crash: a recurrent layer in both directions is given a state for one
# evidence: none
import torch
import torch.nn as nn


class SpeechEncoder(nn.Module):
    """Two layers of LSTM in both directions over the frames of a recording."""

    def __init__(self, bands=40, hidden=128, layers=2):
        super().__init__()
        self.hidden, self.layers = hidden, layers
        self.lstm = nn.LSTM(bands, hidden, layers, batch_first=True, bidirectional=True)
        self.proj = nn.Linear(2 * hidden, hidden)

    def forward(self, frames):
        b = frames.size(0)
        states = 2 * self.layers  # mistake: states = self.layers
        h0 = frames.new_zeros(states, b, self.hidden)
        c0 = frames.new_zeros(states, b, self.hidden)
        out, _ = self.lstm(frames, (h0, c0))
        return torch.relu(self.proj(out))


# run:
SpeechEncoder()(torch.randn(3, 70, 40)).sum().backward()
