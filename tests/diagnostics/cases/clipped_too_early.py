# targets: clipped.step, clipped_too_early.step
import torch
import torch.nn as nn


def clipped(data):
    critic = nn.Linear(4, 1)
    optimizer = torch.optim.RMSprop(critic.parameters())
    for real in data:
        loss = -critic(real).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for parameter in critic.parameters():
            parameter.data.clamp_(-0.01, 0.01)


def clipped_too_early(data):
    critic = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    for real in data:
        loss = -critic(real).mean()
        with torch.no_grad():
            for parameter in critic.parameters():
                parameter.clamp_(-0.01, 0.01)
        loss.backward()
       #^^^^^^^^^^^^^^^ error[error]:
       #  backward needs `critic.1.weight` as the forward pass read it, but `parameter.clamp_(-0.01, 0.01)` in line 23
       #  has changed it in place since. Call `backward()` before what changes the value, or compute the forward pass
       #  again.
       #  line 27: also reached from __main__


if __name__ == "__main__":
    clipped([torch.randn(8, 4)])
    clipped_too_early([torch.randn(8, 4)])
