# crash: a causal mask is as long as the batch, as the batch comes first
# evidence: none
import torch
import torch.nn as nn


class Decoder(nn.Module):
    def __init__(self, vocab_size, d_model=64, nhead=4, max_len=256):
        super().__init__()
        self.tok = nn.Embedding(vocab_size, d_model)
        self.pos = nn.Embedding(max_len, d_model)
        self.attn = nn.MultiheadAttention(d_model, nhead, batch_first=True)
        self.norm = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, vocab_size)

    def forward(self, idx):
        x = self.tok(idx) + self.pos(torch.arange(idx.size(1), device=idx.device))
        length = x.size(1)  # mistake: length = x.size(0)
        mask = torch.triu(torch.ones(length, length, device=x.device), diagonal=1).bool()
        out, _ = self.attn(x, x, x, attn_mask=mask, need_weights=False)
        return self.head(self.norm(x + out))


# run:
Decoder(100)(torch.randint(0, 100, (4, 12))).sum().backward()
