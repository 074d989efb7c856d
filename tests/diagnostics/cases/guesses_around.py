# targets: make.init, scheduled.loss_fn, wrong.apply, rotate.inner, sized.apply, sampler.around.apply
import math

import torch
import torch.nn.functional as F


def make(initializer, experts, shape):
    def init(weight):
        size = math.prod(shape)
        #      ^^^^^^^^^^^^^^^^ information[inputs]:
        #  TypeError: 'int' object is not iterable. The arguments of the enclosing function make are guessed:
        #  `experts`, `initializer`, `shape`. Write a `# fx:` comment there.
        if weight.ndim != 2 or weight.shape[0] != experts or weight.shape[1] != size:
            raise ValueError("weight must be [experts, prod(shape)]")
        for i in range(experts):
            initializer(weight[i].view(shape))

    return init


def scheduled(model, steps):
    def loss_fn(x, target):
        out = model.net(x)
        return F.mse_loss(out, target) * steps[0]

    return loss_fn


def wrong(scale):
    def apply(x: torch.Tensor):
        return x.view(3, 7) @ torch.ones(4, 4) * scale
        #      ^^^^^^^^^^^^ warning[shape]:
        #  `x.view(3, 7)` only works when x.shape[0] == 3. Is a dimension missing or swapped?

    return apply


def rotate(angles):
    def inner(x: torch.Tensor):
        c, s = angles
        return x * c + x.roll(1, -1) * s

    return inner


def sized(width):
    def apply(x: torch.Tensor):
        kernel = torch.ones(width, width)
        return x.view(-1, 7) @ kernel
        #      ^^^^^^^^^^^^^^^^^^^^^^ information[inputs]:
        #  matrices of 256×7 and 8×8 cannot be multiplied: the inner sizes 7 and 8 differ (x.view(-1, 7): f32[256, 7],
        #  kernel: f32[8, 8]). The arguments of the enclosing function sized are guessed: `width`. Write a `# fx:`
        #  comment there.

    return apply


def sampler(weights):
    def around(update):
        def apply(x: torch.Tensor):
            return x.view(-1, 7) @ update
            #      ^^^^^^^^^^^^^^^^^^^^^^ information[inputs]:
            #  size mismatch, got input (256x7), vec (64) (x.view(-1, 7): f32[256, 7], update: f32[64]). The arguments
            #  of the enclosing function sampler.around are guessed: `update`. Write a `# fx:` comment there.

        return apply

    return around(weights[0])
