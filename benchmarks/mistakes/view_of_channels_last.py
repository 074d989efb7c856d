# crash: tensors in channels_last memory format cannot be flattened with .view(), reported after a speed-up was tried
# evidence: none
import torch
import torch.nn as nn


class FastStem(nn.Module):
    def __init__(self, in_ch: int = 3, out_ch: int = 32):
        super().__init__()
        self.conv1 = nn.Conv2d(in_ch, out_ch, 3, stride=2, padding=1, bias=False)
        self.conv2 = nn.Conv2d(out_ch, out_ch, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_ch)
        self.bn2 = nn.BatchNorm2d(out_ch)
        self.act = nn.Hardswish()

    def forward(self, x):
        x = self.act(self.bn1(self.conv1(x)))
        return self.act(self.bn2(self.conv2(x)))


class EdgeNet(nn.Module):
    """For 64x64 crops; runs in channels_last, which is faster on most hardware."""

    def __init__(self, embedding: int = 64):
        super().__init__()
        self.stem = FastStem()
        self.pool = nn.AdaptiveAvgPool2d(4)
        self.embed = nn.Linear(32 * 4 * 4, embedding)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        image = image.contiguous(memory_format=torch.channels_last)
        feature = self.pool(self.stem(image))
        flat = feature.reshape(image.size(0), -1)  # mistake: flat = feature.view(image.size(0), -1)
        return nn.functional.normalize(self.embed(flat), dim=1)


# run:
EdgeNet()(torch.randn(4, 3, 64, 64)).sum().backward()
