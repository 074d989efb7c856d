# crash: a mask for each example of nn.MultiheadAttention has to be repeated for each head
# evidence: none
import torch
from torch import nn


class SpanEncoderLayer(nn.Module):
    """An encoder layer in which each example says who sees whom, as packed documents need it."""

    def __init__(self, d_model=256, nhead=8, dim_feedforward=1024, dropout=0.1):
        super().__init__()
        self.nhead = nhead
        self.self_attn = nn.MultiheadAttention(d_model, nhead, dropout=dropout, batch_first=True)
        self.linear1 = nn.Linear(d_model, dim_feedforward)
        self.linear2 = nn.Linear(dim_feedforward, d_model)
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, document_ids):
        # x: (B, T, D), document_ids: (B, T)
        blocked = document_ids.unsqueeze(2) != document_ids.unsqueeze(1)
        blocked = blocked.repeat_interleave(self.nhead, dim=0)  # mistake: pass
        attn, _ = self.self_attn(x, x, x, attn_mask=blocked, need_weights=False)
        x = self.norm1(x + self.dropout(attn))
        ff = self.linear2(self.dropout(torch.relu(self.linear1(x))))
        return self.norm2(x + self.dropout(ff))


# run:
ids = torch.tensor([[0] * 6 + [1] * 10, [0] * 12 + [1] * 4, [0] * 16])
SpanEncoderLayer(64, 4)(torch.randn(3, 16, 64), ids).sum().backward()
