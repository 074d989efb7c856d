# crash: the values of the next steps are compared with all values, of which there is one more
# evidence: none
import torch
import torch.nn as nn


class ActorCritic(nn.Module):
    def __init__(self, obs_dim=6, n_actions=3, gamma=0.99):
        super().__init__()
        self.gamma = gamma
        self.actor = nn.Linear(obs_dim, n_actions)
        self.critic = nn.Linear(obs_dim, 1)

    def forward(self, obs, actions, rewards):
        """One episode: obs has the last observation as well."""
        values = self.critic(obs).squeeze(-1)
        target = rewards + self.gamma * values[1:].detach()
        advantage = target - values[:-1]  # mistake: advantage = target - values
        log_prob = torch.log_softmax(self.actor(obs[:-1]), dim=-1).gather(1, actions[:, None]).squeeze(1)
        return -(log_prob * advantage.detach()).mean() + advantage.pow(2).mean()


# run:
ActorCritic()(torch.randn(21, 6), torch.randint(0, 3, (20,)), torch.randn(20)).backward()
