# crash: the head is made for the vectors of all patches, and gets their mean
# evidence: none
import torch
from torch import nn


class SmallViT(nn.Module):
    def __init__(self, image=32, patch=4, width=96, depth=2, heads=3, classes=10):
        super().__init__()
        count = (image // patch) ** 2
        self.embed = nn.Conv2d(3, width, patch, patch)
        self.position = nn.Parameter(torch.zeros(1, count, width))
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)  # mistake: self.head = nn.Linear(count * width, classes)

    def forward(self, x):
        x = self.embed(x).flatten(2).transpose(1, 2)
        x = self.blocks(x + self.position)
        return self.head(self.norm(x).mean(dim=1))


# run:
SmallViT()(torch.randn(2, 3, 32, 32)).sum().backward()
