# crash: the outputs of encoder and predictor are added step by step, where every pair is meant
# evidence: none
import torch
import torch.nn as nn


class Transducer(nn.Module):
    def __init__(self, n_mels=40, vocab_size=30, hidden=64):
        super().__init__()
        self.encoder = nn.GRU(n_mels, hidden, batch_first=True)
        self.embed = nn.Embedding(vocab_size, hidden)
        self.predictor = nn.GRU(hidden, hidden, batch_first=True)
        self.joint = nn.Linear(hidden, vocab_size)

    def forward(self, mels, labels):
        """mels: (batch, frames, n_mels), labels: (batch, symbols)"""
        enc, _ = self.encoder(mels)
        pred, _ = self.predictor(self.embed(labels))
        joined = enc.unsqueeze(2) + pred.unsqueeze(1)  # mistake: joined = enc + pred
        return self.joint(torch.tanh(joined)).log_softmax(-1)


# run:
Transducer()(torch.randn(2, 50, 40), torch.randint(0, 30, (2, 7))).sum().backward()
