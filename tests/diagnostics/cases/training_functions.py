# targets: fit, Trainer.update, wrong
import torch
import torch.nn as nn
import torch.nn.functional as F


def fit(net, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


class Trainer:
    def __init__(self, net):
        self.net = net
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def update(self, x, y):
        self.optimizer.zero_grad(set_to_none=True)
        scores = self.net(x)
        loss = F.cross_entropy(scores, y) + 0.1 * scores.pow(2).mean()
        loss.backward()
        self.optimizer.step()


def wrong(net, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.mse_loss(net(x) @ y, y)
    #                 ^^^^^^^^^^ error[shape]:
    #  matrices of 8×3 and 8×3 cannot be multiplied: the inner sizes 3 and 8 differ (net(x): f32[8, 3], y: f32[8, 3]).
    #  line 34: also reached from __main__
    loss.backward()
    optimizer.step()


if __name__ == "__main__":
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(3):
        fit(net, optimizer, torch.randn(8, 4), torch.randn(8, 3))
    Trainer(net).update(torch.randn(8, 4), torch.randint(0, 3, (8,)))
    wrong(net, optimizer, torch.randn(8, 4), torch.randn(8, 3))
