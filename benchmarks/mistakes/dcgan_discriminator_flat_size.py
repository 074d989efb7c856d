# crash: the number of halvings of a GAN's discriminator and the size of its last layer come from different settings
# evidence: config
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class GANConfig:
    image_size: int = 64
    channels: int = 3
    latent_dim: int = 100
    base: int = 32


class Generator(nn.Module):
    def __init__(self, cfg: GANConfig):
        super().__init__()
        self.start = cfg.image_size // 8
        self.width = cfg.base * 4
        self.project = nn.Linear(cfg.latent_dim, self.width * self.start**2)
        self.up = nn.Sequential(
            nn.ConvTranspose2d(self.width, cfg.base * 2, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(cfg.base * 2, cfg.base, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(cfg.base, cfg.channels, 4, 2, 1),
            nn.Tanh(),
        )

    def forward(self, z):
        h = self.project(z).view(z.size(0), self.width, self.start, self.start)
        return self.up(h)


class Discriminator(nn.Module):
    def __init__(self, cfg: GANConfig):
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv2d(cfg.channels, cfg.base, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(cfg.base, cfg.base * 2, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(cfg.base * 2, cfg.base * 4, 4, 2, 1),
            nn.LeakyReLU(0.2),
        )
        side = cfg.image_size // 8  # mistake: side = cfg.image_size // 16
        self.score = nn.Linear(cfg.base * 4 * side * side, 1)

    def forward(self, img):
        return self.score(self.down(img).flatten(1)).squeeze(1)


class DCGAN(nn.Module):
    def __init__(self, cfg: GANConfig):
        super().__init__()
        self.cfg = cfg
        self.generator = Generator(cfg)
        self.discriminator = Discriminator(cfg)

    def forward(self, z):
        return self.discriminator(self.generator(z))


# run:
cfg = GANConfig()
DCGAN(cfg)(torch.randn(6, cfg.latent_dim)).mean().backward()
