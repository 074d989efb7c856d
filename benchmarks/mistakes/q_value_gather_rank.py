# crash: gather wants an index with as many dimensions as its input, the actions are a vector
# evidence: call
import random
from collections import deque, namedtuple

import torch
import torch.nn as nn
import torch.nn.functional as F

Transition = namedtuple("Transition", ("state", "action", "reward", "next_state", "done"))


class DQN(nn.Module):
    def __init__(self, n_observations, n_actions):
        super().__init__()
        self.layer1 = nn.Linear(n_observations, 128)
        self.layer2 = nn.Linear(128, 128)
        self.layer3 = nn.Linear(128, n_actions)

    def forward(self, x):
        x = F.relu(self.layer1(x))
        x = F.relu(self.layer2(x))
        return self.layer3(x)


def optimize(policy, target, memory, optimizer, batch_size=32, gamma=0.99):
    batch = Transition(*zip(*random.sample(memory, batch_size), strict=True))
    state, next_state = torch.stack(batch.state), torch.stack(batch.next_state)
    action = torch.tensor(batch.action)
    reward = torch.tensor(batch.reward)
    done = torch.tensor(batch.done, dtype=torch.float32)
    q = policy(state).gather(1, action.unsqueeze(1)).squeeze(1)  # mistake: q = policy(state).gather(1, action)
    with torch.no_grad():
        expected = reward + gamma * (1 - done) * target(next_state).max(1).values
    loss = F.smooth_l1_loss(q, expected)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    policy, target = DQN(4, 2), DQN(4, 2)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-4, amsgrad=True)
    memory = deque(maxlen=10000)
    for _ in range(64):
        memory.append(Transition(torch.randn(4), random.randrange(2), random.random(), torch.randn(4), False))
    print(optimize(policy, target, memory, optimizer))


if __name__ == "__main__":
    main()
