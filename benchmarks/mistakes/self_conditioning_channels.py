# crash: the first convolution of a denoiser does not count the estimate that is joined to its input
# evidence: none
import torch
import torch.nn as nn


class Denoiser(nn.Module):
    def __init__(self, channels=3, dim=32, self_condition=True):
        super().__init__()
        self.self_condition = self_condition
        input_channels = channels * (2 if self_condition else 1)  # mistake: input_channels = channels
        self.init_conv = nn.Conv2d(input_channels, dim, 7, padding=3)
        self.block = nn.Sequential(nn.GroupNorm(8, dim), nn.SiLU(), nn.Conv2d(dim, dim, 3, padding=1))
        self.final_conv = nn.Conv2d(dim, channels, 1)

    def forward(self, x, x_self_cond=None):
        if self.self_condition:
            if x_self_cond is None:
                x_self_cond = torch.zeros_like(x)
            x = torch.cat((x_self_cond, x), dim=1)
        h = self.init_conv(x)
        return self.final_conv(h + self.block(h))


# run:
Denoiser()(torch.randn(2, 3, 16, 16)).sum().backward()
