# crash: a learned slope for each channel was kept at the width of the first layer
# evidence: none
import torch
from torch import nn


class FaceStage(nn.Module):
    """The first stage of a cascade of face detectors."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 10, 3)
        self.act1 = nn.PReLU(10)
        self.pool = nn.MaxPool2d(2, 2, ceil_mode=True)
        self.conv2 = nn.Conv2d(10, 16, 3)
        self.act2 = nn.PReLU(16)  # mistake: self.act2 = nn.PReLU(10)
        self.conv3 = nn.Conv2d(16, 32, 3)
        self.act3 = nn.PReLU(32)
        self.score = nn.Conv2d(32, 2, 1)
        self.box = nn.Conv2d(32, 4, 1)

    def forward(self, image):
        x = self.pool(self.act1(self.conv1(image)))
        x = self.act2(self.conv2(x))
        x = self.act3(self.conv3(x))
        return self.score(x).softmax(dim=1), self.box(x)


# run:
score, box = FaceStage()(torch.rand(2, 3, 48, 48))
(score.sum() + box.sum()).backward()
