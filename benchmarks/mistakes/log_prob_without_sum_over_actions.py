# crash: the log probabilities of the parts of an action are not summed before they meet one advantage for each
# evidence: none
import torch
import torch.nn as nn
from torch.distributions import Normal


class GaussianPolicy(nn.Module):
    def __init__(self, obs_dim=11, act_dim=3, hidden=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, act_dim))
        self.value = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, 1))
        self.log_std = nn.Parameter(torch.zeros(act_dim))

    def forward(self, obs):
        return Normal(self.net(obs), self.log_std.exp())

    def loss(self, obs, actions, returns):
        values = self.value(obs).squeeze(-1)
        advantage = returns - values.detach()
        log_prob = self(obs).log_prob(actions).sum(-1)  # mistake: log_prob = self(obs).log_prob(actions)
        policy_loss = -(log_prob * advantage).mean()
        return policy_loss + 0.5 * (returns - values).pow(2).mean()


# run:
GaussianPolicy().loss(torch.randn(32, 11), torch.randn(32, 3), torch.randn(32)).backward()
