# silent: softmax is taken over the batch, so that the probabilities of one example do not add up to one
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


class Policy(nn.Module):
    def __init__(self, n_states=20, n_actions=4):
        super().__init__()
        self.net = Net(n_states, 64, n_actions)

    def forward(self, state):
        return F.softmax(self.net(state), dim=1)  # mistake: return F.softmax(self.net(state), dim=0)


def surprise(policy, states, actions):
    probabilities = policy(states)
    return -torch.log(probabilities.gather(1, actions.unsqueeze(1))).mean()


torch.manual_seed(0)
policy = Policy()
print(surprise(policy, torch.randn(16, 20), torch.randint(0, 4, (16,))).item())
