# crash: the output of a bidirectional LSTM has twice the hidden size, the classifier expects it once
# evidence: none
import torch
import torch.nn as nn


class BiLSTMClassifier(nn.Module):
    def __init__(self, vocab_size, embed_dim, hidden_dim, num_classes, num_layers=2, dropout=0.3):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim, padding_idx=0)
        self.lstm = nn.LSTM(
            embed_dim,
            hidden_dim,
            num_layers=num_layers,
            batch_first=True,
            bidirectional=True,
            dropout=dropout,
        )
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(hidden_dim * 2, num_classes)  # mistake: self.fc = nn.Linear(hidden_dim, num_classes)

    def forward(self, text):
        embedded = self.dropout(self.embedding(text))
        output, _ = self.lstm(embedded)
        pooled, _ = output.max(dim=1)
        return self.fc(self.dropout(pooled))


# run:
BiLSTMClassifier(500, 32, 48, 3)(torch.randint(0, 500, (8, 30))).sum().backward()
