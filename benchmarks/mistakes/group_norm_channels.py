# crash: 32 groups do not divide the channels of a small model, "num_channels must be divisible by num_groups"
# evidence: call
import argparse

import torch
import torch.nn as nn


class ResBlock(nn.Module):
    def __init__(self, cin, cout, groups=32):
        super().__init__()
        self.block1 = nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.GroupNorm(groups, cout), nn.SiLU())
        self.block2 = nn.Sequential(nn.Conv2d(cout, cout, 3, padding=1), nn.GroupNorm(groups, cout), nn.SiLU())
        self.skip = nn.Conv2d(cin, cout, 1)

    def forward(self, x):
        return self.block2(self.block1(x)) + self.skip(x)


class ImageEncoder(nn.Module):
    """Images to the mean and the variance of a latent image, eight times smaller."""

    def __init__(self, base, groups, z_channels=4, mults=(1, 2, 3)):
        super().__init__()
        layers, channels = [nn.Conv2d(3, base, 3, padding=1)], base
        for mult in mults:
            layers += [ResBlock(channels, base * mult, groups), nn.AvgPool2d(2)]
            channels = base * mult
        self.net = nn.Sequential(*layers, nn.Conv2d(channels, 2 * z_channels, 3, padding=1))

    def forward(self, x):
        mean, log_var = self.net(x).chunk(2, dim=1)
        return mean + torch.randn_like(mean) * (0.5 * log_var).exp()


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--base-channels",
        type=int,
        default=64,  # mistake: default=48,
    )
    parser.add_argument("--groups", type=int, default=32)
    return parser.parse_args()


if __name__ == "__main__":
    args = get_args()
    encoder = ImageEncoder(args.base_channels, args.groups)
    z = encoder(torch.rand(2, 3, 64, 64))
    print(z.shape)
