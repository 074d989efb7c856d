"""Two mistakes that usually show up only once the training job has started."""

import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self, channels=16, classes=10):
        super().__init__()
        self.conv = nn.Conv2d(3, channels, 3, stride=2, padding=1)
        self.pool = nn.AdaptiveAvgPool2d(4)
        self.hidden = nn.Linear(channels * 4, 128)
        self.head = nn.Linear(128, classes)

    def forward(self, images):
        features = self.pool(torch.relu(self.conv(images)))
        hidden = torch.relu(self.hidden(features.flatten(1)))
        return self.head(hidden)


class Embedder(nn.Module):
    def __init__(self, vocabulary=1000, width=64):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.project = nn.Linear(width, width, dtype=torch.bfloat16)

    def forward(self, tokens):
        embedded = self.embedding(tokens)
        return self.project(embedded)
