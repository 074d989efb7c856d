# crash: a tensor that backward needs is changed in place, "modified by an inplace operation"
# evidence: call
import torch
import torch.nn as nn


class GatedUnit(nn.Module):
    """Highway layer with a gate that is sharpened in training."""

    def __init__(self, dim):
        super().__init__()
        self.transform = nn.Linear(dim, dim)
        self.gate = nn.Linear(dim, dim)
        nn.init.constant_(self.gate.bias, -2.0)

    def forward(self, x, floor=0.05):
        t = torch.sigmoid(self.gate(x))
        h = torch.tanh(self.transform(x))
        out = t * h + (1 - t) * x
        t = t + floor  # mistake: t += floor
        penalty = (t * torch.log(t)).mean()
        return out, penalty


class Highway(nn.Module):
    def __init__(self, dim=32, depth=3, classes=4):
        super().__init__()
        self.units = nn.ModuleList([GatedUnit(dim) for _ in range(depth)])
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        total = 0.0
        for unit in self.units:
            x, penalty = unit(x)
            total = total + penalty
        return self.head(x), total


if __name__ == "__main__":
    model = Highway()
    x, y = torch.randn(16, 32), torch.randint(0, 4, (16,))
    logits, penalty = model(x)
    loss = nn.functional.cross_entropy(logits, y) + 0.01 * penalty
    loss.backward()
    print(loss.item())
