# crash: F.one_hot puts the classes last, the probabilities have them in the second dimension
# evidence: none
import torch
import torch.nn as nn
import torch.nn.functional as F


class DiceCELoss(nn.Module):
    """Soft Dice and cross entropy, for logits (B, C, H, W) and labels (B, H, W)."""

    def __init__(self, num_classes, smooth=1.0, ce_weight=0.5):
        super().__init__()
        self.num_classes = num_classes
        self.smooth = smooth
        self.ce_weight = ce_weight

    def dice(self, logits, target):
        probs = logits.softmax(dim=1)
        one_hot = F.one_hot(target, self.num_classes)
        one_hot = one_hot.permute(0, 3, 1, 2).float()  # mistake: one_hot = one_hot.float()
        dims = (0, 2, 3)
        intersection = (probs * one_hot).sum(dims)
        union = probs.sum(dims) + one_hot.sum(dims)
        return 1 - ((2 * intersection + self.smooth) / (union + self.smooth)).mean()

    def forward(self, logits, target):
        ce = F.cross_entropy(logits, target)
        return self.ce_weight * ce + (1 - self.ce_weight) * self.dice(logits, target)


# run:
logits = torch.randn(2, 5, 32, 48, requires_grad=True)
DiceCELoss(5)(logits, torch.randint(0, 5, (2, 32, 48))).backward()
