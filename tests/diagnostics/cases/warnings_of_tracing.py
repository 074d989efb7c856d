# targets: Pair, Averaged, copies, pickled, train.step
import copy
import pickle

import torch
from torch import nn


class Pair(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.head = nn.Linear(width, width)

    def forward(self, x):  # fx: x=f32[4, 16]
        return copy.deepcopy(self.head)(x) + self.head(x)


class Averaged(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width))
        self.average = copy.deepcopy(self.net).requires_grad_(False)
        self.swa = torch.optim.swa_utils.AveragedModel(self.net)

    def forward(self, x):  # fx: x=f32[4, 16]
        return self.net(x) - self.average(x) + self.swa(x)


def copies(x):  # fx: x=f32[4, 16]
    return copy.copy(x) + copy.deepcopy(x.detach()) + torch.tensor(x)


def pickled(x):  # fx: x=f32[4, 16]
    return pickle.loads(pickle.dumps(x.detach())) + x


def train(epochs=2):
    net = Averaged()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for epoch in range(epochs):
        for x, y in [(torch.randn(4, 16), torch.randn(4, 16)) for _ in range(3)]:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(net(x), y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
        scheduler.step()


if __name__ == "__main__":
    train()
