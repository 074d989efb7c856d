# crash: torch.flatten without a start dimension flattens the batch too, so that nothing fits the linear layer
# evidence: none
import torch
import torch.nn as nn
import torch.nn.functional as F


class SpectrogramEncoder(nn.Module):
    """Log-mel spectrograms (B, 1, 64, 96) to embeddings."""

    def __init__(self, embed_dim: int = 128, in_shape: tuple[int, int] = (64, 96)):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, kernel_size=3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, kernel_size=3, padding=1)
        self.norm1 = nn.BatchNorm2d(16)
        self.norm2 = nn.BatchNorm2d(32)
        mels, frames = in_shape
        self.proj = nn.Linear(32 * (mels // 4) * (frames // 4), embed_dim)

    def forward(self, spec: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(spec))), 2)
        x = F.max_pool2d(F.relu(self.norm2(self.conv2(x))), 2)
        x = torch.flatten(x, 1)  # mistake: x = torch.flatten(x)
        return F.normalize(self.proj(x), dim=-1)


# run:
out = SpectrogramEncoder()(torch.randn(4, 1, 64, 96))
out.sum().backward()
