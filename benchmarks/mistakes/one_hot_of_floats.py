# crash: F.one_hot takes only int64, "one_hot is only applicable to index tensor of type LongTensor"
# evidence: call
import torch
import torch.nn.functional as F
from torch import nn

N_ACTIONS = 4
OBS_DIM = 12


class WorldModel(nn.Module):
    """Predicts the next observation and the reward from an observation and an action."""

    def __init__(self, obs_dim=OBS_DIM, n_actions=N_ACTIONS, hidden=64):
        super().__init__()
        self.n_actions = n_actions
        size = obs_dim + n_actions
        self.trunk = nn.Sequential(nn.Linear(size, hidden), nn.ELU(), nn.Linear(hidden, hidden), nn.ELU())
        self.next_obs = nn.Linear(hidden, obs_dim)
        self.reward = nn.Linear(hidden, 1)

    def forward(self, obs, action):
        a = F.one_hot(action.long(), self.n_actions).float()  # mistake: a = F.one_hot(action, self.n_actions).float()
        h = self.trunk(torch.cat([obs, a], dim=-1))
        return self.next_obs(h), self.reward(h).squeeze(-1)


def rollout(steps):
    """Transitions as rows of one float tensor, as they come out of the replay memory."""
    obs, nxt = torch.randn(2, steps, OBS_DIM)
    action = torch.randint(0, N_ACTIONS, (steps, 1)).float()
    reward = torch.rand(steps, 1)
    return torch.cat([obs, action, reward, nxt], dim=1)


def main():
    model = WorldModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    for _ in range(2):
        batch = rollout(32)
        obs, action, reward, nxt = batch.split([OBS_DIM, 1, 1, OBS_DIM], dim=1)
        pred_obs, pred_reward = model(obs, action.squeeze(1))
        loss = F.mse_loss(pred_obs, nxt) + F.mse_loss(pred_reward, reward.squeeze(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
