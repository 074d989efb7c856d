# targets: Text, TextAsChannels, Model, ModelOfOtherWidth, Causal, CausalOverBatch
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


class Text(nn.Module):
    def __init__(self, words, width: int = 128):
        super().__init__()
        self.words, self.conv = nn.Embedding(words, width), nn.Conv1d(width, 32, 3, padding=1)

    def forward(self, ids):
        x = self.words(ids).transpose(1, 2)
        return self.conv(x).amax(-1)


class TextAsChannels(nn.Module):
    def __init__(self, words, width: int = 128):
        super().__init__()
        self.words, self.conv = nn.Embedding(words, width), nn.Conv1d(width, 32, 3, padding=1)

    def forward(self, ids):
        x = self.words(ids)
        return self.conv(x).amax(-1)
        #      ^^^^^^^^^^^^ warning[dimension]:
        #  `self.conv(x)` only works when ids.shape[1] == 128. Is a dimension missing or swapped?


@dataclass
class Settings:
    words: int = 1000
    width: int = 64


class Model(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.words = nn.Embedding(settings.words, settings.width)
        self.head = nn.Linear(settings.width, settings.words)

    def forward(self, ids, targets=None):
        logits = self.head(self.words(ids))
        if targets is None:
            return logits
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


class ModelOfOtherWidth(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.words = nn.Embedding(settings.words, settings.width)
        self.head = nn.Linear(settings.width, settings.words)

    def forward(self, ids, targets=None):
        logits = self.head(self.words(ids))
        if targets is None:
            return logits
        return F.cross_entropy(logits.view(-1, 64), targets.view(-1))
        #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ warning[dimension]:
        #  with targets i64[5, 100]: `F.cross_entropy(logits.view(-1, 64), targets.view(-1))` only works when
        #  ids.shape[0] == 4 for this ids.shape[1], targets.shape[0], targets.shape[1]. Is a dimension missing or
        #  swapped?


class Causal(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.attend = nn.Embedding(100, 64), nn.MultiheadAttention(64, 4, batch_first=True)

    def forward(self, ids):
        x, length = self.words(ids), ids.size(1)
        mask = torch.ones(length, length).triu(1).bool()
        return self.attend(x, x, x, attn_mask=mask)[0]


class CausalOverBatch(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.attend = nn.Embedding(100, 64), nn.MultiheadAttention(64, 4, batch_first=True)

    def forward(self, ids):
        x, length = self.words(ids), ids.size(0)
        mask = torch.ones(length, length).triu(1).bool()
        return self.attend(x, x, x, attn_mask=mask)[0]
        #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ warning[dimension]:
        #  `self.attend(x, x, x, attn_mask=mask)` only works when ids.shape[1] == ids.shape[0]. Is a dimension missing
        #  or swapped?
