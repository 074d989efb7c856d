# crash: the gradient of a computed tensor is read after backward, it is None, "unsupported operand type(s)"
# evidence: call
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, n_in=20, hidden=64, n_out=10):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_in, hidden), nn.ReLU())
        self.head = nn.Linear(hidden, n_out)

    def forward(self, x):
        return self.head(self.body(x))


def attack(model, x, y, epsilon=0.03):
    """Fast gradient sign method."""
    x = x.clone().detach().requires_grad_(True)  # mistake: x = x.clone().requires_grad_(True) * 1.0
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    perturbed = x + epsilon * torch.sign(x.grad)
    return perturbed.clamp(-1, 1).detach()


def robust_accuracy(model, loader):
    hits = 0
    for x, y in loader:
        adversarial = attack(model, x, y)
        hits += (model(adversarial).argmax(1) == y).sum().item()
    return hits / len(loader.dataset)


if __name__ == "__main__":
    data = TensorDataset(torch.randn(64, 20), torch.randint(0, 10, (64,)))
    print(robust_accuracy(Net(), DataLoader(data, batch_size=16)))
