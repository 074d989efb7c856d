# crash: the positions that are looked up in a table of embeddings are floating point numbers
# evidence: none
import torch
import torch.nn as nn


class TokenAndPosition(nn.Module):
    def __init__(self, vocab_size, max_len, d_model):
        super().__init__()
        self.token = nn.Embedding(vocab_size, d_model)
        self.position = nn.Embedding(max_len, d_model)
        self.norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(0.1)

    def forward(self, ids):
        length = ids.size(1)
        positions = torch.arange(length, device=ids.device)  # mistake: positions = torch.linspace(0, length - 1, length, device=ids.device)
        x = self.token(ids) + self.position(positions)[None]
        return self.dropout(self.norm(x))


# run:
TokenAndPosition(100, 64, 32)(torch.randint(0, 100, (4, 12))).sum().backward()
