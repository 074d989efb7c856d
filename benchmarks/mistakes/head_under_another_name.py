# crash: the heads of a detector are kept in a dictionary of modules, one is asked for by another name
# evidence: none
import torch
from torch import nn


class MultiTaskHead(nn.Module):
    """Predicts classes, boxes and centerness from one feature map."""

    def __init__(self, channels, classes):
        super().__init__()
        self.shared = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU())
        self.heads = nn.ModuleDict(
            {
                "classes": nn.Conv2d(channels, classes, 1),
                "boxes": nn.Conv2d(channels, 4, 1),
                "centerness": nn.Conv2d(channels, 1, 1),
            }
        )

    def forward(self, features):
        x = self.shared(features)
        boxes = self.heads["boxes"](x).exp()  # mistake: boxes = self.heads["bbox"](x).exp()
        return self.heads["classes"](x), boxes, self.heads["centerness"](x).sigmoid()


# run:
sum(part.sum() for part in MultiTaskHead(32, 20)(torch.randn(2, 32, 16, 16))).backward()
