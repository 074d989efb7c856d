# crash: a feature pyramid adds the coarse map to the fine one without upsampling it
# evidence: call
import torch
import torch.nn.functional as F
from torch import nn


class FPN(nn.Module):
    def __init__(self, in_channels, out_channels=64):
        super().__init__()
        self.lateral = nn.ModuleList([nn.Conv2d(c, out_channels, 1) for c in in_channels])
        self.output = nn.ModuleList([nn.Conv2d(out_channels, out_channels, 3, padding=1) for _ in in_channels])

    def forward(self, features):
        laterals = [conv(f) for conv, f in zip(self.lateral, features, strict=True)]
        for i in range(len(laterals) - 1, 0, -1):
            size = laterals[i - 1].shape[-2:]
            top = F.interpolate(laterals[i], size=size, mode="nearest")  # mistake: top = laterals[i]
            laterals[i - 1] = laterals[i - 1] + top
        return [conv(x) for conv, x in zip(self.output, laterals, strict=True)]


class Backbone(nn.Module):
    def __init__(self, widths=(32, 64, 128)):
        super().__init__()
        self.stem = nn.Conv2d(3, widths[0], 7, stride=4, padding=3)
        self.stages = nn.ModuleList()
        for cin, cout in zip((widths[0], *widths[:-1]), widths, strict=True):
            self.stages.append(nn.Sequential(nn.Conv2d(cin, cout, 3, 2, 1), nn.BatchNorm2d(cout), nn.ReLU()))

    def forward(self, x):
        x = self.stem(x)
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        return features


if __name__ == "__main__":
    backbone, neck = Backbone(), FPN((32, 64, 128))
    images = torch.randn(2, 3, 128, 160)
    for level in neck(backbone(images)):
        print(tuple(level.shape))
