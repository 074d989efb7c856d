# crash: BatchNorm2d is used after a linear layer, "expected 4D input (got 2D input)"
# evidence: call
import argparse

import torch
from torch import nn


class ImageGenerator(nn.Module):
    def __init__(self, latent_dim, channels=1, start=7, width=128):
        super().__init__()
        self.start, self.width = start, width
        self.project = nn.Sequential(
            nn.Linear(latent_dim, width * start * start),
            nn.BatchNorm1d(width * start * start),  # mistake: nn.BatchNorm2d(width * start * start),
            nn.ReLU(),
        )
        self.up = nn.Sequential(
            nn.Upsample(scale_factor=2),
            nn.Conv2d(width, 64, 3, padding=1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(64, channels, 3, padding=1),
            nn.Tanh(),
        )

    def forward(self, z):
        x = self.project(z).view(-1, self.width, self.start, self.start)
        return self.up(x)


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--latent-dim", type=int, default=62)
    parser.add_argument("--n", type=int, default=8)
    opt = parser.parse_args(argv)
    generator = ImageGenerator(opt.latent_dim)
    z = torch.randn(opt.n, opt.latent_dim)
    images = generator(z)
    print(images.min().item(), images.max().item())


if __name__ == "__main__":
    main()
