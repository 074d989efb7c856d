# crash: a fused projection is chunked into gate and value, each has half of what the down projection expects
# evidence: config
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class ModelConfig:
    hidden_size: int = 64
    intermediate_size: int = 176
    num_hidden_layers: int = 2
    num_attention_heads: int = 4
    vocab_size: int = 300
    rms_norm_eps: float = 1e-6


class MLP(nn.Module):
    def __init__(self, config: ModelConfig):
        super().__init__()
        inner = config.intermediate_size
        size = config.hidden_size
        fused = 2 * inner  # mistake: fused = inner
        self.gate_up = nn.Linear(size, fused, bias=False)
        self.down = nn.Linear(inner, size, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class DecoderLayer(nn.Module):
    def __init__(self, config: ModelConfig):
        super().__init__()
        self.attn = nn.MultiheadAttention(config.hidden_size, config.num_attention_heads, bias=False, batch_first=True)
        self.mlp = MLP(config)
        self.norm1 = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.norm2 = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(self, x, mask):
        h = self.norm1(x)
        x = x + self.attn(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class CausalLM(nn.Module):
    def __init__(self, config: ModelConfig):
        super().__init__()
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList([DecoderLayer(config) for _ in range(config.num_hidden_layers)])
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(self, input_ids):
        x = self.embed(input_ids)
        mask = torch.ones(x.size(1), x.size(1), dtype=torch.bool, device=x.device).triu(1)
        for layer in self.layers:
            x = layer(x, mask)
        return F.linear(self.norm(x), self.embed.weight)


# run:
CausalLM(ModelConfig())(torch.randint(0, 300, (2, 14))).sum().backward()
