# crash: a gradient computed by hand is assigned transposed, "assigned grad has data of a different size"
# evidence: call
import torch
import torch.nn as nn


class Net(nn.Module):
    def __init__(self, n_in=20, hidden=64, n_out=10):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_in, hidden), nn.ReLU())
        self.head = nn.Linear(hidden, n_out)

    def forward(self, x):
        return self.head(self.body(x))


def fit(x, y, steps=3, lr=0.1):
    weight = nn.Parameter(torch.zeros(3, 20))
    optimizer = torch.optim.SGD([weight], lr=lr)
    for _ in range(steps):
        error = x @ weight.detach().T - y
        weight.grad = error.T @ x / len(x)  # mistake: weight.grad = x.T @ error / len(x)
        optimizer.step()
    return weight


if __name__ == "__main__":
    inputs = torch.randn(50, 20)
    targets = torch.randn(50, 3)
    print(fit(inputs, targets))
    model = Net()
    print(model(inputs).shape)
