# crash: torch.where over logits of (batch, length, vocabulary) with a mask of (batch, length)
# evidence: none
import torch
from torch import nn


class MaskedDiffusionHead(nn.Module):
    """Output of a masked diffusion language model: tokens that are not masked stay what they are."""

    def __init__(self, d_model, vocab_size, mask_id):
        super().__init__()
        self.mask_id = mask_id
        self.vocab_size = vocab_size
        self.norm = nn.LayerNorm(d_model)
        self.out = nn.Linear(d_model, vocab_size)

    def forward(self, hidden, tokens):
        logits = self.out(self.norm(hidden))
        logits[..., self.mask_id] = -1e9
        log_probs = logits.log_softmax(dim=-1)
        keep = torch.full_like(log_probs, -1e9)
        keep = keep.scatter(-1, tokens.unsqueeze(-1), 0.0)
        masked = (tokens == self.mask_id).unsqueeze(-1)  # mistake: masked = tokens == self.mask_id
        return torch.where(masked, log_probs, keep)


# run:
tokens = torch.randint(0, 50, (4, 14))
MaskedDiffusionHead(32, 50, 49)(torch.randn(4, 14, 32), tokens).sum().backward()
