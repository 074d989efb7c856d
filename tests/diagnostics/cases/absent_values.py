# targets: HeldMask, Scaler.fit, Scaler.transform, Shard, penalty, filled_by_a_loop, of_an_absent_package, Net, Small,
#  Norm, asserted, ExtraLayers, Words, at_a_point
import argparse
import os
from urllib.request import Request

import numpy as np
import torch
from torch import nn

try:
    import no_such_package as fast
except ImportError:
    fast = None


class Mask:
    def __init__(self, rows, device="cpu"):
        self.mask = torch.ones(rows, 1, rows, rows, dtype=torch.bool)


class HeldMask(nn.Module):
    def forward(self, queries, keys, mask: Mask):
        B, L, H, E = queries.shape
        scores = torch.einsum("blhe,bshe->bhls", queries, keys)
        return scores.masked_fill(mask.mask, 0.0)


class Scaler:
    def __init__(self):
        self.mean = 0.0

    def fit(self, data):
        self.mean = data.mean(0)

    def transform(self, data):
        return data.relu() - torch.mean(self.mean)


class Shard(nn.Module):
    def __init__(self, width: int = 8):
        super().__init__()
        self.rank, self.layer = int(os.environ["SHARD_OF_MODEL"]), nn.Linear(width, width)

    def forward(self, x):
        return self.layer(x)


def penalty(output, x):
    gradient = torch.autograd.grad(output, x, torch.ones(output.size()), create_graph=True)[0]
    #          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ information[inputs]:
    #  element 0 of tensors does not require grad and does not have a grad_fn ((f32[4, 64],), (f32[8, 32],), f32[4,
    #  64]). The inputs are guessed; write the real ones in a comment: `# fx: output=f32[4, 64], x=f32[8, 32]`.
    return (gradient.norm(2, dim=1) - 1).pow(2).mean()


def filled_by_a_loop(x: torch.Tensor, rows=()):
    values = [row * x for row in rows]
    return x + float(np.concatenate(values).sum())
    #                ^^^^^^^^^^^^^^^^^^^^^^ information[dimension]:
    #  the value of `np.concatenate(values)` is assumed: a trace has shapes but no values.


def of_an_absent_package(x: torch.Tensor):
    return fast.kernel(x.relu())
    #      ^^^^^^^^^^^ information[inputs]:
    #  AttributeError: 'NoneType' object has no attribute 'kernel'. The inputs are guessed; write the real ones in a
    #  comment: `# fx: x=f32[4, 64]`.


class Net(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.classes, self.fc = classes, nn.Linear(8, 8)

    def forward(self, x):
        return self.fc(x)


class Small(Net):
    def __init__(self, **options):
        super().__init__(**options)
        assert self.classes == 0
        #      ^^^^^^^^^^^^^^^^^ information[construct]:
        #  AssertionError (constructing Small). Write its arguments in a comment: `# fx: init(…)`.


class Norm(nn.Module):
    def __init__(self, mean):
        super().__init__()
        self.mean = torch.tensor(mean).view(1, 3, 1, 1)

    def forward(self, x):
        return x - self.mean


def asserted(x: torch.Tensor):
    y = x.relu()
    assert y.dtype == torch.bfloat16
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^ information[inputs]:
    #  AssertionError. The inputs are guessed; write the real ones in a comment: `# fx: x=f32[4, 64]`.
    return y * 2


class ExtraLayers(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.conv = nn.Conv2d(3, args.extra, 3)

    def forward(self, x):
        return self.conv(x)
        #      ^^^^^^^^^^^^ information[inputs]:
        #  Given groups=1, expected weight to be at least 1 at dimension 0, but got weight of size [0, 3, 3, 3]
        #  instead (input: f32[4, 3, 64, 64], weight: f32[0, 3, 3, 3], bias: f32[0]). The inputs are guessed; write
        #  the real ones in a comment: `# fx: init(args=…), x=f32[4, 3, 64, 64]`.


class Words(nn.Module):
    def __init__(self, file):
        super().__init__()
        self.fc, self.request = nn.Linear(8, 8), Request(file)
        #                                        ^^^^^^^^^^^^^ information[construct]:
        #  unknown url type: 'Gives(result=Tensor(..., size=(4, 8, 64), requires_grad=True))' (constructing Words).
        #  The inputs are guessed; write the real ones in a comment: `# fx: init(file=…)`.

    def forward(self, x):
        return self.fc(x)


def at_a_point(spec: torch.Tensor):
    point = spec[0][spec.shape[1] // 2][3]
    return spec + torch.tensor([[[2, point]]]).sum()
    #             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^ information[data-dependent]:
    #  the code needs the value of a tensor here (`aten._local_scalar_dense.default`), and a trace has shapes but no
    #  values. Branch on shapes instead, use `torch.where`, or move this part out of the traced function.


parser = argparse.ArgumentParser()
parser.add_argument("--extra", type=int, default=0)
net = ExtraLayers(parser.parse_args())
words = Words("words.json")
