"""Loops of which only what the last step leaves is needed: a step is written once, though none stores anything."""

import pytest
import torch
from inline_snapshot import snapshot
from interpreted import captured, checked, generated, named_kernels, wrong
from parameters import some

from fx_lsp.tracer.kernels.triton import deep_recursion


def leaky(x):
    v = torch.zeros_like(x[0])
    for t in range(len(x)):
        v = 0.9 * v + torch.tanh(x[t])
    return v


def through_more(x):
    return torch.relu(leaky(x) - 0.1) * 2.0


def two_states(x, w):
    current, v = torch.zeros_like(x[0]), torch.zeros_like(x[0])
    for t in range(len(x)):
        current = 0.8 * current + x[t]
        v = torch.sigmoid(w) * v + current
    return v


def both_states(x, w):
    current, v = torch.zeros_like(x[0]), torch.zeros_like(x[0])
    for t in range(len(x)):
        current = 0.8 * current + x[t]
        v = torch.sigmoid(w) * v + current
    return v, current


def gated(x, h):
    """A recurrence with gates of its own for each element."""
    for t in range(len(x)):
        gate = torch.sigmoid(x[t] + h)
        h = gate * h + (1 - gate) * torch.tanh(x[t] * h)
    return h


def counted(x):
    """How often a threshold is passed, and what is left in the end."""
    v, n = torch.zeros_like(x[0]), torch.zeros_like(x[0])
    for t in range(len(x)):
        v = 0.9 * v + x[t]
        s = (v > 0.5).to(v.dtype)
        v, n = v * (1 - s), n + s
    return n, v


def from_the_second(x):
    s = x[:, 0]
    for t in range(1, x.shape[1]):
        s = 0.3 * x[:, t] + 0.7 * s
    return s


def peak(x):
    m = x[0]
    for t in range(1, len(x)):
        m = torch.maximum(m * 0.99, x[t])
    return m


def root(x):
    """Newton's method: no step takes anything of its own."""
    a, y = x[0].abs() + 1, x[1].abs() + 1
    for _ in range(8):
        y = y - (y * y - a) / (2 * y)
    return y


def runge_kutta(x, a):
    for _ in range(8):
        k1 = a * x - x * x
        k2 = a * (x + 0.05 * k1) - (x + 0.05 * k1) ** 2
        x = x + 0.1 * k2
    return x


def orbit(x, c):
    """Both states of the next step take both of this one, and what is counted takes neither of the next."""
    re, im, n = torch.zeros_like(x), torch.zeros_like(x), torch.zeros_like(x)
    for _ in range(12):
        re, im = re * re - im * im + x, 2 * re * im + c
        n = n + (re * re + im * im < 4).to(n.dtype)
    return n


SHAPES = {
    **dict.fromkeys((leaky, through_more, counted, peak), ((8, 3, 40),)),
    **dict.fromkeys((two_states, both_states), ((8, 3, 40), (40,))),
    **dict.fromkeys((gated, runge_kutta), ((8, 3, 40), (3, 40))),
    from_the_second: ((3, 9, 40),),
    root: ((2, 40),),
    orbit: ((3, 40), (3, 40)),
}


def inputs_of(function):
    torch.manual_seed(0)
    return [torch.rand(shape) - 0.5 for shape in SHAPES[function]]


def kernel_of(function, inputs):
    return named_kernels(generated(captured(function, inputs)))["f_kernel"]


@pytest.mark.parametrize("function", SHAPES)
def test_a_step_is_written_once(function):
    (found,) = named_kernels(checked(function, inputs_of(function))).values()
    assert found.count("for step in ") == 1, found
    assert found.count("tl.store(") == (2 if function in (both_states, counted) else 1)


@pytest.mark.parametrize("function", [f for f in SHAPES if f is not orbit])
def test_gradients(function):
    assert wrong(function, [i.requires_grad_() for i in inputs_of(function)]) == []


def test_the_kernel():
    assert kernel_of(two_states, inputs_of(two_states)) == snapshot("""\
f_kernel(arg1_1_ptr, arg0_1_ptr, add_15_ptr, M, N: tl.constexpr, ROWS: tl.constexpr,
             BLOCK: tl.constexpr):
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    rows_mask = rows < M
    cols = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    cols_mask = cols < N
    arg1_1 = tl.load(arg1_1_ptr + cols, mask=cols_mask, eviction_policy="evict_last")
    sigmoid_7 = tl.sigmoid(arg1_1)
    arg0_1 = tl.load(arg0_1_ptr + rows * N + cols, mask=rows_mask & cols_mask)
    add_1 = sigmoid_7 * 0.0 + arg0_1
    add = add_1
    add_2 = arg0_1
    for step in tl.static_range(1, 8):
        arg0 = tl.load(arg0_1_ptr + rows * N + cols + step * 120,
                       mask=rows_mask & cols_mask)
        add_3 = add_2 * 0.8 + arg0
        add_4 = sigmoid_7 * add + add_3
        add = add_4
        add_2 = add_3
    tl.store(add_15_ptr + rows * N + cols, add, mask=rows_mask & cols_mask)\
""")


def test_a_few_steps_are_written_out():
    assert "for step" not in kernel_of(leaky, [torch.randn(4, 3, 40)])


@pytest.mark.parametrize("dtype", some((torch.bfloat16, torch.float16), (torch.bfloat16,)), ids=str)
def test_half_precision(dtype):
    assert wrong(gated, [i.to(dtype).requires_grad_() for i in inputs_of(gated)]) == []


def test_numbers_that_change_from_step_to_step():
    def scheduled(x):
        for k in range(1, 10):
            x = x * (1 - 0.1 * k) + torch.sin(x) / k
        return x

    assert "for step" not in checked(scheduled, [torch.randn(3, 40)]).text


def test_another_operation_in_every_third_step():
    def irregular(x):
        v = x[0]
        for t in range(1, len(x)):
            v = torch.tanh(v + x[t]) if t % 3 else torch.exp(-v) * x[t]
        return v

    assert wrong(irregular, [torch.randn(17, 3, 40)]) == []


def test_hundreds_of_steps():
    def chain(x):
        for _ in range(300):
            x = torch.sin(x) + 0.5 * x
        return x

    with deep_recursion():
        assert named_kernels(checked(chain, [torch.randn(3, 40)]))["f_kernel"].count("tl.sin(") == 1


def test_states_of_a_loop_that_backward_saves_stacked_and_computes_another_stack() -> None:
    def chunked(k: torch.Tensor, v: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        k, v, g = (x.reshape(2, 32, 8, 4) for x in (k, v, g.sigmoid()))
        kv = (k * g).mT @ v
        state, states = torch.zeros_like(kv[:, 0]), []
        for i in range(32):
            states.append(state)
            state = state * g[:, i, -1][..., None] + kv[:, i]
        return k @ torch.stack(states, 1)

    assert wrong(chunked, [torch.randn(2, 256, 4, requires_grad=True) for _ in range(3)]) == []
