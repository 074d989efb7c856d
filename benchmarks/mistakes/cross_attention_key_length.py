# crash: keys and values are viewed with the number of queries, which is another number than that of the memory
# evidence: none
import torch
import torch.nn as nn


class DecoderCrossAttention(nn.Module):
    def __init__(self, embed_dim: int, num_heads: int):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.scaling = self.head_dim**-0.5
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, hidden_states: torch.Tensor, encoder_states: torch.Tensor) -> torch.Tensor:
        bsz, tgt_len, embed_dim = hidden_states.size()
        src_len = encoder_states.size(1)  # mistake: src_len = tgt_len
        q = self.q_proj(hidden_states) * self.scaling
        k = self.k_proj(encoder_states)
        v = self.v_proj(encoder_states)
        q = q.view(bsz, tgt_len, self.num_heads, self.head_dim).transpose(1, 2)
        k = k.view(bsz, src_len, self.num_heads, self.head_dim).transpose(1, 2)
        v = v.view(bsz, src_len, self.num_heads, self.head_dim).transpose(1, 2)
        weights = torch.softmax(q @ k.transpose(2, 3), dim=-1)
        out = (weights @ v).transpose(1, 2).reshape(bsz, tgt_len, embed_dim)
        return self.out_proj(out)


# run:
DecoderCrossAttention(64, 4)(torch.randn(2, 9, 64), torch.randn(2, 31, 64)).sum().backward()
