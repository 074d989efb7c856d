# crash: a dense layer sees the channels of all layers before it, not only those of the block's input
# evidence: config
import torch
import torch.nn as nn


class DenseLayer(nn.Module):
    def __init__(self, num_input_features, growth_rate, bn_size=4):
        super().__init__()
        self.norm1 = nn.BatchNorm2d(num_input_features)
        self.conv1 = nn.Conv2d(num_input_features, bn_size * growth_rate, kernel_size=1, bias=False)
        self.norm2 = nn.BatchNorm2d(bn_size * growth_rate)
        self.conv2 = nn.Conv2d(bn_size * growth_rate, growth_rate, kernel_size=3, padding=1, bias=False)

    def forward(self, x):
        out = self.conv1(torch.relu(self.norm1(x)))
        out = self.conv2(torch.relu(self.norm2(out)))
        return torch.cat([x, out], 1)


class DenseNet(nn.Module):
    def __init__(self, growth_rate=12, block_config=(3, 3), num_init_features=24, num_classes=10):
        super().__init__()
        layers = [nn.Conv2d(3, num_init_features, kernel_size=3, padding=1, bias=False)]
        features = num_init_features
        for num_layers in block_config:
            for i in range(num_layers):
                inputs = features + i * growth_rate  # mistake: inputs = features
                layers.append(DenseLayer(inputs, growth_rate))
            features += num_layers * growth_rate
            layers += [nn.Conv2d(features, features // 2, kernel_size=1), nn.AvgPool2d(2)]
            features //= 2
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(features, num_classes)

    def forward(self, x):
        out = torch.relu(self.features(x)).mean(dim=(2, 3))
        return self.classifier(out)


def densenet_cifar():
    return DenseNet(growth_rate=12, block_config=(4, 4))


# run:
densenet_cifar()(torch.randn(2, 3, 32, 32)).sum().backward()
