# crash: the parameters of a spatial transformer are rows of six, not matrices
# evidence: none
import torch
import torch.nn as nn
import torch.nn.functional as F


class SpatialTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.localization = nn.Sequential(
            nn.Conv2d(1, 8, 7), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(8, 10, 5), nn.MaxPool2d(2), nn.ReLU()
        )
        self.fc_loc = nn.Sequential(nn.Linear(10 * 3 * 3, 32), nn.ReLU(), nn.Linear(32, 6))

    def forward(self, x):
        xs = self.localization(x)
        theta = self.fc_loc(xs.view(-1, 10 * 3 * 3))
        theta = theta.view(-1, 2, 3)  # mistake: theta = theta.contiguous()
        grid = F.affine_grid(theta, x.size(), align_corners=False)
        return F.grid_sample(x, grid, align_corners=False)


# run:
SpatialTransformer()(torch.randn(4, 1, 28, 28)).sum().backward()
