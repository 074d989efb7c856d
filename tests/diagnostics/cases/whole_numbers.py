# targets: shown, compared
import torch


def shown(x: torch.Tensor):
    n = int(x.sum())
    #   ^^^^^^^^^^^^ information[dimension]: the value of `int(x.sum())` is assumed: 1, computed from random values.
    #   ^^^^^^^^^^^^ information[dimension]:
    #  `n = int(x.sum())` turns a tensor into a Python number: `range(n)` counts up to a tensor's value, and a trace
    #  has shapes but no values; the trace continues with random values. Use a fixed number of iterations, or pass the
    #  number as an argument.
    print(list(range(n))[:1])
    return x * 2


def compared(a: torch.Tensor, x: torch.Tensor):
    same = a.shape == (x.shape[1], x.shape[-1])
    return x.sum() * (2 if same else 1) + a.sum()
