# crash: the loss is of predicted classes, which have no gradient, "element 0 of tensors does not require grad"
# evidence: call
import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self, n_in=20, hidden=64, n_out=10):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_in, hidden), nn.ReLU())
        self.head = nn.Linear(hidden, n_out)

    def forward(self, x):
        return self.head(self.body(x))


def train(model, x, y, epochs=3):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        out = model(x)
        pred = out.argmax(dim=1)
        loss = F.mse_loss(out[:, 0], y.float())  # mistake: loss = F.mse_loss(pred.float(), y.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(epoch, loss.item(), (pred == y).float().mean().item())


if __name__ == "__main__":
    features = torch.randn(100, 20)
    labels = torch.randint(0, 10, (100,))
    train(Net(), features, labels)
