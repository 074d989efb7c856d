"""Steps with matrix products: they are launches of the same kernels, with offsets as arguments."""

import pytest
import torch
from interpreted import captured, checked, generated, kernels_in, wrong

from fx_lsp.codegen.inspect.launches import launch_specs
from fx_lsp.codegen.ir.kernel import KernelLaunch

CHUNK = 6


def recurrent(x, h, w, u):
    out = []
    for t in range(len(x)):
        h = torch.tanh(x[t] @ u + h @ w)
        out.append(h)
    return torch.stack(out)


def linear_attention(q, k, v, mask, decay):
    """Attention within a chunk, and a state for those before."""
    state, out = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1]), []
    for start in range(0, q.shape[2], CHUNK):
        q_i, k_i, v_i = (x[:, :, start : start + CHUNK] for x in (q, k, v))
        out.append((q_i @ k_i.mT * mask) @ v_i + q_i @ state)
        state = state * decay + k_i.mT @ v_i
    return torch.cat(out, 2)


def layers(x, *weights):
    """Each layer has weights of its own."""
    for w in weights:
        x = torch.relu(x @ w)
    return x


def inputs_of(function, steps):
    heads = (1, 2, steps * CHUNK, 5)
    shapes = {
        recurrent: [(steps, 3, 7), (3, 7), (7, 7), (7, 7)],
        linear_attention: [heads, heads, heads, (CHUNK, CHUNK), (2, 1, 1)],
        layers: [(3, 7), *[(7, 7)] * steps],
    }
    torch.manual_seed(0)
    return [torch.rand(shape).sub(0.5).requires_grad_() for shape in shapes[function]]


@pytest.mark.parametrize("function", [recurrent, linear_attention, layers])
def test_the_number_of_kernels_does_not_grow_with_the_steps(function):
    few, many = (kernels_in(generated(captured(function, inputs_of(function, steps)))) for steps in (4, 7))
    assert len(few) == len(many), [kernel.partition("(")[0] for kernel in many]


@pytest.mark.parametrize("steps", [3, 5])
@pytest.mark.parametrize("function", [recurrent, linear_attention, layers])
def test_shared_kernels_compute_the_same(function, steps):
    assert wrong(function, inputs_of(function, steps)) == []


def launches_of(function, steps):
    forward, _ = generated(captured(function, inputs_of(function, steps))).programs
    return forward, [step for step in forward.steps if isinstance(step, KernelLaunch)]


def test_the_offset_of_a_step_is_an_argument():
    _, launches = launches_of(recurrent, 5)
    offsets = [dict(step.offsets) for step in launches if step.offsets]
    assert offsets == [{"primals_1_offset": step * 3 * 7} for step in range(len(offsets))]
    assert len(offsets) > 2


def test_a_kernel_without_another_like_it_has_no_offset():
    text = generated(captured(lambda x: torch.relu(x[1]), [torch.rand(3, 40)])).text
    assert "_offset" not in text


def test_kernels_of_other_sizes_are_not_shared():
    def two(x, y):
        return torch.relu(x @ x), torch.relu(y @ y)

    inputs = [torch.rand(5, 5, requires_grad=True), torch.rand(9, 9, requires_grad=True)]
    forward, _ = checked(two, inputs).programs
    kernels = {step.kernel.name for step in forward.steps if isinstance(step, KernelLaunch)}
    assert len(kernels) == 2


def test_launches_that_are_compiled_alike_are_compiled_once():
    forward, launches = launches_of(recurrent, 7)
    specs = launch_specs(forward, {})
    assert len(specs) < len(launches)
    assert all(spec not in specs[:place] for place, spec in enumerate(specs))
