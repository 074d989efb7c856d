# crash: counts are integers, and dividing them in place fails, "result type Float can't be cast to ... Long"
# evidence: none
import torch
from torch import nn


class CodebookUsage(nn.Module):
    """How evenly the codes of a quantizer are used: the perplexity of their frequencies."""

    def __init__(self, num_codes: int):
        super().__init__()
        self.num_codes = num_codes

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        counts = torch.zeros(self.num_codes, dtype=torch.long, device=indices.device)
        counts.scatter_add_(0, indices.flatten(), torch.ones_like(indices.flatten()))
        counts = counts / indices.numel()  # mistake: counts /= indices.numel()
        entropy = -(counts * torch.log(counts + 1e-10)).sum()
        return entropy.exp()


def class_weights(labels: torch.Tensor, num_classes: int, beta: float = 0.999) -> torch.Tensor:
    """Weights by the effective number of samples."""
    counts = torch.bincount(labels, minlength=num_classes).clamp(min=1)
    effective = 1.0 - beta ** counts.float()
    weights = (1.0 - beta) / effective
    return weights / weights.sum() * num_classes


# run:
assert CodebookUsage(32)(torch.randint(0, 32, (4, 8, 8))) > 1
class_weights(torch.randint(0, 5, (100,)), 5)
