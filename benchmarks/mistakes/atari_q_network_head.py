# crash: the flattened size of the convolutions over 84 x 84 frames is not the one that the linear layer expects
# evidence: call
import random
from collections import deque

import torch
from torch import nn


class QNetwork(nn.Module):
    def __init__(self, n_actions):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(4, 32, 8, stride=4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, stride=2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, stride=1),
            nn.ReLU(),
        )
        self.value = nn.Linear(64 * 7 * 7, 1)  # mistake: self.value = nn.Linear(64 * 9 * 9, 1)
        self.advantage = nn.Linear(64 * 7 * 7, n_actions)  # mistake: self.advantage = nn.Linear(64 * 9 * 9, n_actions)

    def forward(self, frames):
        h = self.conv(frames / 255.0).flatten(1)
        v, a = self.value(h), self.advantage(h)
        return v + a - a.mean(dim=1, keepdim=True)


def train(steps=2, batch_size=8, gamma=0.99):
    q, target_q = QNetwork(6), QNetwork(6)
    target_q.load_state_dict(q.state_dict())
    opt = torch.optim.Adam(q.parameters(), lr=1e-4)
    memory = deque(maxlen=1000)
    for _ in range(32):
        s, s2 = torch.randint(0, 256, (2, 4, 84, 84)).float()
        memory.append((s, random.randrange(6), random.random(), s2))
    for _ in range(steps):
        s, a, r, s2 = zip(*random.sample(memory, batch_size), strict=True)
        s, s2 = torch.stack(s), torch.stack(s2)
        a, r = torch.tensor(a), torch.tensor(r)
        with torch.no_grad():
            y = r + gamma * target_q(s2).max(dim=1).values
        loss = nn.functional.smooth_l1_loss(q(s).gather(1, a[:, None]).squeeze(1), y)
        opt.zero_grad()
        loss.backward()
        opt.step()


if __name__ == "__main__":
    train()
