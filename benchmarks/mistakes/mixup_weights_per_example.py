# crash: the weights of mixup are drawn for each example and meet images without three more axes
# evidence: call
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class Small(nn.Module):
    def __init__(self, n_classes=10):
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, padding=1)
        self.head = nn.Linear(16, n_classes)

    def forward(self, x):
        return self.head(F.relu(self.conv(x)).mean((2, 3)))


def mixup(x, y, n_classes=10, alpha=0.4):
    lam = torch.distributions.Beta(alpha, alpha).sample((len(x),))
    order = torch.randperm(len(x))
    y = F.one_hot(y, n_classes).float()
    weight = lam.view(-1, 1, 1, 1)  # mistake: weight = lam
    return weight * x + (1 - weight) * x[order], lam[:, None] * y + (1 - lam[:, None]) * y[order]


def train(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for x, y in loader:
        x, y = mixup(x, y)
        loss = -(y * F.log_softmax(model(x), dim=1)).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


train(Small(), DataLoader(TensorDataset(torch.randn(40, 3, 24, 24), torch.randint(0, 10, (40,))), batch_size=20))
