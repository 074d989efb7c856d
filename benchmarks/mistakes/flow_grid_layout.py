# crash: the grid that an image is warped with has its coordinates in the place of channels
# evidence: none
import torch
import torch.nn as nn
import torch.nn.functional as F


def warp(image, flow):
    B, C, H, W = image.shape
    ys, xs = torch.meshgrid(torch.linspace(-1, 1, H), torch.linspace(-1, 1, W), indexing="ij")
    grid = torch.stack((xs, ys)).unsqueeze(0) + flow
    grid = grid.permute(0, 2, 3, 1)  # mistake: grid = grid.contiguous()
    return F.grid_sample(image, grid, align_corners=True)


class FlowNet(nn.Module):
    def __init__(self, channels=3):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(2 * channels, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 2, 3, padding=1))

    def forward(self, first, second):
        flow = self.net(torch.cat([first, second], dim=1))
        return (warp(second, flow) - first).abs().mean()


# run:
FlowNet()(torch.randn(2, 3, 16, 24), torch.randn(2, 3, 16, 24)).backward()
