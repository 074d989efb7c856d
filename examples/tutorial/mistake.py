"""The classifier of the tutorial with a mistake in it, and a program that calls it."""

import torch
import torch.nn.functional as F
from model import FeedForward
from torch import nn


class Classifier(nn.Module):
    def __init__(self, vocabulary=1000, width=64, classes=10):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.block = FeedForward(width)
        self.head = nn.Linear(2 * width, classes)

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
