# crash: the last channels of a bottleneck network are four times the planes, the classifier forgets the expansion
# evidence: config
import torch
import torch.nn as nn
import torch.nn.functional as F


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, in_planes, planes, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(in_planes, planes, kernel_size=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = nn.Conv2d(planes, self.expansion * planes, kernel_size=1, bias=False)
        self.bn3 = nn.BatchNorm2d(self.expansion * planes)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_planes != self.expansion * planes:
            self.shortcut = nn.Conv2d(in_planes, self.expansion * planes, kernel_size=1, stride=stride, bias=False)

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = F.relu(self.bn2(self.conv2(out)))
        return F.relu(self.bn3(self.conv3(out)) + self.shortcut(x))


class CifarResNet(nn.Module):
    def __init__(self, block, num_blocks, n_classes=100, width=16):
        super().__init__()
        self.in_planes = width
        self.conv1 = nn.Conv2d(3, width, kernel_size=3, padding=1, bias=False)
        stages = []
        for i, n in enumerate(num_blocks):
            for j in range(n):
                stages.append(block(self.in_planes, width * 2**i, stride=2 if i and not j else 1))
                self.in_planes = width * 2**i * block.expansion
        self.stages = nn.Sequential(*stages)
        top = width * 2 ** (len(num_blocks) - 1)
        self.linear = nn.Linear(top * block.expansion, n_classes)  # mistake: self.linear = nn.Linear(top, n_classes)

    def forward(self, x):
        out = self.stages(F.relu(self.conv1(x)))
        return self.linear(F.adaptive_avg_pool2d(out, 1).flatten(1))


def ResNet50Slim():
    return CifarResNet(Bottleneck, [1, 2, 2])


# run:
ResNet50Slim()(torch.randn(2, 3, 32, 32)).sum().backward()
