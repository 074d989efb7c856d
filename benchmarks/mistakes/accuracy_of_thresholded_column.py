# silent: thresholded probabilities (B, 1) are compared with labels (B,) in the evaluation, each with every label
# evidence: call
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, n_in=20, hidden=64, n_out=10):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_in, hidden), nn.ReLU())
        self.head = nn.Linear(hidden, n_out)

    def forward(self, x):
        return self.head(self.body(x))


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    hits, count = 0, 0
    for x, y in loader:
        predicted = (torch.sigmoid(model(x)) > 0.5).long()
        predicted = predicted.flatten()  # mistake: pass
        hits += (predicted == y).sum().item()  # effect
        count += len(y)
    return hits / count


if __name__ == "__main__":
    torch.manual_seed(0)
    labels = torch.arange(64) % 2
    data = TensorDataset(torch.randn(64, 20), labels)
    print(evaluate(Net(n_out=1), DataLoader(data, batch_size=16)))
