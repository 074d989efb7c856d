# crash: a layer is in two groups of the optimizer, one for the backbone and one for the head
# evidence: call
import torch
from torch import nn


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.backbone(x))


def optimizer_of(model: Detector, rate: float):
    rest = model.backbone.parameters()  # mistake: rest = model.parameters()
    groups = [
        {"params": model.head.parameters(), "lr": 10 * rate},
        {"params": rest, "lr": rate},
    ]
    return torch.optim.AdamW(groups, weight_decay=1e-2)


if __name__ == "__main__":
    model = Detector()
    optimizer = optimizer_of(model, 1e-4)
    loss = nn.functional.smooth_l1_loss(model(torch.rand(4, 3, 32, 32)), torch.rand(4, 4))
    loss.backward()
    optimizer.step()
