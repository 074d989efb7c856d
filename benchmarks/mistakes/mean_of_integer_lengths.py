# crash: the mean of whole numbers is asked for, which PyTorch does not compute
# evidence: none
import torch
from torch import nn


class LengthRegularizer(nn.Module):
    """Embeds tokens and scales their sum by the mean length of the texts in a batch."""

    def __init__(self, vocabulary=1000, width=64, padding=0):
        super().__init__()
        self.padding = padding
        self.embed = nn.Embedding(vocabulary, width, padding_idx=padding)
        self.out = nn.Linear(width, width)

    def forward(self, tokens):
        there = tokens.ne(self.padding)
        lengths = there.sum(dim=1)
        typical = lengths.float().mean()  # mistake: typical = lengths.mean()
        summed = (self.embed(tokens) * there.unsqueeze(-1)).sum(dim=1)
        return self.out(summed / typical.clamp(min=1))


# run:
LengthRegularizer()(torch.randint(0, 1000, (8, 20))).sum().backward()
