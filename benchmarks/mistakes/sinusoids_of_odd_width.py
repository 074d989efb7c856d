# crash: the cosines of a positional encoding do not fit an odd width, there is a column too few
# evidence: call
import math

import torch
from torch import nn


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=512):
        super().__init__()
        pe = torch.zeros(max_len, d_model)
        position = torch.arange(0, max_len, dtype=torch.float).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model))
        angle = position * div_term
        pe[:, 0::2] = torch.sin(angle)
        pe[:, 1::2] = torch.cos(angle[:, : d_model // 2])  # mistake: pe[:, 1::2] = torch.cos(angle)
        self.register_buffer("pe", pe)

    def forward(self, x):
        return x + self.pe[: x.size(1)]


class GestureTransformer(nn.Module):
    """Hand poses: 21 joints with three coordinates, so that the width is 63."""

    def __init__(self, n_joints=21, n_classes=14, nhead=7, num_layers=2):
        super().__init__()
        d_model = 3 * n_joints
        self.pos = PositionalEncoding(d_model)
        layer = nn.TransformerEncoderLayer(d_model, nhead, dim_feedforward=128, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers)
        self.fc = nn.Linear(d_model, n_classes)

    def forward(self, poses):
        x = self.encoder(self.pos(poses.flatten(2)))
        return self.fc(x.mean(dim=1))


def test_gesture_transformer():
    model = GestureTransformer()
    out = model(torch.randn(3, 40, 21, 3))
    assert out.shape == (3, 14)


# run:
test_gesture_transformer()
