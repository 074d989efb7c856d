# crash: labels were made one-hot for the loss, and the accuracy compares them with predicted classes
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


def train(model, x, labels, epochs=2):
    optimizer = torch.optim.Adam(model.parameters())
    y = F.one_hot(labels, 10).float()
    for epoch in range(epochs):
        out = model(x)
        loss = F.binary_cross_entropy_with_logits(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        correct = (out.argmax(dim=1) == labels).sum().item()  # mistake: correct = (out.argmax(dim=1) == y).sum().item()
        print(epoch, loss.item(), correct / len(x))


if __name__ == "__main__":
    features = torch.randn(64, 20)
    train(Net(), features, torch.randint(0, 10, (64,)))
