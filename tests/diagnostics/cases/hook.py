# targets: Hooked, summed
import torch
import torch.nn as nn


class Hooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 2)
        self.a.register_forward_hook(lambda module, args, out: (out[0] * 2,) + out[1:])
        #                                                      ^^^^^^^^^^^^^^^^^^^^^^^ error[error]:
        #  TypeError: can only concatenate tuple (not "Tensor") to tuple.

    def forward(self, x):
        return self.b(self.a(x))


def summed(x):  # fx: x=f32[8]
    return "total: " + x.sum()
    #      ^^^^^^^^^^^^^^^^^^^ error[error]: TypeError: can only concatenate str (not "Tensor") to str.
