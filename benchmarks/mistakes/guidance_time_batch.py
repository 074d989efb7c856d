# crash: classifier-free guidance doubles the latents and the conditions, but not the time steps
# evidence: call
import torch
from torch import nn


class ConditionalDenoiser(nn.Module):
    def __init__(self, dim=16, num_classes=10, hidden=64, steps=100):
        super().__init__()
        self.null_class = num_classes
        self.cond = nn.Embedding(num_classes + 1, hidden)
        self.time = nn.Embedding(steps, hidden)
        self.inp = nn.Linear(dim, hidden)
        self.net = nn.Sequential(nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, dim))

    def forward(self, x, t, y):
        return self.net(self.inp(x) + self.time(t) + self.cond(y))


def guided(model, x, t, y, scale=3.0):
    """The prediction with guidance, both halves in one batch."""
    null = torch.full_like(y, model.null_class)
    x_in = torch.cat([x, x])
    y_in = torch.cat([y, null])
    t_in = torch.cat([t, t])  # mistake: t_in = t
    cond, uncond = model(x_in, t_in, y_in).chunk(2)
    return uncond + scale * (cond - uncond)


@torch.inference_mode()
def sample(model, y, steps=5, dim=16):
    x = torch.randn(y.size(0), dim)
    for i in reversed(range(steps)):
        t = torch.full((y.size(0),), i, dtype=torch.long)
        x = x - guided(model, x, t, y) / steps
    return x


if __name__ == "__main__":
    samples = sample(ConditionalDenoiser(), torch.arange(10))
    print(samples.shape)
