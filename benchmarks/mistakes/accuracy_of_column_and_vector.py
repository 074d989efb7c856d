# silent: rounded predictions (B, 1) are compared with labels (B,), so that every prediction meets every label
# evidence: call
import torch
from torch import nn

torch.manual_seed(3)


class ChurnModel(nn.Module):
    def __init__(self, n_features=16):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(n_features, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x):
        return torch.sigmoid(self.layers(x))


def evaluate(model, x, y, batch_size=50):
    model.eval()
    correct = 0
    with torch.no_grad():
        for xb, yb in zip(x.split(batch_size), y.split(batch_size), strict=True):
            pred = model(xb).round().squeeze(1)  # mistake: pred = model(xb).round()
            correct += (pred == yb).sum().item()  # effect
    return correct / len(y)


x = torch.randn(400, 16)
y = (x[:, 0] - x[:, 3] > 0).float()

model = ChurnModel()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(20):
    loss = nn.functional.binary_cross_entropy(model(x).squeeze(1), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

print("accuracy", evaluate(model, x, y))
