# crash: torch.tensor of a list of tensors, "only one element tensors can be converted to Python scalars"
# evidence: call
import torch
from torch import nn
from torch.distributions import Categorical


class Policy(nn.Module):
    def __init__(self, obs_dim=4, n_actions=2, hidden=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, n_actions))

    def forward(self, obs):
        return Categorical(logits=self.net(obs))


class Corridor:
    """A small environment: four random numbers, and a reward for the right sign."""

    def reset(self):
        self.state = torch.randn(4)
        return self.state

    def step(self, action):
        reward = 1.0 if (self.state.sum() > 0) == bool(action) else 0.0
        self.state = torch.randn(4)
        return self.state, reward


def collect(env, policy, steps=50):
    obs_list, actions, rewards = [], [], []
    obs = env.reset()
    for _ in range(steps):
        with torch.no_grad():
            action = policy(obs).sample().item()
        obs_list.append(obs)
        actions.append(action)
        obs, reward = env.step(action)
        rewards.append(reward)
    observations = torch.stack(obs_list)  # mistake: observations = torch.tensor(obs_list)
    return observations, torch.tensor(actions), torch.tensor(rewards)


def main(iterations=3):
    env, policy = Corridor(), Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    for _ in range(iterations):
        obs, act, rew = collect(env, policy)
        loss = -(policy(obs).log_prob(act) * (rew - rew.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
