# crash: a parameter is overwritten with a tensor in the forward pass
# evidence: none
import torch
import torch.nn as nn
import torch.nn.functional as F


class Temperature(nn.Module):
    """Scale logits by a temperature that stays within bounds."""

    def __init__(self, dim=32, num_classes=10):
        super().__init__()
        self.fc = nn.Linear(dim, num_classes)
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        scale = self.scale.clamp(0.1, 100)  # mistake: scale = self.scale = self.scale.clamp(0.1, 100)
        logits = self.fc(F.normalize(x, dim=-1))
        return logits * scale


# run:
torch.manual_seed(0)
model = Temperature()
model(torch.randn(8, 32)).sum().backward()
print("done")
