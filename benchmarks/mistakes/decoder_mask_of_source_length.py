# crash: the causal mask of a decoder is as long as the source
# evidence: none
import torch
import torch.nn as nn


class Translator(nn.Module):
    def __init__(self, src_vocab=100, tgt_vocab=120, d_model=32):
        super().__init__()
        self.src_embed = nn.Embedding(src_vocab, d_model)
        self.tgt_embed = nn.Embedding(tgt_vocab, d_model)
        self.transformer = nn.Transformer(d_model, 4, 1, 1, 64, batch_first=True)
        self.generator = nn.Linear(d_model, tgt_vocab)

    def forward(self, src, tgt):
        length = tgt.size(1)  # mistake: length = src.size(1)
        mask = torch.triu(torch.full((length, length), float("-inf")), diagonal=1)
        out = self.transformer(self.src_embed(src), self.tgt_embed(tgt), tgt_mask=mask)
        return self.generator(out)


# run:
Translator()(torch.randint(0, 100, (2, 12)), torch.randint(0, 120, (2, 9))).sum().backward()
