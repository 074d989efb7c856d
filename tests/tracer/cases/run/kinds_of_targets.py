# Everything that can be called is a target: nested functions, closures, autograd functions, what decorators wrap.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === What is spread as keywords is a dictionary
def guided(guide, x, t, options=None):
    return x + guide(x, t, **options)
#: guided(guide=lambda x, *others, **named: x, x=f32[4, 64], t=f32[8, 32], options={} · search) -> f32[4, 64]
