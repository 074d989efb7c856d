"""Loops over time: a step that is written once in the kernel, forward and backward."""

import re
from itertools import product

import pytest
import torch
from inline_snapshot import snapshot
from interpreted import captured, checked, generated, named_kernels, wrong
from parameters import some
from spiking import Spike, lif

pytest_plugins = ["file_fixtures"]


def hard_reset(x):
    v, spikes = 0.0, []
    for current in x.unbind():
        v = v + (current - v) / 2.0
        s = Spike.apply(v - 1.0)
        v = v * (1 - s)
        spikes.append(s)
    return torch.stack(spikes), v


def over_many_steps(x, tau):
    v, spikes, decay = torch.zeros_like(x[0]), [], torch.sigmoid(tau)
    for current in x:
        v = v + (current - v) * decay
        s = Spike.apply(v - 1.0)
        v = v * (1 - s)
        spikes.append(s)
    return torch.stack(spikes)


def plif(x, w):
    decay = torch.sigmoid(w)
    v, spikes = torch.zeros_like(x[0]), []
    for t in range(len(x)):
        v = v + (x[t] - v) * decay
        s = Spike.apply(v - 0.5)
        v = v - s * 0.5
        spikes.append(s)
    return torch.stack(spikes)


def where_reset(x, w):
    """Each step makes its own zeros, and works out the time constant again."""
    v, spikes = torch.zeros_like(x[0]), []
    for t in range(len(x)):
        v = v + (x[t] - v) * w.sigmoid()
        s = Spike.apply(v - 0.5)
        v = torch.where(s > 0, torch.zeros_like(v), v)
        spikes.append(s)
    return torch.stack(spikes)


def leaky(x, w):
    v, out = torch.zeros_like(x[0]), []
    for t in range(len(x)):
        v = w.sigmoid() * v + (1 - w.sigmoid()) * x[t]
        out.append(v)
    return torch.stack(out)


def recurrence(a, b, h):
    states = []
    for t in range(len(a)):
        h = torch.sigmoid(a[t]) * h + b[t]
        states.append(h)
    return torch.stack(states), h


def two_states(x):
    current, v, spikes = torch.zeros_like(x[0]), torch.zeros_like(x[0]), []
    for t in range(len(x)):
        current = 0.8 * current + x[t]
        v = 0.9 * v + current
        s = Spike.apply(v - 1.0)
        v = v - s
        spikes.append(s)
    return torch.stack(spikes)


def adaptive(x):
    """The threshold rises with each spike: the next step takes three values of this one that two make."""
    v, a, spikes = torch.zeros_like(x[0]), torch.zeros_like(x[0]), []
    for t in range(len(x)):
        a = 0.95 * a
        v = 0.9 * v + x[t]
        s = Spike.apply(v - (1.0 + 1.8 * a))
        a = a + s
        v = v - s * (1.0 + 1.8 * a)
        spikes.append(s)
    return torch.stack(spikes)


def integrator(x):
    """The gradient of the last step is that of its result."""
    v, out = torch.zeros_like(x[0]), []
    for t in range(len(x)):
        v = 0.9 * v + x[t]
        out.append(v)
    return torch.stack(out)


def clamped(x, w):
    """Each step clamps the time constant: the gradient of that is masked in each."""
    v, out = torch.zeros_like(x[0]), []
    for t in range(len(x)):
        v = w.clamp(0, 1) * v + x[t]
        s = Spike.apply(v - 1.0)
        v = v - s
        out.append(s)
    return torch.stack(out)


def over_the_last_dimension(x):
    v, out = torch.zeros_like(x[..., 0]), []
    for t in range(x.size(-1)):
        v = torch.tanh(0.5 * v + x[..., t])
        out.append(v)
    return torch.stack(out, -1)


def tensor(*shape, dtype=torch.float32):
    torch.manual_seed(sum(shape))
    return torch.randn(shape).to(dtype).requires_grad_()


LEARNED = {f.__name__: f for f in (plif, where_reset, leaky, clamped)}
OTHERS = {
    f.__name__: f for f in (lif, hard_reset, recurrence, two_states, adaptive, integrator, over_the_last_dimension)
}
CASES = LEARNED | OTHERS


def inputs_of(name, steps, dtype=torch.float32):
    shapes = {
        **{name: [(steps, 3, 40), ()] for name in LEARNED},
        "recurrence": [(steps, 3, 40), (steps, 3, 40), (3, 40)],
        "over_the_last_dimension": [(3, 40, steps)],
    }
    return [tensor(*shape, dtype=dtype) for shape in shapes.get(name, [(steps, 3, 40)])]


@pytest.mark.parametrize("name", CASES)
def test_one_step(name):
    assert wrong(CASES[name], inputs_of(name, 1)) == []


@pytest.mark.parametrize("name", CASES)
def test_backward_that_reads_what_was_saved_of_each_step(name, few):
    """A step is written once, forward and backward."""
    found = named_kernels(checked(CASES[name], inputs_of(name, few)))
    loops = {k: text.count("for step in tl.static_range(") for k, text in found.items()}
    assert loops["f_forward_kernel"] == 1, found["f_forward_kernel"]
    assert sum(loops.values()) >= 2, found


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision(dtype, few):
    assert wrong(recurrence, inputs_of("recurrence", few, dtype)) == []


def kernels_of(function, inputs):
    return named_kernels(generated(captured(function, inputs)))


@pytest.mark.parametrize("steps", some((5, 8), (5,)))
@pytest.mark.parametrize("name", CASES)
def test_what_backward_computes_again_is_kept_by_a_loop_of_its_own(name, steps):
    found = named_kernels(checked(CASES[name], inputs_of(name, steps)))
    (backward,) = [text for text in found.values() if "for step in" in text and "tangents_" in text]
    assert ("+= (" in backward) == (name != "integrator"), backward
    assert backward.count("tl.load(") <= (11 if name == "recurrence" else 9), backward


def test_backward_of_few_steps_computes_them_again():
    file = generated(captured(lif, inputs_of("lif", 6)))
    assert "ctx.save_for_backward(primals_1)" in file.text
    found = named_kernels(file)["f_backward_kernel"]
    assert found[found.index("    primals_1 = ") :] == snapshot("""\
    primals_1 = tl.load(primals_1_ptr + cols, mask=mask)
    adds = (primals_1,)
    add = primals_1
    for step in tl.static_range(1, 6):
        primals = tl.load(primals_1_ptr + cols + step * N, mask=mask)
        add_1 = (add - (add - 1.0 > 0.0).to(tl.float32)) * 0.9 + primals
        adds += (add_1,)
        add = add_1
    tangents_1 = tl.load(tangents_1_ptr + cols + 5 * N, mask=mask)
    add_6 = tl.abs(add - 1.0) * 10.0 + 1.0
    div = tangents_1 / (add_6 * add_6)
    tl.store(add_26_ptr + cols + 5 * N, div, mask=mask)
    all_tangents = ()
    for step in tl.static_range(1, 6):
        tangents = tl.load(tangents_1_ptr + cols + (5 - step) * N, mask=mask)
        all_tangents += (tangents,)
    add_2 = div
    for step in tl.static_range(1, 6):
        mul = add_2 * 0.9
        add_3 = tl.abs(adds[5 - step] - 1.0) * 10.0 + 1.0
        add_4 = mul + (all_tangents[step - 1] + -mul) / (add_3 * add_3)
        tl.store(add_26_ptr + cols + (5 - step) * N, add_4, mask=mask)
        add_2 = add_4\
""")


def test_what_can_be_made_of_what_is_kept_is_not_kept_besides():
    found = kernels_of(hard_reset, inputs_of("hard_reset", 6))["f_backward_kernel"]
    assert found.count(" += (") - found.count("+= (tangents") == 1, found


def test_a_kernel_that_holds_much_of_each_element_has_few_for_each_thread():
    text = generated(captured(lif, [tensor(16, 64, 1024)])).text
    backward = text.partition("def f_forward_kernel(")[2].partition("def f_backward_kernel(")[0]
    configs = re.findall(r"config\(BLOCK=(\d+), num_warps=(\d+)", backward)
    assert configs and all(int(block) <= 4 * 32 * int(warps) for block, warps in configs)


def test_loads_are_on_their_way_before_their_step():
    found = kernels_of(lif, [i.detach() for i in inputs_of("lif", 16)])
    assert "for step in tl.range(1, 16, num_stages=STAGES):" in found["f_kernel"]


@pytest.mark.parametrize("steps", [20, 40])
def test_steps_that_are_far_apart_in_memory(steps):
    found = kernels_of(integrator, [torch.empty(steps, 2**27, device="meta")])["f_kernel"]
    assert "        step = tl.cast(number, tl.int64)\n" in found, found


def test_states_that_are_returned_are_not_saved_once_more(few):
    found = kernels_of(leaky, inputs_of("leaky", few))["f_forward_kernel"]
    assert found.count("tl.store(") == 1, found


SHAPES = [(), (40,), (3, 1), (3, 40)]


ONCE = [*(("plif", s) for s in SHAPES), ("where_reset", ())]
"""Where it is summed in one place."""
PLAIN = [*ONCE, ("leaky", (40,)), ("clamped", ())]


@pytest.mark.parametrize(("name", "shape"), some(product(LEARNED, SHAPES), PLAIN, several=True), ids=str)
def test_what_all_steps_share_is_summed_once_behind_the_loop(name, shape, few):
    found = named_kernels(checked(LEARNED[name], [tensor(10, 3, 40), tensor(*shape)]))
    if (name, shape) in ONCE:
        assert [k for k, text in found.items() if "for step in" in text][1:] != []
        assert all(text.count("tl.sum(") <= 1 for text in found.values())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_what_all_steps_share_is_summed_in_single_precision(dtype, few):
    inputs = [tensor(10, 3, 40, dtype=dtype), tensor(dtype=dtype)]
    assert wrong(plif, inputs) == []


def test_many_steps_are_a_real_loop():
    found = kernels_of(lif, [i.detach() for i in inputs_of("lif", 40)])
    assert "for step in tl.range(1, 40, loop_unroll_factor=4):" in found["f_kernel"]


def rate(x):
    return lif(x).mean(0)


def rate_of_the_batch_first(x):
    v, spikes = torch.zeros_like(x[:, 0]), []
    for t in range(x.size(1)):
        v = 0.9 * v + x[:, t]
        s = Spike.apply(v - 1.0)
        v = v - s
        spikes.append(s)
    return torch.stack(spikes, 1).sum(1, keepdim=True)


def counted(x):
    """The same current in all steps."""
    v, count = torch.zeros_like(x), 0
    for _ in range(8):
        v = 0.9 * v + x
        s = Spike.apply(v - 1.0)
        v = v - s
        count = count + s
    return count / 8


@pytest.mark.parametrize("dtype", some((torch.float32, torch.bfloat16), (torch.bfloat16,)), ids=str)
@pytest.mark.parametrize(
    ("function", "shape"), [(rate, (8, 3, 40)), (rate_of_the_batch_first, (3, 8, 40)), (counted, (3, 40))]
)
def test_what_steps_add_up_is_never_in_memory(function, shape, dtype):
    found = named_kernels(checked(function, [tensor(*shape, dtype=dtype)]))
    assert list(found) == ["f_forward_kernel", "f_backward_kernel"]
    assert all("for step in tl.static_range(1, 8):" in text for text in found.values())
    assert found["f_forward_kernel"].count("tl.store(") == 1


def test_a_stack_that_something_else_takes_stays_one():
    def both(x):
        spikes = lif(x)
        return spikes, spikes.sum(0)

    assert wrong(both, [tensor(8, 3, 40)]) == []


def test_steps_that_do_different_things_stay_as_they_are():
    def alternating(x):
        v, out = x[0], []
        for t in range(len(x)):
            v = torch.tanh(v + x[t]) if t % 3 else torch.exp(-v) * x[t]
            out.append(v)
        return torch.stack(out)

    inputs = [tensor(9, 5, 8)]
    assert "for step" not in checked(alternating, inputs).text


def test_a_state_in_every_second_step():
    def every_second(x):
        v, out = torch.zeros_like(x[0]), []
        for t in range(len(x)):
            v = 0.5 * v + x[len(x) - 1 - t]
            out.append(v * x[t])
        return torch.stack(out)

    assert wrong(every_second, [tensor(8, 5, 8)]) == []


def test_loads_that_do_not_move_evenly():
    def squares(x):
        out = [x[t * t] * 2 for t in range(6)]
        return torch.stack(out)

    assert wrong(squares, [tensor(26, 40).detach()]) == []


def test_a_learned_time_constant_over_many_steps():
    assert wrong(over_many_steps, [tensor(12, 2, 20), tensor()]) == []
