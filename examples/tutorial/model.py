"""The model of the tutorial: a classifier of short texts, and a program that calls it."""

import torch
import torch.nn.functional as F
from torch import nn


def rms_norm(x, weight, eps=1e-6):
    scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return x * scale * weight


class FeedForward(nn.Module):
    def __init__(self, width=64, hidden=256):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x):
        hidden = F.gelu(self.up(rms_norm(x, self.weight)))
        return x + self.down(hidden)


class Classifier(nn.Module):
    def __init__(self, vocabulary=1000, width=64, classes=10):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.block = FeedForward(width)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens):
        x = self.embedding(tokens)
        x = self.block(x)
        return self.head(x.mean(dim=1))


if __name__ == "__main__":
    classifier = Classifier()
    tokens = torch.randint(0, 1000, (8, 32))
    labels = torch.randint(0, 10, (8,))
    loss = F.cross_entropy(classifier(tokens), labels)
    loss.backward()
