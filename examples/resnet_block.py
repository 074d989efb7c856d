"""The bottleneck block of ResNet-50."""

import torch.nn.functional as F
from torch import nn


def conv_bn(inputs, outputs, kernel, stride=1):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(outputs),
    )


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, inputs=64, width=64, stride=1):
        super().__init__()
        outputs = self.expansion * width
        self.reduce = conv_bn(inputs, width, 1)
        self.conv = conv_bn(width, width, 3, stride)
        self.expand = conv_bn(width, outputs, 1)
        self.shortcut = nn.Identity() if inputs == outputs and stride == 1 else conv_bn(inputs, outputs, 1, stride)

    def forward(self, x):
        y = F.relu(self.reduce(x))
        y = F.relu(self.conv(y))
        y = self.expand(y)
        return F.relu(y + self.shortcut(x))
