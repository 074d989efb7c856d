# crash: two feature vectors are stacked along a new dimension where the classifier expects them side by side
# evidence: none
import torch
from torch import nn


class LateFusion(nn.Module):
    """Classifies a post from its text embedding and its image embedding."""

    def __init__(self, text_dim: int = 768, image_dim: int = 512, hidden: int = 256, num_labels: int = 2):
        super().__init__()
        self.text_proj = nn.Sequential(nn.LayerNorm(text_dim), nn.Linear(text_dim, hidden))
        self.image_proj = nn.Sequential(nn.LayerNorm(image_dim), nn.Linear(image_dim, hidden))
        self.classifier = nn.Sequential(
            nn.Linear(2 * hidden, hidden),
            nn.GELU(),
            nn.Dropout(0.1),
            nn.Linear(hidden, num_labels),
        )

    def forward(self, text: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
        t = self.text_proj(text)
        v = self.image_proj(image)
        fused = torch.cat([t, v], dim=1)  # mistake: fused = torch.stack([t, v], dim=1)
        return self.classifier(fused)


# run:
LateFusion()(torch.randn(8, 768), torch.randn(8, 512)).sum().backward()
