# crash: a bag of words is given as a matrix, a row for each text, and with offsets as if it were one long row
# evidence: none
import torch
from torch import nn


class TextClassifier(nn.Module):
    """A linear classifier of the mean of word vectors."""

    def __init__(self, vocabulary: int, width: int, classes: int):
        super().__init__()
        self.bag = nn.EmbeddingBag(vocabulary, width, mode="mean")
        self.fc = nn.Linear(width, classes)
        nn.init.uniform_(self.fc.weight, -0.5, 0.5)
        nn.init.zeros_(self.fc.bias)

    def forward(self, tokens):
        batch, length = tokens.shape
        starts = torch.arange(0, batch * length, length, device=tokens.device)
        words = self.bag(tokens.reshape(-1), starts)  # mistake: words = self.bag(tokens, starts)
        return self.fc(words)


# run:
TextClassifier(1000, 32, 4)(torch.randint(0, 1000, (8, 20))).sum().backward()
