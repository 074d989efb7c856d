# crash: F.interpolate gets a size and a factor, "only one of size or scale_factor should be defined"
# evidence: none
import torch
import torch.nn.functional as F
from torch import nn


class ASPPHead(nn.Module):
    """Segmentation head with atrous convolutions; logits have the size of the image."""

    def __init__(self, in_channels, num_classes, channels=64, rates=(1, 6, 12)):
        super().__init__()
        self.branches = nn.ModuleList(
            nn.Conv2d(in_channels, channels, 3, padding=r, dilation=r, bias=False) for r in rates
        )
        self.project = nn.Sequential(
            nn.Conv2d(channels * len(rates), channels, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU()
        )
        self.classifier = nn.Conv2d(channels, num_classes, 1)

    def forward(self, features, image):
        x = torch.cat([F.relu(branch(features)) for branch in self.branches], dim=1)
        x = self.classifier(self.project(x))
        return F.interpolate(
            x,
            size=image.shape[-2:],
            scale_factor=None,  # mistake: scale_factor=16,
            mode="bilinear",
            align_corners=False,
        )


# run:
ASPPHead(128, 21)(torch.randn(2, 128, 16, 16), torch.randn(2, 3, 256, 256)).sum().backward()
