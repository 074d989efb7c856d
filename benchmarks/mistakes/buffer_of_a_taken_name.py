# crash: a buffer is registered under the name of an attribute that was set before
# evidence: none
import torch
from torch import nn


class Standardize(nn.Module):
    """Standardizes images by the mean and the deviation of the data set."""

    def __init__(self, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), channels=16):
        super().__init__()
        self.values = mean  # mistake: self.mean = mean
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1))
        self.conv = nn.Conv2d(3, channels, 3, padding=1)

    def forward(self, images):
        x = (images - self.mean) / self.std
        return torch.relu(self.conv(x))


# run:
Standardize()(torch.rand(2, 3, 16, 16)).sum().backward()
