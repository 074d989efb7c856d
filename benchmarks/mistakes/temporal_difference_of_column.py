# silent: gathered values (B, 1) minus targets (B,) is a matrix of temporal differences
# evidence: none
import copy

import torch
import torch.nn as nn


class DoubleDQN(nn.Module):
    """An online and a target network, and their loss."""

    def __init__(self, obs_dim: int, n_actions: int, gamma: float = 0.99, hidden: int = 64):
        super().__init__()
        self.gamma = gamma
        self.online = nn.Sequential(nn.Linear(obs_dim, hidden), nn.ReLU(), nn.Linear(hidden, n_actions))
        self.target = copy.deepcopy(self.online).requires_grad_(False)

    def forward(self, obs, action, reward, next_obs, done):
        """obs and next_obs: (batch, obs_dim); action, reward and done: (batch,)"""
        q = self.online(obs).gather(1, action.unsqueeze(1))
        q = q.squeeze(1)  # mistake: pass
        with torch.no_grad():
            best = self.online(next_obs).argmax(dim=1, keepdim=True)
            next_q = self.target(next_obs).gather(1, best).squeeze(1)
            target = reward + self.gamma * (1 - done) * next_q
        td_error = q - target
        return (0.5 * td_error.pow(2)).mean()

    @torch.no_grad()
    def soft_update(self, tau: float = 0.005):
        for p, t in zip(self.online.parameters(), self.target.parameters(), strict=True):
            t.lerp_(p, tau)


# run:
agent = DoubleDQN(8, 4)
loss = agent(torch.randn(32, 8), torch.randint(0, 4, (32,)), torch.rand(32), torch.randn(32, 8), torch.zeros(32))
loss.backward()
agent.soft_update()
print(loss.item())
