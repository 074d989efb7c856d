# targets: fit.step, fit_renamed.step
import torch
import torch.nn as nn


def fit():
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    step = torch.compile(net)
    for _ in range(3):
        loss = step(torch.randn(8, 4)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def fit_renamed():
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    run = torch.compile(net)
    for _ in range(3):
        loss = run(torch.randn(8, 4)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    fit()
    fit_renamed()
