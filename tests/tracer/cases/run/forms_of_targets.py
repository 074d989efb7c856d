# Functions in forms other than a plain `def`: deeply nested, lambdas, partial applications, generators, coroutines.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === Each result has its spec where one is returned twice
# fx: x=f32[4, 2]
def f(x):
    h = x.sin()
    return h, h, h.sum(), {'a': [(h, x)]}
#: f() -> f32[4, 2], f32[4, 2], f32[], f32[4, 2], f32[4, 2]
