# crash: a GRU is given the two states of an LSTM
# evidence: none
import torch
import torch.nn as nn


class MusicGenerator(nn.Module):
    """Predicts the next note of a melody from those before it."""

    def __init__(self, notes: int, width: int = 64, hidden: int = 128):
        super().__init__()
        self.hidden = hidden
        self.embed = nn.Embedding(notes, width)
        self.rnn = nn.GRU(width, hidden, batch_first=True)
        self.out = nn.Linear(hidden, notes)

    def start(self, batch, device):
        h = torch.zeros(1, batch, self.hidden, device=device)
        return h.contiguous()  # mistake: return h, torch.zeros_like(h)

    def forward(self, notes):
        state = self.start(notes.size(0), notes.device)
        x, state = self.rnn(self.embed(notes), state)
        return self.out(x)


# run:
MusicGenerator(88)(torch.randint(0, 88, (4, 32))).sum().backward()
