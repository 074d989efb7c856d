# crash: a layer is called by another name than it was given, "object has no attribute"
# evidence: none
import torch
import torch.nn as nn
import torch.nn.functional as F


class GatedTransformerFFN(nn.Module):
    """SwiGLU feed-forward layer with a pre-norm and a residual."""

    def __init__(self, dim: int, hidden_dim: int | None = None, multiple_of: int = 32, dropout: float = 0.0):
        super().__init__()
        hidden_dim = hidden_dim or int(8 * dim / 3)
        hidden_dim = multiple_of * ((hidden_dim + multiple_of - 1) // multiple_of)
        self.norm = nn.RMSNorm(dim)
        self.gate_proj = nn.Linear(dim, hidden_dim, bias=False)
        self.up_proj = nn.Linear(dim, hidden_dim, bias=False)
        self.down_proj = nn.Linear(hidden_dim, dim, bias=False)
        self.resid_dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(x)
        h = F.silu(self.gate_proj(h)) * self.up_proj(h)
        h = self.down_proj(h)
        return x + self.resid_dropout(h)  # mistake: return x + self.dropout(h)


# run:
GatedTransformerFFN(48)(torch.randn(2, 5, 48)).sum().backward()
