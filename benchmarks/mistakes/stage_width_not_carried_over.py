# crash: the width that a stage leaves is not kept for the next block
# evidence: none
import torch
import torch.nn as nn


class BasicBlock(nn.Module):
    def __init__(self, in_planes, planes, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(in_planes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.shortcut = nn.Identity()
        if stride != 1 or in_planes != planes:
            self.shortcut = nn.Conv2d(in_planes, planes, 1, stride=stride, bias=False)

    def forward(self, x):
        return torch.relu(self.bn1(self.conv1(x)) + self.shortcut(x))


class SmallResNet(nn.Module):
    def __init__(self, num_blocks=(2, 2), num_classes=10):
        super().__init__()
        self.in_planes = 16
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.layer1 = self._make_layer(16, num_blocks[0], 1)
        self.layer2 = self._make_layer(32, num_blocks[1], 2)
        self.linear = nn.Linear(32, num_classes)

    def _make_layer(self, planes, blocks, stride):
        layers = []
        for s in [stride] + [1] * (blocks - 1):
            layers.append(BasicBlock(self.in_planes, planes, s))
            self.in_planes = planes  # mistake: in_planes = planes
        return nn.Sequential(*layers)

    def forward(self, x):
        out = self.layer2(self.layer1(torch.relu(self.conv1(x))))
        return self.linear(out.mean(dim=(2, 3)))


# run:
SmallResNet()(torch.randn(2, 3, 32, 32)).sum().backward()
