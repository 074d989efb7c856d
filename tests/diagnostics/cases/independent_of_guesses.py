# targets: Score, gradient_penalty, penalty_of_first, Colors, ColorsWithoutBias, Normalized, Residual
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--channels", type=int, default=24)
    parser.add_argument("--skips", type=int, default=40)
    return parser.parse_args()


class Score(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.skip = nn.Conv1d(args.channels, args.skips, 1)
        self.end = nn.Conv1d(args.channels, args.channels, 1)

    def forward(self, x):
        return self.end(F.relu(self.skip(x)))
        #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ error[shape]:
        #  Given groups=1, weight of size [24, 24, 1], expected input[4, 40, 64] to have 24 channels, but got 40
        #  channels instead (input: f32[4, 40, 64], weight: f32[24, 24, 1], bias: f32[24]).


def gradient_penalty(critic, mixed):
    gradients = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
    return (gradients.view(mixed.shape[0], -1).norm(2, dim=1) - 1).pow(2).mean()
    #       ^^^^^^^^^^^^^^ error[error]: AttributeError: 'tuple' object has no attribute 'view'.


def penalty_of_first(critic, mixed):
    gradients = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)[0]
    return (gradients.reshape(mixed.shape[0], -1).norm(2, dim=1) - 1).pow(2).mean()


class Colors(nn.Module):
    def __init__(self, base=16):
        super().__init__()
        self.first = nn.Conv2d(1, base, 3)
        nn.init.xavier_uniform_(self.first.bias)
       #^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ warning[construct]:
       #  Fan in and fan out can not be computed for tensor with fewer than 2 dimensions (constructing Colors). Write
       #  its arguments in a comment: `# fx: init(…)`.

    def forward(self, x):
        return self.first(x)


class ColorsWithoutBias(nn.Module):
    def __init__(self, base=16):
        super().__init__()
        self.first = nn.Conv2d(1, base, 3)
        nn.init.xavier_uniform_(self.first.weight)

    def forward(self, x):
        return self.first(x)


class Normalized(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.project = nn.Linear(width, width)

    def forward(self, x):
        return F.layer_norm(self.project(x), x.size(-1))
        #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ warning[shape]:
        #  TypeError: layer_norm(): argument 'normalized_shape' (position 2) must be tuple of ints, not int (input:
        #  f32[4, 12, 8]). The inputs are guessed; write the real ones in a comment: `# fx: init(width=8), x=f32[4,
        #  12, 8]`.


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.project = nn.Linear(width, width)

    def forward(self, x):
        return x + F.layer_norm(self.project(x), (x.size(-1),))
