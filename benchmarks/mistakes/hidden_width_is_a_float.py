# crash: the hidden width is a multiple by a fraction, and a layer takes whole numbers
# evidence: config
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Config:
    width: int = 96
    heads: int = 4
    ratio: float = 2.5
    dropout: float = 0.0


class FeedForward(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        hidden = int(config.width * config.ratio)  # mistake: hidden = config.width * config.ratio
        self.up = nn.Linear(config.width, hidden)
        self.down = nn.Linear(hidden, config.width)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x):
        return self.drop(self.down(torch.nn.functional.gelu(self.up(x))))


# run:
FeedForward(Config())(torch.randn(2, 8, 96)).sum().backward()
