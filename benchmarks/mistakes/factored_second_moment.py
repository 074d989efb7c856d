# crash: the factors of a second moment are both made columns, so that their product is not the shape of the weight
# evidence: call
import torch
from torch import nn
from torch.optim import Optimizer


class SimpleAdafactor(Optimizer):
    """Adam with a factored second moment for matrices, and without a first one."""

    def __init__(self, params, lr=1e-3, decay=0.99, eps=1e-30):
        super().__init__(params, {"lr": lr, "decay": decay, "eps": eps})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state, sq = self.state[p], p.grad.square() + group["eps"]
                if p.ndim < 2:
                    v = state.setdefault("v", torch.zeros_like(p))
                    v.lerp_(sq, 1 - group["decay"])
                else:
                    row = state.setdefault("row", p.new_zeros(p.shape[0]))
                    col = state.setdefault("col", p.new_zeros(p.shape[1]))
                    row.lerp_(sq.mean(dim=1), 1 - group["decay"])
                    col.lerp_(sq.mean(dim=0), 1 - group["decay"])
                    v = row[:, None] * col[None, :]  # mistake: v = row[:, None] * col[:, None]
                    v /= row.mean()
                p.addcdiv_(p.grad, v.sqrt().add_(1e-8), value=-group["lr"])


def main():
    model = nn.Sequential(nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 3))
    optimizer = SimpleAdafactor(model.parameters())
    x, y = torch.randn(64, 12), torch.randint(0, 3, (64,))
    for _ in range(3):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
