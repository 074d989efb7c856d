# crash: the states of all layers are flattened for a classifier that is as wide as the state of one
# evidence: none
import torch
import torch.nn as nn


class SentimentRNN(nn.Module):
    def __init__(self, vocabulary, embed=100, hidden=128, layers=2, classes=2):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, embed)
        self.rnn = nn.LSTM(embed, hidden, num_layers=layers, batch_first=True, dropout=0.3)
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(hidden, classes)

    def forward(self, text):
        """text: (batch, length) of token ids"""
        emb = self.drop(self.embed(text))
        out, (h, c) = self.rnn(emb)
        last = h[-1]  # mistake: last = h.transpose(0, 1).reshape(text.size(0), -1)
        return self.fc(self.drop(last))


# run:
SentimentRNN(5000)(torch.randint(0, 5000, (8, 30))).sum().backward()
