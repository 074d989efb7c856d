# crash: the scores are computed in float32 for stability and multiplied to bfloat16 values without going back
# evidence: config
from dataclasses import dataclass

import torch
import torch.nn as nn


@dataclass
class AttentionConfig:
    hidden_size: int = 64
    num_attention_heads: int = 4
    num_hidden_layers: int = 2
    dtype: torch.dtype = torch.bfloat16


class EagerAttention(nn.Module):
    def __init__(self, config: AttentionConfig):
        super().__init__()
        self.num_heads = config.num_attention_heads
        self.head_dim = config.hidden_size // config.num_attention_heads
        size, kw = config.hidden_size, {"bias": False, "dtype": config.dtype}
        self.q_proj, self.k_proj = nn.Linear(size, size, **kw), nn.Linear(size, size, **kw)
        self.v_proj, self.o_proj = nn.Linear(size, size, **kw), nn.Linear(size, size, **kw)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        shape = (*hidden_states.shape[:-1], self.num_heads, self.head_dim)
        q = self.q_proj(hidden_states).view(shape).transpose(1, 2)
        k = self.k_proj(hidden_states).view(shape).transpose(1, 2)
        v = self.v_proj(hidden_states).view(shape).transpose(1, 2)
        scores = torch.matmul(q, k.transpose(-1, -2)) * self.head_dim**-0.5
        probs = torch.softmax(scores, dim=-1, dtype=torch.float32)
        probs = probs.to(v.dtype)  # mistake: pass
        out = torch.matmul(probs, v)
        return self.o_proj(out.transpose(1, 2).flatten(2))


class Encoder(nn.Module):
    def __init__(self, config: AttentionConfig):
        super().__init__()
        self.layers = nn.ModuleList([EagerAttention(config) for _ in range(config.num_hidden_layers)])

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            hidden_states = hidden_states + layer(hidden_states)
        return hidden_states


# run:
Encoder(AttentionConfig())(torch.randn(2, 9, 64, dtype=torch.bfloat16)).sum().backward()
