# crash: the gradient of a vector of scores needs grad_outputs, "grad can be implicitly created only for scalar outputs"
# evidence: none
import torch
from torch import Tensor, autograd, nn


def gradient_penalty(critic: nn.Module, real: Tensor, fake: Tensor, weight: float = 10.0) -> Tensor:
    """The penalty of WGAN-GP on random points between real and generated images."""
    alpha = torch.rand(real.size(0), 1, 1, 1, device=real.device)
    mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    scores = critic(mixed)
    grads = autograd.grad(
        outputs=scores,
        inputs=mixed,
        grad_outputs=torch.ones_like(scores),  # mistake: grad_outputs=None,
        create_graph=True,
    )[0]
    norm = grads.flatten(1).norm(2, dim=1)
    return weight * ((norm - 1) ** 2).mean()


class Critic(nn.Module):
    def __init__(self, channels: int = 3, base: int = 32):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(channels, base, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(base, 2 * base, 4, 2, 1),
            nn.InstanceNorm2d(2 * base, affine=True),
            nn.LeakyReLU(0.2),
        )
        self.out = nn.Linear(2 * base, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.net(x).mean(dim=(2, 3)))


# run:
gradient_penalty(Critic(), torch.randn(8, 3, 32, 32), torch.randn(8, 3, 32, 32)).backward()
