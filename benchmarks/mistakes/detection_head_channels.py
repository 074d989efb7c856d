# crash: the channels of a detection head have no place for the objectness
# evidence: none
import torch
import torch.nn as nn


class DetectionHead(nn.Module):
    def __init__(self, in_channels=64, num_anchors=3, num_classes=20):
        super().__init__()
        self.num_anchors, self.num_classes = num_anchors, num_classes
        self.conv = nn.Conv2d(in_channels, in_channels, 3, padding=1)
        self.pred = nn.Conv2d(in_channels, num_anchors * (5 + num_classes), 1)  # mistake: self.pred = nn.Conv2d(in_channels, num_anchors * (4 + num_classes), 1)

    def forward(self, x):
        out = self.pred(torch.relu(self.conv(x)))
        b, _, h, w = out.shape
        out = out.view(b, self.num_anchors, 5 + self.num_classes, h, w).permute(0, 1, 3, 4, 2)
        xy = torch.sigmoid(out[..., :2])
        wh = out[..., 2:4].exp()
        return torch.cat([xy, wh, torch.sigmoid(out[..., 4:])], dim=-1)


# run:
DetectionHead()(torch.randn(2, 64, 13, 13)).sum().backward()
