# crash: a comparison of two embeddings joins three parts of them, the classifier is as wide as two
# evidence: none
import torch
import torch.nn as nn
import torch.nn.functional as F


class SentencePairClassifier(nn.Module):
    """Says whether a sentence follows from another (Siamese encoders, as for natural language inference)."""

    def __init__(self, vocabulary, width, classes):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=0)
        self.encoder = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(3 * width, classes)  # mistake: self.out = nn.Linear(2 * width, classes)

    def encode(self, tokens):
        _, last = self.encoder(self.embedding(tokens))
        return F.normalize(last[-1], dim=-1)

    def forward(self, premise, hypothesis):
        u, v = self.encode(premise), self.encode(hypothesis)
        return self.out(torch.cat([u, v, (u - v).abs()], dim=1))


# run:
net = SentencePairClassifier(1000, 48, 3)
net(torch.randint(0, 1000, (6, 12)), torch.randint(0, 1000, (6, 9))).sum().backward()
