# crash: unfold returns the columns of patches as (batch, C * k * k, patches), and a linear layer wants them last
# evidence: none
import torch
from torch import nn


class TokensToToken(nn.Module):
    """Soft split of an image into overlapping patches, as tokens."""

    def __init__(self, in_channels: int, dim: int, kernel: int = 7, stride: int = 4, padding: int = 2):
        super().__init__()
        self.unfold = nn.Unfold(kernel, stride=stride, padding=padding)
        self.project = nn.Linear(in_channels * kernel * kernel, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        patches = self.unfold(image).transpose(1, 2)  # mistake: patches = self.unfold(image)
        return self.norm(self.project(patches))


class T2TEncoder(nn.Module):
    def __init__(self, dim: int = 64, heads: int = 4, depth: int = 2, num_classes: int = 10):
        super().__init__()
        self.tokens = TokensToToken(3, dim)
        layer = nn.TransformerEncoderLayer(dim, heads, 2 * dim, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(dim, num_classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.tokens(image)).mean(dim=1))


# run:
T2TEncoder()(torch.randn(2, 3, 64, 64)).sum().backward()
