# targets: fit.step, ok.step
import torch
import torch.nn as nn


def fit(data):
    a, b = nn.Linear(4, 4), nn.Linear(4, 1)
    of_b = torch.optim.SGD(b.parameters(), lr=0.1)
    for x in data:
        score = b(a(x)).mean()
        score.backward(retain_graph=True)
        of_b.step()
        (-score).backward()
       #^^^^^^^^^^^^^^^^^^^ error[error]:
       #  backward needs `b.weight` as the forward pass read it, but `of_b.step()` in line 11 has changed it in place
       #  since. Call `backward()` before what changes the value, or compute the forward pass again.
       #  line 25: also reached from __main__


def ok(data):
    a, b = nn.Linear(4, 4), nn.Linear(4, 1)
    of_b = torch.optim.SGD(b.parameters(), lr=0.1)
    for x in data:
        score = b(a(x)).mean()
        score.backward(retain_graph=True)
        (-score).backward()
        of_b.step()


if __name__ == "__main__":
    ok([torch.randn(8, 4)])
    fit([torch.randn(8, 4)])
