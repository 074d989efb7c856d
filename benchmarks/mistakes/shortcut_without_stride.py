# crash: the 1 x 1 convolution of the shortcut changes the channels, but does not stride as the block does
# evidence: none
import torch
import torch.nn as nn
import torch.nn.functional as F


class PreActBlock(nn.Module):
    """Pre-activation block of a wide ResNet."""

    def __init__(self, in_planes, planes, dropout_rate=0.3, stride=2):
        super().__init__()
        self.bn1 = nn.BatchNorm2d(in_planes)
        self.conv1 = nn.Conv2d(in_planes, planes, kernel_size=3, padding=1, bias=True)
        self.dropout = nn.Dropout(p=dropout_rate)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, kernel_size=3, stride=stride, padding=1, bias=True)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_planes != planes:
            conv = nn.Conv2d(in_planes, planes, 1, stride=stride)  # mistake: conv = nn.Conv2d(in_planes, planes, 1)
            self.shortcut = nn.Sequential(conv)

    def forward(self, x):
        out = self.dropout(self.conv1(F.relu(self.bn1(x))))
        out = self.conv2(F.relu(self.bn2(out)))
        return out + self.shortcut(x)


# run:
PreActBlock(16, 32)(torch.randn(2, 16, 32, 32)).sum().backward()
