# crash: the relative position bias of window attention comes as (N, N, heads) and has to be (heads, N, N)
# evidence: config
from dataclasses import dataclass

import torch
import torch.nn as nn


@dataclass
class SwinConfig:
    dim: int = 96
    num_heads: int = 3
    window_size: int = 7
    depth: int = 2


class WindowAttention(nn.Module):
    def __init__(self, dim, window_size, num_heads):
        super().__init__()
        self.window_size, self.num_heads = window_size, num_heads
        self.scale = (dim // num_heads) ** -0.5
        self.relative_position_bias_table = nn.Parameter(torch.zeros((2 * window_size - 1) ** 2, num_heads))
        coords = torch.stack(torch.meshgrid(torch.arange(window_size), torch.arange(window_size), indexing="ij"))
        coords = coords.flatten(1)
        relative = (coords[:, :, None] - coords[:, None, :]).permute(1, 2, 0) + window_size - 1
        self.register_buffer("relative_position_index", relative[..., 0] * (2 * window_size - 1) + relative[..., 1])
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B_, N, C = x.shape
        qkv = self.qkv(x).reshape(B_, N, 3, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0] * self.scale, qkv[1], qkv[2]
        attn = q @ k.transpose(-2, -1)
        bias = self.relative_position_bias_table[self.relative_position_index.view(-1)].view(N, N, -1)
        attn = attn + bias.permute(2, 0, 1).unsqueeze(0)  # mistake: attn = attn + bias.unsqueeze(0)
        x = attn.softmax(dim=-1) @ v
        return self.proj(x.transpose(1, 2).reshape(B_, N, C))


class SwinStage(nn.Module):
    def __init__(self, config: SwinConfig):
        super().__init__()
        self.ws = config.window_size
        self.blocks = nn.ModuleList(
            WindowAttention(config.dim, config.window_size, config.num_heads) for _ in range(config.depth)
        )

    def forward(self, x):
        B, H, W, C = x.shape
        x = x.view(B, H // self.ws, self.ws, W // self.ws, self.ws, C).permute(0, 1, 3, 2, 4, 5)
        x = x.reshape(-1, self.ws * self.ws, C)
        for block in self.blocks:
            x = x + block(x)
        x = x.view(B, H // self.ws, W // self.ws, self.ws, self.ws, C).permute(0, 1, 3, 2, 4, 5)
        return x.reshape(B, H, W, C)


# run:
SwinStage(SwinConfig())(torch.randn(2, 14, 14, 96)).sum().backward()
