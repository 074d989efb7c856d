# silent: advantages are a column of returns minus a vector of values, and the policy loss sums all pairs
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


class ActorCritic(nn.Module):
    def __init__(self, n_states=20, n_actions=4):
        super().__init__()
        self.actor, self.critic = Net(n_states, 64, n_actions), Net(n_states, 64, 1)

    def forward(self, states):
        return F.log_softmax(self.actor(states), dim=1), self.critic(states)


def losses(model, states, actions, returns):
    log_probs, values = model(states)
    advantage = returns - values.view(-1)  # mistake: advantage = returns - values
    chosen = log_probs.gather(1, actions[:, None]).squeeze(1)
    return -(chosen * advantage.detach()).mean(), advantage.pow(2).mean()


torch.manual_seed(0)
model = ActorCritic()
actor_loss, critic_loss = losses(model, torch.randn(32, 20), torch.randint(0, 4, (32,)), torch.randn(32))
(actor_loss + critic_loss).backward()
print(actor_loss.item(), critic_loss.item())
