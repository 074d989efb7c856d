# crash: the mean advantage of a dueling network loses its dimension and meets the actions
# evidence: none
import torch
import torch.nn as nn


class DuelingDQN(nn.Module):
    def __init__(self, state_dim=8, n_actions=4, hidden=64):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(state_dim, hidden), nn.ReLU())
        self.advantage = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, n_actions))
        self.value = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, state):
        features = self.features(state)
        advantage = self.advantage(features)
        value = self.value(features)
        return value + advantage - advantage.mean(dim=1, keepdim=True)  # mistake: return value + advantage - advantage.mean(dim=1)

    def act(self, state):
        return self(state).argmax(dim=1)


# run:
DuelingDQN()(torch.randn(32, 8)).sum().backward()
