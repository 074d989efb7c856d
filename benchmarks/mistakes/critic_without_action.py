# crash: the critic is given states and actions side by side, its first layer has the size of the states
# evidence: none
import torch
import torch.nn as nn


def mlp(sizes, activation=nn.ReLU, output_activation=nn.Identity):
    layers = []
    for j in range(len(sizes) - 1):
        act = activation if j < len(sizes) - 2 else output_activation
        layers += [nn.Linear(sizes[j], sizes[j + 1]), act()]
    return nn.Sequential(*layers)


class Actor(nn.Module):
    def __init__(self, obs_dim, act_dim, hidden_sizes, act_limit):
        super().__init__()
        self.pi = mlp([obs_dim, *hidden_sizes, act_dim], output_activation=nn.Tanh)
        self.act_limit = act_limit

    def forward(self, obs):
        return self.act_limit * self.pi(obs)


class TwinCritic(nn.Module):
    def __init__(self, obs_dim, act_dim, hidden_sizes=(256, 256)):
        super().__init__()
        size = obs_dim + act_dim  # mistake: size = obs_dim
        self.q1 = mlp([size, *hidden_sizes, 1])
        self.q2 = mlp([size, *hidden_sizes, 1])

    def forward(self, obs, act):
        x = torch.cat([obs, act], dim=-1)
        return self.q1(x).squeeze(-1), self.q2(x).squeeze(-1)


# run:
actor, critic = Actor(17, 6, (64,), 1.0), TwinCritic(17, 6)
obs = torch.randn(32, 17)
torch.min(*critic(obs, actor(obs))).mean().backward()
