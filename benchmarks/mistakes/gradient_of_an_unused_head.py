# crash: gradients are asked for of all parameters, and one head has no part in the loss
# evidence: call
import torch
import torch.nn.functional as F
from torch import nn


class TwoHeads(nn.Module):
    def __init__(self, features=10, hidden=32):
        super().__init__()
        self.trunk = nn.Linear(features, hidden)
        self.value = nn.Linear(hidden, 1)
        self.policy = nn.Linear(hidden, 4)

    def forward(self, x):
        h = torch.tanh(self.trunk(x))
        return self.policy(h), self.value(h).squeeze(-1)


def inner_step(model, states, actions, rate=0.1):
    """One step of gradient descent whose result still depends on the parameters (meta learning)."""
    logits, _ = model(states)
    loss = F.cross_entropy(logits, actions)
    names, parameters = zip(*model.named_parameters(), strict=True)
    gradients = torch.autograd.grad(loss, parameters, create_graph=True, allow_unused=True)  # mistake: gradients = torch.autograd.grad(loss, parameters, create_graph=True)
    return {n: p if g is None else p - rate * g for n, p, g in zip(names, parameters, gradients, strict=True)}


if __name__ == "__main__":
    model = TwoHeads()
    fast = inner_step(model, torch.randn(16, 10), torch.randint(0, 4, (16,)))
    logits, _ = torch.func.functional_call(model, fast, (torch.randn(16, 10),))
    logits.logsumexp(dim=1).mean().backward()
