"""Loops over time of which each step reduces something: state spaces, normalized states, linear attention."""

import pytest
import torch
import torch.nn.functional as F
from inline_snapshot import snapshot
from interpreted import captured, checked, generated, named_kernels, wrong
from parameters import some

from fx_lsp.codegen.graph import loop_batching

pytest_plugins = ["file_fixtures"]


def selective_scan(x, dt, a, b, c):
    h, out = torch.zeros(x.shape[0], *a.shape), []
    for t in range(x.shape[1]):
        h = torch.exp(dt[:, t, :, None] * a) * h + dt[:, t, :, None] * b[:, t, None, :] * x[:, t, :, None]
        out.append((h * c[:, t, None, :]).sum(-1))
    return torch.stack(out, 1)


def normalized(x, weight):
    h, out = torch.zeros_like(x[0]), []
    for step in x:
        h = F.layer_norm(0.9 * h + step, (x.shape[-1],), weight)
        out.append(h)
    return torch.stack(out)


def rms_normalized(x):
    h = torch.zeros_like(x[0])
    for step in x:
        h = h + step
        h = h * torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-5)
    return h


def sharpened(x):
    """The maximum of a row, and its softmax, in each step."""
    p, out = torch.ones_like(x[0]), []
    for step in x:
        p = torch.softmax(p * step, -1)
        out.append(p.amax(-1))
    return torch.stack(out)


def linear_attention(q, k, v, gate):
    s, out = torch.zeros(q.shape[0], q.shape[-1], v.shape[-1]), []
    for t in range(q.shape[1]):
        s = gate[:, t, None, None].sigmoid() * s + k[:, t, :, None] * v[:, t, None, :]
        out.append((q[:, t, :, None] * s).sum(1))
    return torch.stack(out, 1)


def delta_rule(q, k, v):
    """What is read depends on the state, too."""
    s, out = torch.zeros(q.shape[0], q.shape[-1], v.shape[-1]), []
    for t in range(q.shape[1]):
        read = (s * k[:, t, :, None]).sum(1)
        s = s + 0.1 * k[:, t, :, None] * (v[:, t] - read)[:, None, :]
        out.append((q[:, t, :, None] * s).sum(1))
    return torch.stack(out, 1)


SHAPES = {
    selective_scan: lambda n: [(2, n, 12), (2, n, 12), (12, 7), (2, n, 7), (2, n, 7)],
    normalized: lambda n: [(n, 3, 40), (40,)],
    rms_normalized: lambda n: [(n, 3, 40)],
    sharpened: lambda n: [(n, 3, 40)],
    linear_attention: lambda n: [(2, n, 9), (2, n, 9), (2, n, 20), (2, n)],
    delta_rule: lambda n: [(2, n, 9), (2, n, 9), (2, n, 20)],
}


def inputs_of(function, steps):
    torch.manual_seed(0)
    return [torch.randn(shape) * 0.5 for shape in SHAPES[function](steps)]


def kernels_of(function, inputs):
    return named_kernels(generated(captured(function, inputs)))


@pytest.mark.parametrize("function", SHAPES)
def test_a_step_is_written_once(function):
    (kernel,) = named_kernels(checked(function, inputs_of(function, 8))).values()
    assert kernel.count("for step in") == 1 and len(kernel.splitlines()) < 60, kernel


@pytest.mark.parametrize("function", SHAPES)
def test_backward_that_computes_the_steps_again(function):
    assert wrong(function, [i.requires_grad_() for i in inputs_of(function, 8)]) == []


@pytest.mark.parametrize("function", SHAPES)
def test_backward_that_reads_what_was_saved_of_each_step_has_one_loop(function, few):
    found = named_kernels(checked(function, [i.requires_grad_() for i in inputs_of(function, few)]))
    backward = {name: text for name, text in found.items() if name.startswith("f_backward") and "for step in" in text}
    assert len(backward) == 1 and len(found) <= 7, found.keys()
    assert sum(len(text.splitlines()) for text in found.values()) < 400


def test_the_kernel_of_a_selective_scan():
    (kernel,) = kernels_of(selective_scan, inputs_of(selective_scan, 8)).values()
    assert kernel == snapshot("""\
f_kernel(arg1_1_ptr, arg2_1_ptr, arg3_1_ptr, arg0_1_ptr, arg4_1_ptr, cat_ptr, M,
             N: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    outer = tl.program_id(0)
    cols = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    cols_mask = cols < N
    rows = tl.arange(0, ROWS)[:, None]
    rows_mask = rows < M
    add = tl.full([ROWS, BLOCK], 0.0, tl.float32)
    arg2_1 = tl.load(arg2_1_ptr + rows + cols * 7, mask=rows_mask & cols_mask,
                     other=0.0, eviction_policy="evict_last")
    for step in tl.static_range(8):
        arg1 = tl.load(arg1_1_ptr + outer * 96 + cols + step * 12, mask=cols_mask,
                       other=0.0)
        arg3 = tl.load(arg3_1_ptr + outer * 56 + rows + step * 7, mask=rows_mask,
                       other=0.0)
        arg0 = tl.load(arg0_1_ptr + outer * 96 + cols + step * 12, mask=cols_mask,
                       other=0.0)
        add_1 = tl.exp(arg1 * arg2_1) * add + arg1 * arg3 * arg0
        arg4 = tl.load(arg4_1_ptr + outer * 56 + rows + step * 7, mask=rows_mask,
                       other=0.0)
        sum_1 = tl.sum(tl.where(rows_mask, add_1 * arg4, 0.0), axis=0, keep_dims=True)
        tl.store(cat_ptr + outer * 96 + cols + step * 12, sum_1, mask=cols_mask)
        add = add_1\
""")


@pytest.fixture
def small(monkeypatch, few):
    """Programs hold few elements of a state."""
    monkeypatch.setattr(loop_batching, "TILE_ELEMENTS", 40)
    return few


@pytest.mark.parametrize("function", SHAPES)
def test_what_programs_of_a_loop_can_only_begin_to_sum(function, small):
    found = named_kernels(checked(function, [i.requires_grad_() for i in inputs_of(function, small)]))
    if function is selective_scan:
        (loop,) = [text for name, text in found.items() if name.startswith("f_backward") and "for step in" in text]
        assert "_partial_of_all_ptr" in loop and loop.count("axis=0") >= 2, loop


@pytest.mark.parametrize("dtype", some((torch.bfloat16, torch.float16), (torch.bfloat16,)), ids=str)
def test_half_precision(dtype, small):
    inputs = [i.to(dtype).requires_grad_() for i in inputs_of(selective_scan, small)]
    assert wrong(selective_scan, inputs) == []


def matrix_memory(q, k, v, f):
    """Two states; what one gives divides what the other gives."""
    c, n, out = torch.zeros(q.shape[0], v.shape[-1], q.shape[-1]), torch.zeros(q.shape[0], q.shape[-1]), []
    for t in range(q.shape[1]):
        forget = torch.sigmoid(f[:, t])[:, None]
        c = forget[..., None] * c + v[:, t, :, None] * k[:, t, None, :]
        n = forget * n + k[:, t]
        below = (n * q[:, t]).sum(-1, keepdim=True).abs().clamp(min=1.0)
        out.append((c * q[:, t, None, :]).sum(-1) / below)
    return torch.stack(out, 1)


def test_what_two_states_give_is_joined_for_all_steps(few):
    torch.manual_seed(0)
    shapes = [(2, few, 9), (2, few, 9), (2, few, 20), (2, few)]
    inputs = [torch.randn(shape).requires_grad_() for shape in shapes]
    found = named_kernels(checked(matrix_memory, inputs))
    assert [text.count("for step in") for text in found.values()].count(1) == 3, found
    assert sum(len(text.splitlines()) for text in found.values()) < 500


def test_what_takes_nothing_of_the_state_is_summed_before_the_loop(few):
    def with_normal_keys(q, k, v):
        s, out = torch.zeros(q.shape[0], q.shape[-1], v.shape[-1]), []
        for t in range(q.shape[1]):
            key = k[:, t] / k[:, t].square().sum(-1, keepdim=True).sqrt()
            s = 0.9 * s + key[:, :, None] * v[:, t, None, :]
            out.append((q[:, t, :, None] * s).sum(1))
        return torch.stack(out, 1)

    inputs = [i.requires_grad_() for i in inputs_of(delta_rule, few)]
    found = named_kernels(checked(with_normal_keys, inputs))
    assert [text.count("for step in") for text in found.values()].count(1) == 2, found
    assert sum(len(text.splitlines()) for text in found.values()) < 260


def test_a_reduction_of_another_shape_in_every_third_step():
    def irregular(x):
        h, out = torch.zeros_like(x[0]), []
        for t in range(len(x)):
            h = h + x[t] - (h.mean(-1, keepdim=True) if t % 3 else h.amax(0, keepdim=True))
            out.append(h.sum(-1))
        return torch.stack(out)

    assert wrong(irregular, [torch.randn(9, 4, 10, requires_grad=True)]) == []


def test_sums_over_the_batch_of_what_each_step_has_for_itself(small):
    """The gradient of a bias of each step."""

    def biased(x, bias):
        h, out = torch.zeros_like(x[0]), []
        for t in range(len(x)):
            h = torch.tanh(h + x[t] + bias[t])
            out.append(h)
        return torch.stack(out)

    inputs = [torch.randn(small, 12, 10, requires_grad=True), torch.randn(small, 10, requires_grad=True)]
    assert wrong(biased, inputs) == []


def normal_rows(x, bias):
    """A loop whose steps take each other's states, and reduce."""
    h, out = torch.zeros_like(x[0]), []
    for t in range(len(x)):
        h = torch.tanh(h + x[t] + bias)
        out.append((h * x[t]).sum(-1))
    return torch.stack(out)


def test_steps_from_the_end_of_a_tensor(few):
    """Slices are counted from the end, so that the first numbers are negative."""

    def turned(x, y, bias):
        h, out, norms = torch.zeros_like(x[0]), [], []
        for t in range(len(x)):
            norm = y[t - 1].square().sum(-1)
            h = torch.tanh(h + x[t] + bias) / (1 + norm[:, None])
            out.append((h * x[t]).sum((-2, -1)))
            norms.append(norm)
        return torch.stack(out), torch.stack(norms)

    inputs = [torch.randn(few, 5, 10), torch.randn(few, 5, 3), torch.randn(10)]
    assert wrong(turned, [i.requires_grad_() for i in inputs]) == []


def test_what_is_stacked_again_as_it_was(few):
    def again(x, bias):
        return normal_rows(x, bias), torch.stack([x[t] for t in range(len(x))]), torch.stack(list(x.unbind()), 1)

    assert wrong(again, [torch.randn(few, 5, 10, requires_grad=True), torch.randn(10, requires_grad=True)]) == []


def test_reductions_that_are_no_steps_stay_in_parts():
    """What several heads reduce is stacked, but none takes a state: each is split as it would be alone."""

    def losses(x):
        return torch.stack([(x.sin() * k).square().mean() for k in range(1, 6)])

    found = kernels_of(losses, [torch.randn(1 << 20)])
    assert any("partial" in name for name in found), found.keys()
