"""Regions: functions of the same operations that Inductor compiles in place of kernels."""

import re
from dataclasses import replace

import files
import pytest
import torch
import torch.nn.functional as F
from interpreted import captured, generated, kernels_in, loaded

from fx_lsp.choices import Choices
from fx_lsp.codegen.ir.kernel import KernelWork
from fx_lsp.codegen.schedule.estimate import Way, faster, ideal, region
from fx_lsp.codegen.triton.regions import CompiledRegion


def gated(x, w):
    return (F.gelu(x) * torch.sigmoid(w)).sum(-1)


def normalized(x, w):
    """A matrix product between two regions."""
    return torch.softmax(F.layer_norm(x, x.shape[-1:]) @ w, -1)


def deviations(x, w):
    """A scaling by statistics of columns, and two results."""
    centred = x - x.mean(0, keepdim=True)
    return centred / (centred.std(0, keepdim=True) + 1e-3), (x * w).amax(-1)


def scattered(x, w):
    """A sum at indices stays a kernel: it adds to memory that exists."""
    index = (w.abs() * 3).long().clamp(max=2)[:, 0]
    return torch.zeros(3, x.shape[1]).index_add(0, index, x * 2)


def inputs():
    torch.manual_seed(0)
    return [torch.randn(33, 33, requires_grad=True) for _ in range(2)]


def file_of(function, chosen, **options):
    choices = Choices(inductor=chosen)
    return generated(captured(function, inputs(), choices), choices=choices, **options)


def regions(file):
    return [step for program in file.programs for step in program.steps if isinstance(step, CompiledRegion)]


@pytest.mark.parametrize(
    ("function", "interpreted"),
    [(gated, True), (normalized, True), (normalized, False), (deviations, True), (scattered, True)],
)
def test_regions_compute_the_same(function, interpreted, monkeypatch):
    if not interpreted:  # then Inductor compiles them
        monkeypatch.delenv("TRITON_INTERPRET")
    ours, theirs = inputs(), inputs()
    found = loaded(file_of(function, "all")).f(*ours)
    expected = function(*theirs)
    results, right = ([r] if isinstance(r, torch.Tensor) else [*r] for r in (found, expected))
    torch.testing.assert_close(results, right, rtol=1e-4, atol=1e-5)
    gradients = [
        torch.autograd.grad([r.sum() for r in rs if r.requires_grad], t, allow_unused=True)
        for rs, t in ((results, ours), (right, theirs))
    ]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


def test_a_region_replaces_kernels_side_by_side():
    file = file_of(normalized, "all")
    assert kernels_in(file) == []
    forward = file.text.split("def f_forward(")[1].split("return")[0]
    assert re.findall(r"torch\.ops\.aten\.\w+|\w+_compiled", forward) == [
        "f_forward_kernel_mul_compiled",
        "torch.ops.aten.mm",
        "f_forward_kernel_div_compiled",
    ]


def test_only_the_named_kernels_are_replaced():
    file = file_of(gated, "f_backward_kernel")
    assert [[k.name for k in region.replaces] for region in regions(file)] == [["f_backward_kernel"]]
    assert re.findall(r"def (f_\w+_kernel)\(", file.text) == ["f_forward_kernel"]


def test_random_numbers_are_drawn_by_kernels_in_forward_and_backward():
    file = file_of(lambda x, w: F.dropout(x, 0.5) * w, "all")
    assert all("random" not in str(node.target) for region in regions(file) for node in region.nodes)


def test_a_kernel_that_adds_to_memory_stays():
    file = file_of(scattered, "all")
    assert "tl.atomic_add" in file.text
    assert all("index_add" not in step.name for step in regions(file))


def gated_pairs(x):
    """Each element of the result is from two neighbouring elements."""
    return x[:, ::2] * torch.sigmoid(x[:, 1::2])


@pytest.mark.parametrize(("rows", "replaced"), [(1 << 14, True), (1 << 4, False)])
def test_inductor_replaces_a_kernel_with_scattered_accesses_if_that_saves_time(rows, replaced):
    inputs = [torch.empty(rows, 4096, device="meta", dtype=torch.bfloat16)]
    choices = Choices(inductor="auto")
    file = generated(captured(gated_pairs, inputs, choices), choices=choices)
    assert bool(regions(file)) is replaced
    assert ("# Inductor compiles it: f_kernel would take" in file.text) is replaced


BIG = KernelWork(moved=1 << 28, requests=1 << 23, operations=1 << 27, programs=4096, warps=8)
SMALL = KernelWork(moved=1 << 12, requests=1 << 12, operations=1 << 10, programs=1, warps=4)
PRODUCT = KernelWork(operations=1 << 37, programs=1024, product="half, TMA")
LIBRARY = replace(PRODUCT, product="library half")


@pytest.mark.parametrize(
    ("what", "ours", "other", "microseconds"),
    [
        ("a kernel that only moves bytes", BIG, region(ideal(BIG)), None),
        ("one request for each element", replace(BIG, requests=1 << 27), ..., (364, 65)),
        ("fewer programs than multiprocessors", replace(BIG, programs=16), ..., (529, 65)),
        ("iterations that wait for memory", replace(BIG, programs=16, iterations=1 << 12), ..., (1640, 65)),
        ("as slow, but in order", replace(BIG, programs=16, sequential=True), ..., None),
        ("too small to matter", SMALL, ..., None),
        ("a call of PyTorch beside kernels", KernelWork(moved=1 << 28), region(), (65, 0)),
        ("a small call of PyTorch", KernelWork(moved=1 << 12), region(), None),
        ("a product that saves a large tensor", PRODUCT, Way((LIBRARY, BIG)), None),
        ("a product that saves nothing", PRODUCT, Way((LIBRARY,)), (213, 198)),
        ("a product in few programs", replace(PRODUCT, programs=8), Way((LIBRARY, BIG)), (3490, 263)),
        ("two launches in place of one", BIG, Way((BIG, BIG)), None),
    ],
)
def test_the_estimate_chooses_between_two_ways(what, ours, other, microseconds):
    """In microseconds, ours and the other way, if that is chosen."""
    why = faster(Way((ours,)), region(ideal(ours)) if other is ... else other)
    expected = microseconds and "would take {} µs instead of {} µs, by an estimate for an H200".format(*microseconds)
    assert why == expected, what


def test_parts_of_a_sum_need_not_be_views():
    """Its operations keep the layout of a transposed tensor, in which the parts are not consecutive."""
    x, choices = torch.randn(2, 512, 256), Choices(inductor="all")
    norm = lambda x: x.mT.square().sum((1, 2))  # noqa: E731
    file = generated(captured(norm, [x], choices), choices=choices)
    assert regions(file)
    torch.testing.assert_close(loaded(file).f(x), norm(x))


CALLS = """\
import torch
import torch.nn.functional as F


# fx: x=f32[64, 64, 112, 112]
def pooled(x):
    return F.avg_pool2d(F.relu(x), 3, 2, 1) * 2


# fx: x=f32[4, 64, 12, 12]
def small(x):
    return F.avg_pool2d(x, 3, 2, 1) * 2


# fx: x=f32[4096, 4096]
@torch.no_grad()
def running(x):
    return torch.cummax(x, 1).values + torch.logcumsumexp(x, 1)


# fx: x=f32[4096, 4096]
@torch.no_grad()
def best(x):
    return torch.topk(x, 8, 1).values * 2
"""


def test_inductor_compiles_calls_that_it_has_kernels_for_with_the_kernels_beside_them(tmp_path):
    """Inductor calls topk itself. For small tensors, the host would take longer for a region than the GPU."""
    texts = files.generated(tmp_path / "calls.py", CALLS, ["pooled", "small", "running", "best"], inductor="auto")
    bodies = {
        name: [re.findall(r"torch\.ops\.\w+\.(\w+)", part) for part in text.split("\n@compiled\n")[1:]]
        for name, text in texts.items()
    }
    assert bodies == {
        "pooled": [
            ["relu", "avg_pool2d", "mul"],
            ["mul", "avg_pool2d_backward", "le", "alias", "alias", "scalar_tensor", "where"],
        ],
        "small": [],
        "running": [["cummax", "logcumsumexp", "add"]],
        "best": [],
    }
    assert "# Inductor compiles it: aten.avg_pool2d: fx-lsp has no kernel for it" in texts["pooled"]
    assert not any("@triton.jit" in texts[name] for name in ("pooled", "running"))
    assert all("@triton.jit" in texts[name] for name in ("small", "best"))


def windows(x, w):
    """The indices of the largest elements are a result of the same call."""
    largest, places = F.max_pool2d(x[None] * 2, 3, 1, return_indices=True)
    return largest.amax((1, 2)) * w[0, 0], places + 1


@pytest.mark.parametrize("chosen", ["all", "each"])
def test_a_call_with_several_results_is_a_region(chosen):
    file, choices = captured(windows, inputs(), Choices(inductor=chosen)), Choices(inductor=chosen)
    file.graphs.generates = lambda node: "max_pool2d" in str(node.target)
    compiled = generated(file, choices=choices)
    assert "torch.ops.aten.max_pool2d" not in compiled.text.split("@as_operator")[1].split("return")[0]
    ours, theirs = inputs(), inputs()
    torch.testing.assert_close(loaded(compiled).f(*ours), windows(*theirs))
