# crash: a decoder's recurrent layer takes the embedding alone, and is given the context as well
# evidence: none
import torch
import torch.nn as nn
import torch.nn.functional as F


class AttentionDecoder(nn.Module):
    def __init__(self, vocab_size=500, emb_dim=48, hidden=64):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, emb_dim)
        self.score = nn.Linear(2 * hidden, 1)
        self.rnn = nn.GRU(emb_dim + hidden, hidden, batch_first=True)  # mistake: self.rnn = nn.GRU(emb_dim, hidden, batch_first=True)
        self.out = nn.Linear(hidden, vocab_size)

    def forward(self, token, hidden, encoder_outputs):
        embedded = self.embedding(token).unsqueeze(1)
        query = hidden[-1].unsqueeze(1).expand_as(encoder_outputs)
        weights = F.softmax(self.score(torch.cat([query, encoder_outputs], dim=-1)), dim=1)
        context = (weights * encoder_outputs).sum(dim=1, keepdim=True)
        output, hidden = self.rnn(torch.cat([embedded, context], dim=-1), hidden)
        return self.out(output.squeeze(1)), hidden


# run:
AttentionDecoder()(torch.randint(0, 500, (4,)), torch.randn(1, 4, 64), torch.randn(4, 7, 64))[0].sum().backward()
