# crash: the target of a mixture density network has no dimension for the components
# evidence: none
import math

import torch
import torch.nn as nn


class MixtureDensity(nn.Module):
    def __init__(self, in_dim=4, out_dim=2, components=5, hidden=32):
        super().__init__()
        self.components, self.out_dim = components, out_dim
        self.body = nn.Sequential(nn.Linear(in_dim, hidden), nn.Tanh())
        self.logits = nn.Linear(hidden, components)
        self.mu = nn.Linear(hidden, components * out_dim)
        self.log_sigma = nn.Linear(hidden, components * out_dim)

    def forward(self, x, y):
        h = self.body(x)
        log_pi = torch.log_softmax(self.logits(h), dim=-1)
        mu = self.mu(h).view(-1, self.components, self.out_dim)
        log_sigma = self.log_sigma(h).view(-1, self.components, self.out_dim)
        z = (y.unsqueeze(1) - mu) / log_sigma.exp()  # mistake: z = (y - mu) / log_sigma.exp()
        log_prob = (-0.5 * z**2 - log_sigma - 0.5 * math.log(2 * math.pi)).sum(-1)
        return -torch.logsumexp(log_pi + log_prob, dim=-1).mean()


# run:
MixtureDensity()(torch.randn(16, 4), torch.randn(16, 2)).backward()
