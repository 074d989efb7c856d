# crash: a list has the channels between the stages, the loop over the stages reads one behind its end
# evidence: config
import torch
from torch import nn

CONFIG = {"channels": [3, 32, 64, 128], "kernel": 3, "classes": 10}


class Pyramid(nn.Module):
    def __init__(self, config=CONFIG):
        super().__init__()
        channels, kernel = config["channels"], config["kernel"]
        stages = []
        for i in range(len(channels) - 1):  # mistake: for i in range(len(channels)):
            conv = nn.Conv2d(channels[i], channels[i + 1], kernel, stride=2, padding=kernel // 2)
            stages += [conv, nn.BatchNorm2d(channels[i + 1]), nn.ReLU()]
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(channels[-1], config["classes"])

    def forward(self, x):
        return self.head(self.stages(x).mean(dim=(2, 3)))


# run:
Pyramid()(torch.randn(2, 3, 32, 32)).sum().backward()
