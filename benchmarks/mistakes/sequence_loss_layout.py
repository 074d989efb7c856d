# crash: the cross entropy wants the classes in the second dimension, logits of sequences have them in the last
# evidence: none
import torch
from torch import nn


class POSTagger(nn.Module):
    def __init__(self, vocab_size, tagset_size, embedding_dim=64, hidden_dim=128):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embedding_dim, padding_idx=0)
        self.lstm = nn.LSTM(embedding_dim, hidden_dim // 2, num_layers=1, bidirectional=True, batch_first=True)
        self.hidden2tag = nn.Linear(hidden_dim, tagset_size)
        self.criterion = nn.CrossEntropyLoss(ignore_index=-100)

    def logits(self, sentences):
        embeds = self.embedding(sentences)
        lstm_out, _ = self.lstm(embeds)
        return self.hidden2tag(lstm_out)

    def forward(self, sentences, tags=None):
        # sentences: (batch, seq_len), tags: (batch, seq_len)
        logits = self.logits(sentences)
        if tags is None:
            return logits.argmax(dim=-1)
        return self.criterion(logits.transpose(1, 2), tags)  # mistake: return self.criterion(logits, tags)


# run:
words = torch.randint(1, 400, (8, 21))
POSTagger(400, 17)(words, torch.randint(0, 17, (8, 21))).backward()
