# crash: the value after the last step is concatenated to the values of a rollout without the dimension of time
# evidence: call
import torch
from torch import nn


def generalized_advantages(rewards, values, last_value, dones, gamma=0.99, lam=0.95):
    """rewards, values and dones: (steps, envs); last_value: (envs,)"""
    last = last_value.unsqueeze(0)  # mistake: last = last_value
    next_values = torch.cat([values[1:], last])
    deltas = rewards + gamma * next_values * (1 - dones) - values
    advantages = torch.zeros_like(rewards)
    running = torch.zeros_like(last_value)
    for t in reversed(range(rewards.size(0))):
        running = deltas[t] + gamma * lam * (1 - dones[t]) * running
        advantages[t] = running
    return advantages, advantages + values


class ValueNet(nn.Module):
    def __init__(self, obs_dim=11, hidden=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def forward(self, obs):
        return self.net(obs).squeeze(-1)


def main(steps=16, envs=4):
    value_net = ValueNet()
    optimizer = torch.optim.Adam(value_net.parameters(), lr=1e-3)
    obs = torch.randn(steps + 1, envs, 11)
    rewards, dones = torch.randn(steps, envs), torch.zeros(steps, envs)
    with torch.no_grad():
        values = value_net(obs)
    advantages, returns = generalized_advantages(rewards, values[:-1], values[-1], dones)
    loss = (value_net(obs[:-1]) - returns).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return advantages.mean()


if __name__ == "__main__":
    main()
