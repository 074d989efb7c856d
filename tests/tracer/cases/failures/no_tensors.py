# What turns out to be no tensor code is nothing: no lens, no failure.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === Tensor code that needs what nobody knows is a failure
def f(x, config):
    width = config.load()['width'].real
    #       ^^^^^^^^^^^^^ information[inputs]:
    #  TypeError: Identity.forward() missing 1 required positional argument: 'input'. The inputs are guessed; write
    #  the real ones in a comment: `# fx: x=f32[4, 64], config=…`.
    return F.relu(x) * width
#: f(x=f32[4, 64], config=nn.ModuleDict({'load': nn.Identity()}) · search)

# === Methods of an object that cannot be made
import json

class Schedule:
    def __init__(self, betas):
        self.betas = json.loads(betas)
        #            ^^^^^^^^^^^^^^^^^ information[construct]:
        #  TypeError: the JSON object must be str, bytes or bytearray, not SimpleNamespace (constructing Schedule).
        #  The inputs are guessed; write the real ones in a comment: `# fx: init(betas=…)`.
        #  line 13: traced Schedule.f

    def f(self, x):
        return x.sum(dim=0) * self.betas

    def g(self, x):
    #   ^ information[nothing]:
    #  Schedule.g runs no PyTorch operation before it fails: TypeError: the JSON object must be str, bytes or
    #  bytearray, not SimpleNamespace (constructing Schedule).
        return x.sum()
#: Schedule.f(init.betas=SimpleNamespace(count=8, rfind=2, startswith=0, decode=Identity()) · search)
#: Schedule.g()
#:   information[nothing]: Schedule.g runs no PyTorch operation before it fails: TypeError: the JSON object must be str,
#:     bytes or bytearray, not SimpleNamespace (constructing Schedule)

# === An operation that does not fit is a failure
def f(x):
    y = x.sum(0)
    return y.nonsense + x.shape[0]
    #      ^^^^^^^^^^ error[error]: AttributeError: 'Tensor' object has no attribute 'nonsense'.
#: f(x=f32[4, 64] · search)
