# crash: the slopes of the linear biases, one for each head, are multiplied to the distances without two more axes
# evidence: config
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class AlibiConfig:
    width: int = 96
    heads: int = 6
    layers: int = 2
    vocab: int = 300


def get_slopes(n_heads):
    start = 2 ** (-8 / n_heads)
    return torch.tensor([start ** (i + 1) for i in range(n_heads)])


class AlibiAttention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.heads = cfg.heads
        self.to_qkv = nn.Linear(cfg.width, 3 * cfg.width, bias=False)
        self.to_out = nn.Linear(cfg.width, cfg.width, bias=False)
        slopes = get_slopes(cfg.heads)
        self.register_buffer("slopes", slopes.view(-1, 1, 1))  # mistake: self.register_buffer("slopes", slopes)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.to_qkv(x).chunk(3, dim=-1)
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in (q, k, v))
        pos = torch.arange(t, device=x.device)
        distance = (pos[None, :] - pos[:, None]).clamp(max=0)
        scores = q @ k.transpose(-1, -2) * k.size(-1) ** -0.5
        scores = scores + self.slopes * distance
        scores = scores.masked_fill(pos[None, :] > pos[:, None], float("-inf"))
        return self.to_out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class AlibiLM(nn.Module):
    def __init__(self, cfg: AlibiConfig):
        super().__init__()
        self.embed = nn.Embedding(cfg.vocab, cfg.width)
        self.attn = nn.ModuleList([AlibiAttention(cfg) for _ in range(cfg.layers)])
        self.head = nn.Linear(cfg.width, cfg.vocab)

    def forward(self, tokens):
        x = self.embed(tokens)
        for attn in self.attn:
            x = x + attn(x)
        return self.head(x)


# run:
AlibiLM(AlibiConfig())(torch.randint(0, 300, (2, 25))).sum().backward()
