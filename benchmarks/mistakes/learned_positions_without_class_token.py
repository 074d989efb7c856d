# crash: there is one position fewer than tokens, the class token was not counted
# evidence: config
from dataclasses import dataclass

import torch
import torch.nn as nn


@dataclass
class ViTConfig:
    image_size: int = 32
    patch_size: int = 4
    channels: int = 3
    hidden: int = 96
    heads: int = 3
    layers: int = 2
    num_classes: int = 10

    @property
    def num_patches(self) -> int:
        return (self.image_size // self.patch_size) ** 2


class Embeddings(nn.Module):
    def __init__(self, config: ViTConfig):
        super().__init__()
        self.proj = nn.Conv2d(config.channels, config.hidden, config.patch_size, stride=config.patch_size)
        self.cls = nn.Parameter(torch.randn(1, 1, config.hidden) * 0.02)
        n = config.num_patches + 1  # mistake: n = config.num_patches
        self.pos = nn.Parameter(torch.randn(1, n, config.hidden) * 0.02)

    def forward(self, pixels):
        x = self.proj(pixels).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.size(0), -1, -1), x], dim=1)
        return x + self.pos


class ViT(nn.Module):
    def __init__(self, config: ViTConfig):
        super().__init__()
        self.embeddings = Embeddings(config)
        layer = nn.TransformerEncoderLayer(
            config.hidden, config.heads, 4 * config.hidden, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, config.layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(config.hidden)
        self.head = nn.Linear(config.hidden, config.num_classes)

    def forward(self, pixels):
        x = self.encoder(self.embeddings(pixels))
        return self.head(self.norm(x[:, 0]))


# run:
ViT(ViTConfig())(torch.randn(2, 3, 32, 32)).sum().backward()
