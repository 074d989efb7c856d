"""Loops that write what they make into a tensor, `out[t] = y`: one kernel with a loop, as where it is stacked."""

import pytest
import torch
from inline_snapshot import snapshot
from interpreted import captured, checked, generated, kernels_in


def returns(rewards):
    """From the end, into a tensor that nobody has filled."""
    total, out = torch.zeros_like(rewards[0]), torch.empty_like(rewards)
    for t in range(len(rewards) - 1, -1, -1):
        total = rewards[t] + 0.9 * total
        out[t] = total
    return out


def along_time(x):
    s, out = torch.zeros_like(x[..., 0]), torch.zeros_like(x)
    for t in range(x.size(-1)):
        s = 0.5 * s + x[..., t]
        out[..., t] = s
    return out


def own(x):
    """Each step reads what the one before it has written; the first row stays as it was."""
    h = x.new_zeros(len(x) + 1, *x.shape[1:])
    for t in range(len(x)):
        h[t + 1] = 0.9 * h[t] + x[t]
    return h


def twice(x):
    out = torch.zeros_like(x)
    for t in range(len(x)):
        out[t] = x[t] * 2
    for t in range(1, len(x)):
        out[t] = out[t] + out[t - 1]
    return out


def added(x):
    y = x.clone()
    for t in range(1, len(x)):
        y[t] += 0.5 * y[t - 1]
    return y


def some(x):
    y = x * 2
    for t in range(2, 8):
        y[t] = torch.sin(x[t])
    return y


def pairs(x):
    out = x.new_zeros(3, 24)
    for t in range(8):
        out[:, 3 * t : 3 * t + 2] = x[t, :, :2] * (t + 1)
    return out


def overlapping(x):
    out = x.new_zeros(12, *x.shape[1:])
    for t in range(8):
        out[t : t + 3] = out[t : t + 3] + x[t]
    return out


def every_other(x):
    out = x.new_zeros(16, *x.shape[1:])
    for t in range(8):
        out[2 * t] = x[t]
    out[1::2] = x * 3
    return out


def looked_at_between(x):
    out, sums = torch.zeros_like(x), []
    for t in range(len(x)):
        out[t] = x[t] * 2
        if t % 3 == 0:
            sums.append(out.sum())
    return out, sum(sums)


def cleared(x):
    """What is read was written as zeros."""
    y = x.clone()
    y[2] = 0.0
    return y[2] + x[0], y


def of_another_dtype(x):
    out = torch.zeros(x.shape, dtype=torch.float64)
    for t in range(len(x)):
        out[t] = x[t].exp()
    return out * 2


def through_slices(x):
    """A slice that lies in what was written, and one that holds several parts of it."""
    out = torch.zeros_like(x)
    for t in range(0, len(x), 2):
        out[t : t + 2] = x[t : t + 2].tanh()
    return out[3:4] * 2, out[1:7] - 1


FUNCTIONS = (
    *(returns, along_time, own, twice, added, some, pairs, overlapping, every_other, looked_at_between),
    *(cleared, of_another_dtype, through_slices),
)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_forward_and_backward(function):
    torch.manual_seed(0)
    kernels = kernels_in(checked(function, [torch.rand(8, 3, 40).sub(0.5).requires_grad_()]))
    if function in (returns, along_time, twice):
        assert [k.count("for step in ") for k in kernels] == [1, 1]


def test_the_kernels_of_returns():
    kernels = kernels_in(generated(captured(returns, [torch.rand(12, 3, 40).requires_grad_()])))
    assert [k.partition("\n\n\n@")[0] for k in kernels] == snapshot(
        [
            """\
def f_forward_kernel(primals_1_ptr, select_scatter_11_ptr, N: tl.constexpr,
                     BLOCK: tl.constexpr, STAGES: tl.constexpr):
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < N
    primals_1 = tl.load(primals_1_ptr + cols + 11 * N, mask=mask)
    tl.store(select_scatter_11_ptr + cols + 11 * N, primals_1, mask=mask)
    add = primals_1
    for step in tl.range(1, 12, num_stages=STAGES):
        primals = tl.load(primals_1_ptr + cols + (11 - step) * N, mask=mask)
        add_1 = primals + add * 0.9
        tl.store(select_scatter_11_ptr + cols + (11 - step) * N, add_1, mask=mask)
        add = add_1\
""",
            """\
def f_backward_kernel(tangents_1_ptr, add_33_ptr, N: tl.constexpr, BLOCK: tl.constexpr,
                      STAGES: tl.constexpr):
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < N
    tangents_1 = tl.load(tangents_1_ptr + cols, mask=mask)
    tl.store(add_33_ptr + cols, tangents_1, mask=mask)
    add = tangents_1
    for step in tl.range(1, 12, num_stages=STAGES):
        tangents = tl.load(tangents_1_ptr + cols + step * N, mask=mask)
        add_1 = add * 0.9 + tangents
        tl.store(add_33_ptr + cols + step * N, add_1, mask=mask)
        add = add_1\
""",
        ]
    )
