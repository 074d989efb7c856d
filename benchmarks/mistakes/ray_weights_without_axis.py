# crash: the weights of the samples on a ray meet colours without a dimension for the channels
# evidence: none
import torch
import torch.nn as nn


class RadianceField(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, hidden), nn.ReLU(), nn.Linear(hidden, 4))

    def forward(self, points, z_vals):
        """points: (rays, samples, 3), z_vals: (rays, samples)"""
        raw = self.net(points)
        rgb, sigma = torch.sigmoid(raw[..., :3]), torch.relu(raw[..., 3])
        deltas = torch.cat([z_vals[:, 1:] - z_vals[:, :-1], torch.full_like(z_vals[:, :1], 1e10)], dim=-1)
        alpha = 1 - torch.exp(-sigma * deltas)
        ones = torch.ones_like(alpha[:, :1])
        transmittance = torch.cumprod(torch.cat([ones, 1 - alpha + 1e-10], dim=-1), dim=-1)[:, :-1]
        weights = alpha * transmittance
        return (weights[..., None] * rgb).sum(dim=-2)  # mistake: return (weights * rgb).sum(dim=-2)


# run:
RadianceField()(torch.randn(16, 32, 3), torch.rand(16, 32).sort().values).sum().backward()
