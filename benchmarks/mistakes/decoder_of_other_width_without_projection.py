# crash: encoder and decoder have widths of their own, what goes from one to the other is not projected
# evidence: config
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class MAEConfig:
    patches: int = 64
    patch_width: int = 48
    encoder_width: int = 192
    decoder_width: int = 96
    heads: int = 6


class MaskedAutoencoder(nn.Module):
    def __init__(self, config: MAEConfig):
        super().__init__()
        self.embed = nn.Linear(config.patch_width, config.encoder_width)
        self.encoder = nn.TransformerEncoderLayer(config.encoder_width, config.heads, batch_first=True)
        self.project = nn.Linear(config.encoder_width, config.decoder_width)  # mistake: self.project = nn.Identity()
        self.position = nn.Parameter(torch.zeros(1, config.patches, config.decoder_width))
        self.decoder = nn.TransformerEncoderLayer(config.decoder_width, config.heads, batch_first=True)
        self.out = nn.Linear(config.decoder_width, config.patch_width)

    def forward(self, patches):
        latent = self.encoder(self.embed(patches))
        x = self.project(latent) + self.position
        return self.out(self.decoder(x))


# run:
MaskedAutoencoder(MAEConfig())(torch.randn(2, 64, 48)).sum().backward()
