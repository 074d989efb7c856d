# crash: the normalized shape of a LayerNorm has the context length in it, inputs of another length do not fit
# evidence: config
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class EncoderConfig:
    n_mels: int = 80
    n_ctx: int = 1500
    n_state: int = 64
    n_head: int = 4
    n_layer: int = 2


class ResidualAttentionBlock(nn.Module):
    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.attn = nn.MultiheadAttention(config.n_state, config.n_head, batch_first=True)
        self.attn_ln = nn.LayerNorm(config.n_state)
        self.mlp = nn.Sequential(
            nn.Linear(config.n_state, 4 * config.n_state), nn.GELU(), nn.Linear(4 * config.n_state, config.n_state)
        )
        self.mlp_ln = nn.LayerNorm(config.n_state)

    def forward(self, x):
        h = self.attn_ln(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.mlp_ln(x))


class AudioEncoder(nn.Module):
    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.conv1 = nn.Conv1d(config.n_mels, config.n_state, 3, padding=1)
        self.conv2 = nn.Conv1d(config.n_state, config.n_state, 3, stride=2, padding=1)
        self.positions = nn.Parameter(torch.zeros(config.n_ctx, config.n_state))
        self.blocks = nn.ModuleList([ResidualAttentionBlock(config) for _ in range(config.n_layer)])
        shape = [config.n_state]  # mistake: shape = [config.n_ctx, config.n_state]
        self.ln_post = nn.LayerNorm(shape)

    def forward(self, mel):
        # mel: (batch, n_mels, frames), at most 2 * n_ctx frames
        x = nn.functional.gelu(self.conv1(mel))
        x = nn.functional.gelu(self.conv2(x)).transpose(1, 2)
        x = x + self.positions[: x.size(1)]
        for block in self.blocks:
            x = block(x)
        return self.ln_post(x)


# run:
AudioEncoder(EncoderConfig())(torch.randn(2, 80, 400)).sum().backward()
