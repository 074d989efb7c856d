# crash: the layer after the skip connection of a coordinate network does not count the encoded points
# evidence: none
import torch
import torch.nn as nn


class CoordinateNet(nn.Module):
    def __init__(self, num_freqs=6, width=64, depth=4, skip=2):
        super().__init__()
        self.num_freqs, self.skip = num_freqs, skip
        in_dim = 3 + 3 * 2 * num_freqs
        widths = [in_dim] + [width] * (depth - 1)
        widths[skip] += in_dim  # mistake: widths[0] = in_dim
        self.layers = nn.ModuleList([nn.Linear(w, width) for w in widths])
        self.out = nn.Linear(width, 4)

    def encode(self, x):
        freqs = 2.0 ** torch.arange(self.num_freqs)
        angles = (x[..., None, :] * freqs[:, None]).flatten(-2)
        return torch.cat([x, angles.sin(), angles.cos()], dim=-1)

    def forward(self, points):
        encoded = h = self.encode(points)
        for i, layer in enumerate(self.layers):
            if i == self.skip:
                h = torch.cat([h, encoded], dim=-1)
            h = torch.relu(layer(h))
        return self.out(h)


# run:
CoordinateNet()(torch.randn(128, 3)).sum().backward()
