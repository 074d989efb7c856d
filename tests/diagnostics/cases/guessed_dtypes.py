# targets: scaled_mm, given, transposed, decayed, trained
import torch
from torch import Tensor


@torch.library.custom_op("guessed::scaled_mm", mutates_args=())
def scaled_mm(x: Tensor, w: Tensor, scale: float) -> Tensor:
#   ^^^^^^^^^ information[dimension]:
#  scaled_mm: the fake kernel of `guessed::scaled_mm` returns f32[4, 8], the operator itself bf16[4, 8].
    return (x.float() @ w.float().T * scale).to(torch.bfloat16)


@scaled_mm.register_fake
def _(x: Tensor, w: Tensor, scale: float) -> Tensor:
    return x @ w.T


# fx: x=f32[4, 8], w=f32[8, 8]
def given(x, w):
    return scaled_mm(x, w, 2.0)
    #      ^^^^^^^^^^^^^^^^^^^^ warning[dimension]:
    #  the fake kernel of `guessed::scaled_mm` returns f32[4, 8], the operator itself bf16[4, 8].


@torch.library.custom_op("guessed::transposed", mutates_args=())
def transposed(x: Tensor) -> Tensor:
#   ^^^^^^^^^^ warning[dimension]:
#  transposed: the fake kernel of `guessed::transposed` returns f32[4, 64], the operator itself f32[64, 4](1, 64).
    return x.T.clone()


@transposed.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def decayed(update):
    scale = update.sigmoid()
    scale.mul_(0.9)
    return update * scale


def trained(update):
    scale = update.sigmoid()
    scale.mul_(0.9)
   #^^^^^^^^^^^^^^^ warning[changed-in-place]:
   #  the backward pass fails: this modifies in place a tensor that sigmoid saved for it.
    return update * scale


class Optimizer(torch.optim.Optimizer):
    def __init__(self, params, lr=0.1):
        super().__init__(params, dict(lr=lr))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(decayed(p.grad), alpha=-group["lr"])
