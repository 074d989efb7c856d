# crash: the rows of an image without the first are compared with its columns without the last
# evidence: none
import torch
from torch import nn


class TotalVariation(nn.Module):
    """Punishes differences of neighbouring pixels (style transfer, denoising)."""

    def __init__(self, weight: float = 1e-4):
        super().__init__()
        self.weight = weight

    def forward(self, image):
        """image: (batch, channels, height, width)"""
        vertical = image[:, :, 1:, :] - image[:, :, :-1, :]  # mistake: vertical = image[:, :, 1:, :] - image[:, :, :, :-1]
        horizontal = image[:, :, :, 1:] - image[:, :, :, :-1]
        total = vertical.abs().sum() + horizontal.abs().sum()
        return self.weight * total / image.size(0)


# run:
TotalVariation()(torch.rand(2, 3, 32, 48, requires_grad=True)).backward()
