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
    #  ^^^^^^^^^^^^^^^^^^^^^^^^^^^ information[dimension]:
    #  the trace assumes that the check `torch.min(x) < low or not (x < 10).all()` passes.
        (x < 10)
        .all()
    ):
        raise ValueError("out of range")
    return x.sqrt()

# fx: x=f32[4, 8]
def asserted(x):
    assert not x.isnan().any() and (x > 0).all(), "bad"
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ information[dimension]:
    #  the trace assumes that the check `not x.isnan().any() and (x > 0).all()` passes.
    return x.log()

# fx: x=f32[4, 8]
def otherwise(x):
    if x.max() <= 1:
    #  ^^^^^^^^^^^^ information[dimension]: the trace assumes that the check `x.max() <= 1` passes.
        y = x * 2
    else:
        raise ValueError
    return y

# fx: x=f32[4, 8]
def told(x):
    if x.abs().max() > 1e4:
    #  ^^^^^^^^^^^^^^^^^^^ information[dimension]: the trace assumes that the check `x.abs().max() > 10000.0` passes.
        warnings.warn("large")
        log.warning("large")
    return x * 2

# fx: x=f32[4, 8]
def counted(x):
    total = x.sum().item()
    #       ^^^^^^^^^^^^^^ information[dimension]:
    #  the value of `x.sum().item()` is assumed: a trace has shapes but no values.
    if total < 0:
    #  ^^^^^^^^^ information[dimension]: the trace assumes that the check `total < 0` passes.
        raise ValueError(total)
    return x * 2

# fx: x=f32[4, 8], mask=b8[4]
def chosen(x, mask):
    inside = x[mask]
    if inside.min() < 0:
    #  ^^^^^^^^^^^^^^^^ information[dimension]: the trace assumes that the check `inside.min() < 0` passes.
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
        #  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ information[dimension]:
        #  the trace runs the loop to its end: `(x - before).abs().max() < 0.001` may end it earlier.
            break
    return x

# fx: x=f32[4, 8]
def until(x):
    while True:
        x = x.tanh()
        if x.max() < 1:
        #  ^^^^^^^^^^^ information[dimension]:
        #  the trace leaves the loop in its second iteration, at `x.max() < 1`: it depends on a tensor's value, and
        #  torch.compile breaks the graph here.
            break
    return x

# fx: x=f32[4, 8]
def until_it_returns(x):
    while True:
        x = x.tanh()
        if x.max() < 1:
        #  ^^^^^^^^^^^ information[dimension]:
        #  the trace leaves the loop in its second iteration, at `x.max() < 1`: it depends on a tensor's value, and
        #  torch.compile breaks the graph here.
            return x

# fx: x=f32[4, 8]
def while_it_holds(x):
    while not (x.max() < 1 or x.min() > 0):
    #     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ information[dimension]:
    #  the trace runs two iterations of the loop, however long `not (x.max() < 1 or x.min() > 0)` is true: it depends
    #  on a tensor's value, and torch.compile breaks the graph here.
        x = x.tanh()
    for _ in range(2):
        while x.norm() > 1:
        #     ^^^^^^^^^^^^ information[dimension]:
        #  the trace runs two iterations of the loop, however long `x.norm() > 1` is true: it depends on a tensor's
        #  value, and torch.compile breaks the graph here.
            x = x.sin()
    return x

# fx: x=f32[4, 8]
def must_settle(x):
    for _ in range(3):
        x = x.tanh()
        if x.max() < 1e-3:
        #  ^^^^^^^^^^^^^^ information[dimension]:
        #  the trace leaves the loop in its second iteration, at `x.max() < 0.001`: it depends on a tensor's value,
        #  and torch.compile breaks the graph here.
            break
    else:
        raise RuntimeError("it did not settle")
    return x

# fx: x=f32[4, 8]
def remembers(x):
    for column in range(3):
        x = x.tanh()
        if x.max() < 1e-3:
        #  ^^^^^^^^^^^^^^ information[dimension]:
        #  the trace leaves the loop in its second iteration, at `x.max() < 0.001`: it depends on a tensor's value,
        #  and torch.compile breaks the graph here.
            settled = column
            break
    return x + settled

# fx: x=f32[4, 8]
def skips(x):
    for _ in range(3):
        if x.max() < 0:
        #  ^^^^^^^^^^^ information[dimension]:
        #  the trace assumes that `x.max() < 0` is false: it depends on a tensor's value, and torch.compile breaks the
        #  graph here.
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
    #  ^^^^^^^^^^^^^^^^^ information[dimension]:
    #  the trace assumes that `not (x > 0).any()` is false: it depends on a tensor's value, and torch.compile breaks
    #  the graph here.
        return x
    return x.sin()

# fx: x=f32[4, 8]
def returns_or_nothing(x):
    if (x > 0).any():
    #  ^^^^^^^^^^^^^ information[dimension]:
    #  the trace assumes that `(x > 0).any()` is true: it depends on a tensor's value, and torch.compile breaks the
    #  graph here.
        return x.sin()

# fx: x=f32[4, 8]
def otherwise_returns(x):
    if x.max() > 0 and len(x) > 2:
    #  ^^^^^^^^^^^^^^^^^^^^^^^^^^ information[dimension]:
    #  the trace assumes that `x.max() > 0 and len(x) > 2` is true: it depends on a tensor's value, and torch.compile
    #  breaks the graph here.
        x = x.sin()
    else:
        return x
    return x.cos()

# fx: x=f32[4, 8]
def exits(x):
    if x.isnan().any():
    #  ^^^^^^^^^^^^^^^ information[dimension]: the trace assumes that the check `x.isnan().any()` passes.
        print("nan")
        sys.exit(1)
    return x.sin()

# fx: x=f32[4, 8]
def conditional(x):
    chosen = [row for row in x if row.sum() > 0]
    #                             ^^^^^^^^^^^^^ information[dimension]:
    #  the trace assumes that `row.sum() > 0` is true: it depends on a tensor's value, and torch.compile breaks the
    #  graph here.
    both = x.sum() > 0 and x.sin()
    #      ^^^^^^^^^^^ information[dimension]:
    #  the trace assumes that `x.sum() > 0` is true: it depends on a tensor's value, and torch.compile breaks the
    #  graph here.
    either = x.sum() < 0 or x.cos()
    #        ^^^^^^^^^^^ information[dimension]:
    #  the trace assumes that `x.sum() < 0` is false: it depends on a tensor's value, and torch.compile breaks the
    #  graph here.
    return chosen[0] + both if x.mean() > 0 else either
    #                          ^^^^^^^^^^^^ information[dimension]:
    #  the trace assumes that `x.mean() > 0` is true: it depends on a tensor's value, and torch.compile breaks the
    #  graph here.

# fx: x=f32[4, 8]
def inside_of_a_check(x):
    if (x if x.sum() > 0 else -x).max() > 1:
    #  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ information[dimension]:
    #  the trace assumes that the check `(x if x.sum() > 0 else -x).max() > 1` passes.
    #        ^^^^^^^^^^^ information[dimension]:
    #  the trace assumes that `x.sum() > 0` is true: it depends on a tensor's value, and torch.compile breaks the
    #  graph here.
        raise ValueError
    return x.sin()

# fx: x=f32[4, 8]
def compares_a_number(x):
    largest = x.max().item()
    #         ^^^^^^^^^^^^^^ information[dimension]:
    #  the value of `x.max().item()` is assumed: a trace has shapes but no values.
    print(f"{largest:.3f}", round(largest, 2), float(x.min()), x.tolist()[0], x.detach().numpy())
    #                                          ^^^^^^^^^^^^^^ information[dimension]:
    #  the value of `float(x.min())` is assumed: a trace has shapes but no values.
    #                                                          ^^^^^^^^^^ information[dimension]:
    #  the value of `x.tolist()` is assumed: a trace has shapes but no values.
    #                                                                         ^^^^^^^^^^^^^^^^^^ information[dimension]:
    #  the value of `x.detach().numpy()` is assumed: a trace has shapes but no values.
    if largest + 1 > 10 or largest:
    #  ^^^^^^^^^^^^^^^^^^^^^^^^^^^ information[dimension]:
    #  the trace assumes that `largest + 1 > 10 or largest` is true: it depends on a tensor's value, and torch.compile
    #  breaks the graph here.
        x = x.sin()
    return x

# fx: x=f32[4, 8]
def never_ends(x):
    waiting = [0]
    while waiting:
        if x.max() > 0:
        #  ^^^^^^^^^^^ information[data-dependent]:
        #  `if x.max() > 0:` branches on a tensor's value, and a trace has shapes but no values. Use `torch.where`
        #  (both sides are computed) or `torch.cond`, or branch on shapes.
            waiting.append(1)
    return x

# fx: x=f32[4, 8]
def both_raise(x):
    if x.sum() > 0:
    #  ^^^^^^^^^^^ information[data-dependent]:
    #  `if x.sum() > 0:` branches on a tensor's value, and a trace has shapes but no values. Use `torch.where` (both
    #  sides are computed) or `torch.cond`, or branch on shapes.
        raise ValueError
    else:
        raise TypeError
#: either [ops]() -> f32[4, 8]
#:   ops: sqrt
#: asserted [ops]() -> f32[4, 8]
#:   ops: log
#: otherwise [ops]() -> f32[4, 8]
#:   ops: mul
#: told [ops]() -> f32[4, 8]
#:   ops: mul
#: exits [ops]() -> f32[4, 8]
#:   ops: sin
#: settles [ops]() -> f32[4, 8]
#:   ops: tanh, tanh, tanh
#: chosen [ops]() -> f32[4, 8]
#:   note: numbers and sizes that depend on the values of tensors are shown as names
#:   ops: index, zeros_like, sqrt, index_put
#: until [ops]() -> f32[4, 8]
#:   ops: tanh, tanh
#: until_it_returns [ops]() -> f32[4, 8]
#:   ops: tanh, tanh
#: while_it_holds [ops]() -> f32[4, 8]
#:   ops: tanh, tanh, sin, sin, sin, sin
#: must_settle [ops]() -> f32[4, 8]
#:   ops: tanh, tanh
#: remembers [ops]() -> f32[4, 8]
#:   ops: tanh, tanh, add
#: skips [ops]() -> f32[4, 8]
#:   ops: tanh, tanh, tanh
#: branch [ops]() -> f32[4, 8]
#:   ops: sin
#: returns_early [ops]() -> f32[4, 8]
#:   ops: sin
#: returns_or_nothing [ops]() -> f32[4, 8]
#:   ops: sin
#: otherwise_returns [ops]() -> f32[4, 8]
#:   ops: sin, cos
#: conditional [ops]() -> f32[4, 8]
#:   ops: unbind, getitem, sin, add
#: inside_of_a_check [ops]() -> f32[4, 8]
#:   ops: sin
#: counted [ops]() -> f32[4, 8]
#:   ops: mul
#: compares_a_number [ops]() -> f32[4, 8]
#:   ops: sin
#: inside_of_torch() -> f32[4, 8]
#: both_raise()
#: never_ends()

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

# === A value of which there is no symbol
# fx: x=f32[4, 8]
def f(x):
    scale = x.max().item()
    #       ^^^^^^^^^^^^^^ information[dimension]:
    #  the value of `x.max().item()` is assumed: 3.182359457015991, computed from random values.
    y = x * scale
    return y / max(y.sum(), y.max())
    #          ^^^^^^^^^^^^^^^^^^^^^ information[dimension]:
    #  the value of `max(y.sum(), y.max())` is assumed: False, computed from random values.
    #          ^^^^^^^^^^^^^^^^^^^^^ information[dimension]:
    #  `max(y.sum(), y.max())` compares the values of tensors, and a trace has shapes but no values; the trace
    #  continues with random values. Use `torch.maximum`, or stack the tensors and use `amax`: the result stays a
    #  tensor.
#: f() -> f32[4, 8]
#:   note: traced with random values: the code needs the values of tensors
