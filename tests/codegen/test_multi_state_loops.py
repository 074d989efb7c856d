"""Loops whose steps do much: several states of which some begin later, stages within a step, a maximum that runs."""

import pytest
import torch
from inline_snapshot import snapshot
from interpreted import captured, checked, generated, kernels_in
from spiking import Spike


def adaptive(x):
    """A threshold that rises with each spike: there is none to add in the first step, and the last leaves nothing."""
    v, a = torch.zeros_like(x[0]), torch.zeros_like(x[0])
    out = []
    for t in range(len(x)):
        v = 0.9 * v + x[t]
        s = Spike.apply(v - 1.0 - 1.8 * a)
        a = 0.95 * a + s
        v = v * (1 - s)
        out.append(s)
    return torch.stack(out)


def runge_kutta(y, a, b):
    """Four stages, each of which adds to the gradients of y, a and b."""
    for _ in range(14):
        k1 = a * y * (1 - y * b)
        k2 = a * (y + 0.05 * k1) * (1 - (y + 0.05 * k1) * b)
        k3 = a * (y + 0.05 * k2) * (1 - (y + 0.05 * k2) * b)
        k4 = a * (y + 0.1 * k3) * (1 - (y + 0.1 * k3) * b)
        y = y + 0.1 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return y


def time_mixing(k, v, r, w, u):
    """RWKV's, with the maximum that has been passed so far taken out of the exponents."""
    aa, bb, pp = torch.zeros_like(k[0]), torch.zeros_like(k[0]), torch.full_like(k[0], -1e38)
    out = []
    for t in range(len(k)):
        ww = u + k[t]
        qq = torch.maximum(pp, ww)
        e1, e2 = torch.exp(pp - qq), torch.exp(ww - qq)
        out.append(torch.sigmoid(r[t]) * (e1 * aa + e2 * v[t]) / (e1 * bb + e2))
        ww = pp + w
        qq = torch.maximum(ww, k[t])
        e1, e2 = torch.exp(ww - qq), torch.exp(k[t] - qq)
        aa, bb, pp = e1 * aa + e2 * v[t], e1 * bb + e2, qq
    return torch.stack(out)


SHAPES = {
    adaptive: ((20, 3, 40),),
    runge_kutta: ((3, 40),) * 3,
    time_mixing: ((12, 3, 40),) * 3 + ((40,),) * 2,
}


def inputs_of(function):
    torch.manual_seed(0)
    scale = 3.0 if function is adaptive else 1.0
    return [(torch.rand(shape) - 0.3).mul(scale).requires_grad_() for shape in SHAPES[function]]


@pytest.mark.parametrize("function", SHAPES)
def test_forward_has_one_loop_and_backward_too(function):
    forward, backward = kernels_in(checked(function, inputs_of(function)))[:2]
    assert forward.count("for step in ") == 1, forward
    assert backward.count("for step in ") == (2 if function is runge_kutta else 1), backward
    if function is runge_kutta:  # of all stages, backward keeps what the step began with
        assert sum(" += (" in line for line in backward.splitlines()) == 1, backward


def test_the_kernel_of_a_threshold_that_rises():
    assert kernels_in(generated(captured(adaptive, inputs_of(adaptive))))[0] == snapshot("""\
def f_forward_kernel(primals_1_ptr, cat_ptr, add_of_all_ptr, sub_4_of_all_ptr,
                     pow_1_ptr, N: tl.constexpr, BLOCK: tl.constexpr,
                     STAGES: tl.constexpr):
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < N
    primals_1 = tl.load(primals_1_ptr + cols, mask=mask)
    convert_element_type = (primals_1 - 1.0 > 0.0).to(tl.float32)
    tl.store(cat_ptr + cols, convert_element_type, mask=mask)
    tl.store(add_of_all_ptr + cols, primals_1, mask=mask)
    primals_1_1 = tl.load(primals_1_ptr + cols + N, mask=mask)
    add_2 = primals_1 * (1.0 - convert_element_type) * 0.9 + primals_1_1
    sub_4 = add_2 - 1.0 - convert_element_type * 1.8
    convert_element_type_1 = (sub_4 > 0.0).to(tl.float32)
    tl.store(cat_ptr + cols + N, convert_element_type_1, mask=mask)
    tl.store(add_of_all_ptr + cols + N, add_2, mask=mask)
    tl.store(sub_4_of_all_ptr + cols, sub_4, mask=mask)
    add = add_2
    convert_element_type_2 = convert_element_type_1
    add_1 = convert_element_type
    for step in tl.range(2, 19, num_stages=STAGES):
        primals = tl.load(primals_1_ptr + cols + step * N, mask=mask)
        add_3 = add * (1.0 - convert_element_type_2) * 0.9 + primals
        add_4 = add_1 * 0.95 + convert_element_type_2
        sub = add_3 - 1.0 - add_4 * 1.8
        convert_element_type_3 = (sub > 0.0).to(tl.float32)
        tl.store(cat_ptr + cols + step * N, convert_element_type_3, mask=mask)
        tl.store(add_of_all_ptr + cols + step * N, add_3, mask=mask)
        tl.store(sub_4_of_all_ptr + cols + step * N - N, sub, mask=mask)
        add = add_3
        convert_element_type_2 = convert_element_type_3
        add_1 = add_4
    primals_1_2 = tl.load(primals_1_ptr + cols + 19 * N, mask=mask)
    sub_57 = add * (1.0 - convert_element_type_2) * 0.9 + primals_1_2 - 1.0
    sub_58 = sub_57 - (add_1 * 0.95 + convert_element_type_2) * 1.8
    pow_1 = (tl.abs(sub_58) * 10.0 + 1.0) * (tl.abs(sub_58) * 10.0 + 1.0)
    tl.store(pow_1_ptr + cols, pow_1, mask=mask)
    tl.store(cat_ptr + cols + 19 * N, (sub_58 > 0.0).to(tl.float32), mask=mask)


@autotuned(*BLOCK_STAGES_CONFIGS, key=["N"])
""")


def filtered(x):
    """A filter of second order takes what was two steps ago, of what it is given and of what it gave."""
    x1 = x2 = y1 = y2 = torch.zeros_like(x[0])
    out = []
    for t in range(len(x)):
        y = 0.2 * x[t] + 0.4 * x1 + 0.2 * x2 + 0.5 * y1 - 0.3 * y2
        x2, x1, y2, y1 = x1, x[t], y1, y
        out.append(y)
    return torch.stack(out)


def passed_on(x, a, b):
    """One state is what the other one was."""
    out = []
    for t in range(len(x)):
        a, b = b, 0.5 * a + 0.3 * b + x[t]
        out.append(b)
    return torch.stack(out), a


def from_the_end(rewards, values):
    """There is one value more than there are steps, and what a step took is saved for backward, all in one tensor."""
    rho, total, out = rewards.exp().clamp(max=1.0), torch.zeros_like(rewards[0]), []
    for t in range(len(rewards) - 1, -1, -1):
        total = rho[t] * (rewards[t] + 0.9 * values[t + 1] - values[t]) + 0.9 * rho[t] * total
        out.append(total + values[t])
    return torch.stack(out[::-1])


@pytest.mark.parametrize(
    ("function", "shapes", "loops"),
    [
        (filtered, ((20, 3, 40),), [1, 1]),
        (passed_on, ((15, 3, 40), (3, 40), (3, 40)), [1, 1]),
        (from_the_end, ((20, 3, 40), (21, 3, 40)), [1, 1]),
    ],
)
def test_what_was_several_steps_ago_and_steps_from_the_end(function, shapes, loops):
    torch.manual_seed(0)
    inputs = [torch.rand(shape).sub(0.5).requires_grad_() for shape in shapes]
    kernels = kernels_in(checked(function, inputs))
    found = [k.count("for step in ") for k in kernels]
    assert sorted(found)[-len(loops) :] == loops, kernels


def rotated(x, y, a, b):
    for _ in range(STEPS):
        x, y = a * x - b * y, a * y + b * x
    return x, y


def rotated_for_one_result(x, y, a, b):
    """The last step computes one of the states alone."""
    return rotated(x, y, a, b)[0]


def rotated_with_all_states(x, y, a, b):
    xs, ys = [], []
    for _ in range(STEPS):
        x, y = a * x - b * y, a * y + b * x
        xs.append(x)
        ys.append(y)
    return torch.stack(xs), torch.stack(ys)


def rotated_and_driven(u, a, b):
    """Both states begin with the same zeros, and only one of them is returned."""
    x, y, out = torch.zeros_like(u[0]), torch.zeros_like(u[0]), []
    for t in range(len(u)):
        x, y = a * x - b * y + u[t], a * y + b * x
        out.append(x)
    return torch.stack(out)


def attractor(x, y, z, a):
    """Three states, of which two are returned."""
    for _ in range(STEPS):
        x, y, z = x + a * (y - x), y + a * (x * (1 - z) - y), z + a * (x * y - z)
    return x, z


def attractor_and_input(u, x, y, z, a):
    """What the last step is given has no gradient."""
    out = []
    for t in range(len(u)):
        x, y, z = x + a * (y - x) + u[t], y + a * (x * (1 - z) - y), z + a * (x * y - z)
        out.append(z)
    return torch.stack(out), y


STEPS = 18
STATE, SHARED = (3, 40), (40,)
COUPLED = {
    rotated: (STATE, STATE, SHARED, SHARED),
    rotated_for_one_result: (STATE, STATE, SHARED, SHARED),
    rotated_with_all_states: (STATE, STATE, SHARED, SHARED),
    rotated_and_driven: ((STEPS, *STATE), SHARED, SHARED),
    attractor: (STATE, STATE, STATE, SHARED),
    attractor_and_input: ((STEPS, *STATE), STATE, STATE, STATE, SHARED),
}


@pytest.mark.parametrize("function", COUPLED)
def test_states_that_take_each_other_are_one_loop_forward_and_one_backward(function):
    torch.manual_seed(0)
    inputs = [torch.rand(shape).mul(0.3).requires_grad_() for shape in COUPLED[function]]
    forward, backward, *sums = kernels_in(checked(function, inputs))
    assert forward.count("for step in ") == 1, forward
    assert backward.count("for step in ") == 1, backward
    assert len(sums) == 1


def test_the_gradients_of_slices_are_joined_if_the_last_one_has_none():
    torch.manual_seed(0)
    inputs = [torch.rand(shape).mul(0.3).requires_grad_() for shape in COUPLED[attractor_and_input]]
    backward = captured(attractor_and_input, inputs).backward
    assert not any("scatter" in str(node.target) for node in backward.nodes)
