# crash: mean and standard deviation of the channels are subtracted from images without the spatial dimensions
# evidence: none
import torch
from torch import Tensor, nn


class Normalize(nn.Module):
    def __init__(self, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)):
        super().__init__()
        mean = torch.tensor(mean).view(-1, 1, 1)  # mistake: mean = torch.tensor(mean)
        std = torch.tensor(std).view(-1, 1, 1)  # mistake: std = torch.tensor(std)
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def forward(self, images: Tensor) -> Tensor:
        return (images - self.mean) / self.std


class PerceptualEncoder(nn.Module):
    """Features of images in [0, 1], for a perceptual loss."""

    def __init__(self, width: int = 32):
        super().__init__()
        self.normalize = Normalize()
        self.stages = nn.ModuleList(
            [
                nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.ReLU()),
                nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU()),
                nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(2 * width, 4 * width, 3, padding=1), nn.ReLU()),
            ]
        )

    def forward(self, images: Tensor) -> list[Tensor]:
        x = self.normalize(images)
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        return features


# run:
sum(f.mean() for f in PerceptualEncoder()(torch.rand(2, 3, 64, 64))).backward()
