# crash: a tensor that requires a gradient is scaled, and the result is no leaf, "can't optimize a non-leaf Tensor"
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


def stylize(model, target, steps=4):
    """Look for an input that the model maps onto the target."""
    image = (torch.randn(1, 20) * 0.1).requires_grad_()  # mistake: image = torch.randn(1, 20, requires_grad=True) * 0.1
    optimizer = torch.optim.Adam([image], lr=0.05)
    for step in range(steps):
        optimizer.zero_grad()
        loss = F.mse_loss(model(image), target)
        loss.backward()
        optimizer.step()
        print(step, loss.item())
    return image.detach()


model = Net()
for parameter in model.parameters():
    parameter.requires_grad_(False)
stylize(model, torch.randn(1, 10))
