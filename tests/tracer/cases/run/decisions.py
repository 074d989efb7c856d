# Code that a value decides: the trace goes the way that goes on, and says so at the condition.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === Code that a value decides
import logging
import sys
import warnings

from torch.distributions import Normal

log = logging.getLogger(__name__)

# fx: x=f32[4, 8], low=0.0
def either(x, low):
    if torch.min(x) < low or not (
        (x < 10)
        .all()
    ):
        raise ValueError("out of range")
    return x.sqrt()

# fx: x=f32[4, 8]
def asserted(x):
    assert not x.isnan().any() and (x > 0).all(), "bad"
    return x.log()

# fx: x=f32[4, 8]
def otherwise(x):
    if x.max() <= 1:
        y = x * 2
    else:
        raise ValueError
    return y

# fx: x=f32[4, 8]
def told(x):
    if x.abs().max() > 1e4:
        warnings.warn("large")
        log.warning("large")
    return x * 2

# fx: x=f32[4, 8]
def counted(x):
    total = x.sum().item()
    if total < 0:
        raise ValueError(total)
    return x * 2

# fx: x=f32[4, 8], mask=b8[4]
def chosen(x, mask):
    inside = x[mask]
    if inside.min() < 0:
        raise ValueError
    out = torch.zeros_like(x)
    out[mask] = inside.sqrt()
    return out

# fx: x=f32[4, 8], mean=f32[8], std=f32[8]
def inside_of_torch(x, mean, std):
    normal = Normal(mean, std, validate_args=True)
    #        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ information[dimension]:
    #  the trace assumes that the check `not torch._is_all_true(valid)` in distribution.py passes.
    return normal.log_prob(x)
    #      ^^^^^^^^^^^^^^^^^^ information[dimension]:
    #  the trace assumes that the check `not torch._is_all_true(valid)` in distribution.py passes.

# fx: x=f32[4, 8]
def settles(x):
    for _ in range(3):
        before = x
        x = x.tanh()
        if (x - before).abs().max() < 1e-3:
            break
    return x

# fx: x=f32[4, 8]
def until(x):
    while True:
        x = x.tanh()
        if x.max() < 1:
            break
    return x

# fx: x=f32[4, 8]
def until_it_returns(x):
    while True:
        x = x.tanh()
        if x.max() < 1:
            return x

# fx: x=f32[4, 8]
def while_it_holds(x):
    while not (x.max() < 1 or x.min() > 0):
        x = x.tanh()
    for _ in range(2):
        while x.norm() > 1:
            x = x.sin()
    return x

# fx: x=f32[4, 8]
def must_settle(x):
    for _ in range(3):
        x = x.tanh()
        if x.max() < 1e-3:
            break
    else:
        raise RuntimeError("it did not settle")
    return x

# fx: x=f32[4, 8]
def remembers(x):
    for column in range(3):
        x = x.tanh()
        if x.max() < 1e-3:
            settled = column
            break
    return x + settled

# fx: x=f32[4, 8]
def skips(x):
    for _ in range(3):
        if x.max() < 0:
            continue
        x = x.tanh()
    return x

# fx: x=f32[4, 8]
def branch(x):
    if x.sum() > 0:
    #  ^^^^^^^^^^^ information[dimension]:
    #  the trace assumes that `x.sum() > 0` is true: it depends on a tensor's value, and torch.compile breaks the
    #  graph here.
        x = x.sin()
    else:
        x = x.cos()
    return x

# fx: x=f32[4, 8]
def returns_early(x):
    if not (x > 0).any():
        return x
    return x.sin()

# fx: x=f32[4, 8]
def returns_or_nothing(x):
    if (x > 0).any():
        return x.sin()

# fx: x=f32[4, 8]
def otherwise_returns(x):
    if x.max() > 0 and len(x) > 2:
        x = x.sin()
    else:
        return x
    return x.cos()

# fx: x=f32[4, 8]
def exits(x):
    if x.isnan().any():
        print("nan")
        sys.exit(1)
    return x.sin()

# fx: x=f32[4, 8]
def conditional(x):
    chosen = [row for row in x if row.sum() > 0]
    both = x.sum() > 0 and x.sin()
    either = x.sum() < 0 or x.cos()
    return chosen[0] + both if x.mean() > 0 else either

# fx: x=f32[4, 8]
def inside_of_a_check(x):
    if (x if x.sum() > 0 else -x).max() > 1:
        raise ValueError
    return x.sin()

# fx: x=f32[4, 8]
def compares_a_number(x):
    largest = x.max().item()
    print(f"{largest:.3f}", round(largest, 2), float(x.min()), x.tolist()[0], x.detach().numpy())
    if largest + 1 > 10 or largest:
        x = x.sin()
    return x

# fx: x=f32[4, 8]
def never_ends(x):
    waiting = [0]
    while waiting:
        if x.max() > 0:
            waiting.append(1)
    return x

# fx: x=f32[4, 8]
def both_raise(x):
    if x.sum() > 0:
        raise ValueError
    else:
        raise TypeError
#: branch() -> f32[4, 8]
#: inside_of_torch() -> f32[4, 8]

# === Code that asks for one element is not suspected of it
def f(scores):
    while True:
        scores = torch.relu(scores - scores.mean(-1, keepdim=True))
        if torch.sigmoid(scores.sum(-1)) > 0.5:
        #  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ information[dimension]:
        #  the trace leaves the loop in its second iteration, at `torch.sigmoid(scores.sum(-1)) > 0.5`: it depends on
        #  a tensor's value, and torch.compile breaks the graph here.
            break
    return scores
#: f(scores=f32[1, 64] · search: one example: the code takes one at a time) -> f32[1, 64]
