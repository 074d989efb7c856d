# crash: the critic is updated before the backward pass of the actor, "modified by an inplace operation"
# evidence: call
import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self, n_in=20, hidden=64, n_out=10):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_in, hidden), nn.ReLU())
        self.head = nn.Linear(hidden, n_out)

    def forward(self, x):
        return self.head(self.body(x))


def update(actor, critic, opt_actor, opt_critic, state, reward):
    action = actor(state)
    value = critic(torch.cat([state, action.detach()], dim=1)).squeeze(1)
    actor_loss = -critic(torch.cat([state, action], dim=1)).mean()
    critic_loss = F.mse_loss(value, reward)
    opt_critic.zero_grad()
    critic_loss.backward()
    pass  # mistake: opt_critic.step()
    opt_actor.zero_grad()
    actor_loss.backward()
    opt_actor.step()
    opt_critic.step()  # mistake: pass
    return critic_loss.item(), actor_loss.item()


if __name__ == "__main__":
    actor, critic = Net(8, 64, 2), Net(10, 64, 1)
    opt_actor = torch.optim.Adam(actor.parameters(), lr=1e-4)
    opt_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    for _ in range(3):
        print(update(actor, critic, opt_actor, opt_critic, torch.randn(32, 8), torch.randn(32)))
