# crash: the maps of a detection head are permuted and then viewed as anchors x classes, which needs contiguous memory
# evidence: call
import torch
from torch import nn


class DetectionHead(nn.Module):
    """Class scores and box deltas for each anchor of each level."""

    def __init__(self, channels=64, num_anchors=3, num_classes=20):
        super().__init__()
        self.num_classes = num_classes
        self.tower = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU())
        self.cls = nn.Conv2d(channels, num_anchors * num_classes, 3, padding=1)
        self.box = nn.Conv2d(channels, num_anchors * 4, 3, padding=1)

    def forward(self, features):
        scores, deltas = [], []
        for feature in features:
            h = self.tower(feature)
            n = feature.shape[0]
            cls = self.cls(h).permute(0, 2, 3, 1)
            box = self.box(h).permute(0, 2, 3, 1)
            cls = cls.reshape(n, -1, self.num_classes)  # mistake: cls = cls.view(n, -1, self.num_classes)
            scores.append(cls)
            deltas.append(box.reshape(n, -1, 4))
        return torch.cat(scores, dim=1), torch.cat(deltas, dim=1)


def main():
    torch.manual_seed(1)
    head = DetectionHead()
    pyramid = [torch.randn(2, 64, size, size) for size in (32, 16, 8)]
    scores, deltas = head(pyramid)
    assert scores.shape[1] == deltas.shape[1] == 3 * (32 * 32 + 16 * 16 + 8 * 8)
    (scores.sigmoid().mean() + deltas.abs().mean()).backward()


if __name__ == "__main__":
    main()
