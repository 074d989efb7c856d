# silent: stored log probabilities are a column and the new ones a vector, so that the ratio of PPO is a matrix
# evidence: call
import torch
from torch import nn
from torch.distributions import Categorical


class ActorCritic(nn.Module):
    def __init__(self, obs_dim=6, n_actions=3, hidden=64):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.pi = nn.Linear(hidden, n_actions)
        self.v = nn.Linear(hidden, 1)

    def forward(self, obs):
        h = self.trunk(obs)
        return Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


class Buffer:
    """What was seen in one rollout, everything as columns."""

    def __init__(self, size, obs_dim=6):
        self.obs = torch.zeros(size, obs_dim)
        self.action, self.log_prob, self.advantage, self.ret = (torch.zeros(size, 1) for _ in range(4))

    def fill(self, model):
        self.obs.normal_()
        with torch.no_grad():
            dist, value = model(self.obs)
            action = dist.sample()
            self.action[:, 0] = action.float()
            self.log_prob[:, 0] = dist.log_prob(action)
            self.advantage.normal_()
            self.ret[:, 0] = value + self.advantage[:, 0]


def update(model, buffer, optimizer, clip=0.2):
    dist, value = model(buffer.obs)
    log_prob = dist.log_prob(buffer.action.squeeze(1))
    ratio = (log_prob - buffer.log_prob.squeeze(1)).exp()  # mistake: ratio = (log_prob - buffer.log_prob).exp()
    adv = buffer.advantage.squeeze(1)
    policy_loss = -torch.min(ratio * adv, ratio.clamp(1 - clip, 1 + clip) * adv).mean()
    value_loss = (buffer.ret.squeeze(1) - value).pow(2).mean()
    loss = policy_loss + 0.5 * value_loss - 0.01 * dist.entropy().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


if __name__ == "__main__":
    torch.manual_seed(0)
    model = ActorCritic()
    buffer = Buffer(64)
    buffer.fill(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    print([update(model, buffer, optimizer) for _ in range(3)])
