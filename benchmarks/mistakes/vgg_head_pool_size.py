# crash: the pooled size and the first linear layer of a VGG head disagree after the pool was changed for small images
# evidence: config
import torch
from torch import nn

CFGS = {
    "A": [64, "M", 128, "M", 256, 256, "M", 512, 512, "M"],
    "B": [64, 64, "M", 128, 128, "M", 256, 256, "M", 512, 512, "M"],
}


def make_layers(cfg, batch_norm=True):
    layers, in_channels = [], 3
    for v in cfg:
        if v == "M":
            layers.append(nn.MaxPool2d(kernel_size=2, stride=2))
            continue
        layers.append(nn.Conv2d(in_channels, v, kernel_size=3, padding=1))
        if batch_norm:
            layers.append(nn.BatchNorm2d(v))
        layers.append(nn.ReLU(inplace=True))
        in_channels = v
    return nn.Sequential(*layers)


class VGG(nn.Module):
    def __init__(self, features, num_classes=200):
        super().__init__()
        self.features = features
        self.avgpool = nn.AdaptiveAvgPool2d((2, 2))  # mistake: self.avgpool = nn.AdaptiveAvgPool2d((3, 3))
        self.classifier = nn.Sequential(
            nn.Linear(512 * 2 * 2, 1024),
            nn.ReLU(True),
            nn.Dropout(),
            nn.Linear(1024, num_classes),
        )

    def forward(self, x):
        x = self.avgpool(self.features(x))
        return self.classifier(torch.flatten(x, 1))


def vgg_small(**kwargs):
    return VGG(make_layers(CFGS["A"]), **kwargs)


def vgg_small_plain(**kwargs):
    return VGG(make_layers(CFGS["B"], batch_norm=False), **kwargs)


# run:
vgg_small()(torch.randn(2, 3, 64, 64)).sum().backward()
