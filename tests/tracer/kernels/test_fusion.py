"""Which operations share a kernel, here and in Inductor, and why neighbouring kernels are not one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from conftest import Traced, TraceFixture
from inline_snapshot import snapshot

from fx_lsp.features.kernels import fusion_data
from fx_lsp.tracer.passes import inductor_kernels

pytest.importorskip("triton")
pytestmark = pytest.mark.torch

SOFTMAX = """\
import torch

# fx: x=f32[64, 512]
@torch.no_grad()
def f(x):
    m = x.amax(-1, keepdim=True)
    e = (x - m).exp()
    return e / e.sum(-1, keepdim=True)
"""
NORM = """\
import torch
import torch.nn.functional as F

# fx: x=f32[64, 512], weight=f32[512], bias=f32[512]
@torch.no_grad()
def f(x, weight, bias):
    h = F.layer_norm(x, (512,), weight, bias)
    return F.gelu(h)
"""
LINEAR = """\
import torch

# fx: x=f32[64, 512], w=f32[512, 256], b=f32[256]
@torch.no_grad()
def f(x, w, b):
    h = x @ w + b
    return h.relu()
"""
TWO_SUMS = """\
import torch

# fx: x=f32[100, 300, 32]
@torch.no_grad()
def f(x):
    rows = x.sum(1)
    columns = x.sum(0)
    return rows, columns
"""
UPDATED = """\
import torch

# fx: x=f32[64, 512], state=f32[64, 512]
@torch.no_grad()
def f(x, state):
    state[1:] = x[1:].sin()
    return state[:-1] * 2
"""
JOINED = """\
import torch

# fx: x=f32[64, 512], y=f32[64, 256]
@torch.no_grad()
def f(x, y):
    total = y.sum()
    return torch.cat([x * 2, y.sin()], 1) * total
"""
NEEDED_BETWEEN = """\
import torch

# fx: x=f32[64, 64]
@torch.no_grad()
def f(x):
    y = x.sin()
    z = y @ y
    return y, (z + y).exp()
"""
EVERY = [SOFTMAX, NORM, LINEAR, TWO_SUMS, UPDATED, JOINED, NEEDED_BETWEEN]


def kernels(traced: Traced, by: str = "fx-lsp") -> list[tuple[str, list[str], list[str]]]:
    """The kernels: what each is, its operations, and why they are not in earlier ones."""
    data = fusion_data(traced.stage("fusion:json"))[by]
    assert data["notes"] == []
    return [
        (
            kernel["kind"],
            [operation["name"] for operation in kernel["operations"]],
            [f"{gap['with']}: {gap['reason']}" for gap in kernel["not_fused"]],
        )
        for graph in data["graphs"]
        for kernel in graph["kernels"]
    ]


def test_a_softmax_is_one_kernel(trace: TraceFixture):
    assert kernels(trace(SOFTMAX, work="fusion")) == snapshot([("kernel", ["m", "sub", "e", "sum_1", "div"], [])])


def test_a_norm_and_the_activation_behind_it_are_one_kernel(trace: TraceFixture):
    assert kernels(trace(NORM, work="fusion")) == snapshot(
        [
            (
                "kernel",
                ["var_mean", "add", "rsqrt", "sub", "mul", "mul_1", "h", "mul_2", "mul_3", "erf", "add_2", "mul_4"],
                [],
            )
        ]
    )


def test_a_matrix_product_is_a_call_of_a_library(trace: TraceFixture):
    assert kernels(trace(LINEAR, work="fusion")) == snapshot(
        [
            ("call", ["mm"], []),
            (
                "kernel",
                ["h", "relu"],
                ["1: `mm` is a call of a library: the library is as fast for a matrix product"],
            ),
        ]
    )


def test_sums_over_different_dimensions(trace: TraceFixture):
    assert kernels(trace(TWO_SUMS, work="fusion&sizes=traced")) == snapshot(
        [
            ("kernel", ["sum_1_partial"], []),
            (
                "kernel",
                ["rows"],
                [
                    "1: the reduction `sum_1_partial` over dimension 2 of (100, 6, 50, 32) "
                    "has to end before `rows` starts"
                ],
            ),
            ("kernel", ["columns"], ["2: they share no tensor"]),
        ]
    )


def test_a_write_in_place_splits_pointwise_operations(trace: TraceFixture):
    assert kernels(trace(UPDATED, work="fusion")) == snapshot(
        [
            ("kernel", ["sin", "slice_scatter"], []),
            ("kernel", ["mul"], ["1: `slice_scatter` writes in place: it has to be in memory before `mul` starts"]),
        ]
    )


def test_a_sum_has_to_end_before_its_result_is_used(trace: TraceFixture):
    assert kernels(trace(JOINED, work="fusion&sizes=traced")) == snapshot(
        [
            ("kernel", ["sum_1_partial"], []),
            (
                "kernel",
                ["total"],
                ["1: the reduction `sum_1_partial` over dimension 1 of (8, 2048) has to end before `total` starts"],
            ),
            (
                "kernel",
                ["mul", "sin", "cat", "mul_1"],
                ["2: the reduction `total` over dimension 0 of (8,) has to end before `mul_1` starts"],
            ),
        ]
    )


def test_a_call_between_two_kernels_separates_them(trace: TraceFixture):
    assert kernels(trace(NEEDED_BETWEEN, work="fusion&sizes=traced")) == snapshot(
        [
            ("kernel", ["y"], []),
            (
                "call",
                ["z"],
                ["1: `z` is a call of a library: the library is as fast for a matrix product"],
            ),
            (
                "kernel",
                ["add", "exp"],
                [
                    "1: `exp` needs `z`, which a kernel between them computes",
                    "2: `z` is a call of a library: the library is as fast for a matrix product",
                ],
            ),
        ]
    )


def test_the_option_that_fuses_nothing_is_a_reason(trace: TraceFixture):
    assert kernels(trace(SOFTMAX, work="fusion&fuse=no")) == snapshot(
        [
            ("kernel", ["m"], []),
            (
                "kernel",
                ["sub"],
                ["1: `m` is not fused by the option `fuse`: it has to be in memory before `sub` starts"],
            ),
            (
                "kernel",
                ["e"],
                ["2: `sub` is not fused by the option `fuse`: it has to be in memory before `e` starts"],
            ),
            (
                "kernel",
                ["sum_1"],
                ["3: `e` is not fused by the option `fuse`: it has to be in memory before `sum_1` starts"],
            ),
            (
                "kernel",
                ["div"],
                [
                    "3: `e` is not fused by the option `fuse`: it has to be in memory before `div` starts",
                    "4: `sum_1` is not fused by the option `fuse`: it has to be in memory before `div` starts",
                ],
            ),
        ]
    )


def test_inductor_says_why_it_does_not_fuse(trace: TraceFixture):
    assert kernels(trace(TWO_SUMS, work="fusion"), "inductor") == snapshot(
        [
            ("kernel", ["rows"], []),
            ("kernel", ["rows"], ["1: Inductor's words: “no shared data”"]),
            ("kernel", ["columns"], ["2: Inductor reports no reason"]),
        ]
    )
    assert kernels(trace(LINEAR, work="fusion"), "inductor") == snapshot(
        [("call", ["h"], []), ("kernel", ["relu"], ["1: `h` is a call of a library"])]
    )
    assert kernels(trace(JOINED, work="fusion"), "inductor") == snapshot(
        [
            ("kernel", ["total"], []),
            ("kernel", ["total"], ["1: Inductor's words: “numel/rnumel mismatch (reduce) (2, 1), (8192, 2)”"]),
            ("kernel", ["mul", "sin", "cat", "mul_1"], ["2: Inductor's words: “nodes numel incompatibility”"]),
        ]
    )


def test_kernels_without_a_gpu_are_those_for_a_gpu(trace: TraceFixture):
    """Inductor splits a long sum in two for a GPU only."""
    source = "import torch\n\n# fx: x=f32[4096, 4096]\n@torch.no_grad()\ndef f(x):\n    return x.sum()\n"
    stage = trace(source, work="fusion").stage("fusion:inductor")
    assert stage.text == snapshot("""\
# Inductor for a GPU, inference: 2 kernels
#
# 1. kernel
#     user.py:6  sum_1 = aten.sum.default(x)
#
#   not in 1: Inductor's words: “numel/rnumel mismatch (reduce) (512, 1), (32768, 512)”
# 2. kernel
#     user.py:6  sum_1 = aten.sum.default(x)
""")


def test_a_page_lists_the_kernels_with_the_lines_of_their_operations(trace: TraceFixture):
    stage = trace(JOINED, work="fusion&sizes=traced").stage("fusion")
    assert stage.text == snapshot("""\
# fx-lsp, inference: 3 kernels
#
# 1. kernel f_kernel_sum_1_partial
#     user.py:6  sum_1_partial = aten.sum.dim_IntList(view_default, [1], dtype=torch.float32)
#
#   not in 1: the reduction `sum_1_partial` over dimension 1 of (8, 2048) has to end before `total` starts
# 2. kernel f_kernel_total
#     user.py:6  total = aten.sum.dim_IntList(sum_1_partial, [0], dtype=torch.float32)
#
#   not in 2: the reduction `total` over dimension 0 of (8,) has to end before `mul_1` starts
# 3. kernel f_kernel_out
#     user.py:7  mul = aten.mul.Tensor(x, 2)
#     user.py:7  sin = aten.sin.default(y)
#     user.py:7  cat = aten.cat.default([mul, sin], 1)
#     user.py:7  mul_1 = aten.mul.Tensor(cat, total)
""")
    rows = zip(stage.text.splitlines(), stage.origins, stage.kernels, strict=True)
    assert [(kernel, stage.nodes[number - 1].name) for _, number, kernel in rows if number] == snapshot(
        [(1, "sum_1_partial"), (2, "total"), (3, "mul"), (3, "sin"), (3, "cat"), (3, "mul_1")]
    )


def test_a_training_function_has_the_kernels_of_backward(trace: TraceFixture):
    source = SOFTMAX.replace("@torch.no_grad()\n", "")
    stages = (trace(source, work="fusion").stage(name).text.splitlines() for name in ("fusion", "fusion:inductor"))
    assert [[row for row in stage if row.endswith(" kernel")] for stage in stages] == snapshot(
        [
            ["# fx-lsp, forward: 1 kernel", "# fx-lsp, backward: 1 kernel"],
            [
                "# Inductor for a GPU, forward: 1 kernel",
                "# 1. kernel",
                "# Inductor for a GPU, backward: 1 kernel",
                "# 1. kernel",
            ],
        ]
    )


@pytest.mark.parametrize("source", EVERY)
def test_the_kernels_of_inductor_are_those_of_its_code(
    trace: TraceFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str
):
    """Each kernel of the code has a comment with the nodes of the graph that it computes. Calls have none."""
    schedule, written = inductor_kernels.planned_kernels, tmp_path / "compared.json"

    def generating(nodes: Any, shown: Any, refusals: Any) -> Any:
        planned = schedule(nodes, shown, refusals)
        names = {id(node): name for name, node in shown.items()}
        listed = [sorted(names[id(node)] for node in k.operations) for k in planned if k.kind != "call"]
        code, computed = generated_code(), {name for name, node in shown.items() if node.computes}
        launches = len(re.findall(r"\.run\(|extern_kernels\.\w+\(", code))
        in_code = [sorted(computed & nodes) for nodes in fragments(code)]
        written.write_text(json.dumps([[len(planned), listed], [launches, in_code]]))
        return planned

    monkeypatch.setattr(inductor_kernels, "planned_kernels", generating)
    trace(source, work="fusion")
    planned, generated = json.loads(written.read_text())
    assert planned == generated


def generated_code() -> str:
    """What Inductor generates for the GPU of a schedule that is being made."""
    from torch._inductor import virtualized
    from triton.backends.compiler import GPUTarget  # pyright: ignore[reportMissingTypeStubs]
    from triton.runtime.driver import driver  # pyright: ignore[reportMissingTypeStubs]

    graph: Any = virtualized.V.graph
    active = SimpleNamespace(get_current_target=lambda: GPUTarget("cuda", 90, 32))
    with (
        mock.patch("torch.utils._triton.triton_hash_with_backend", lambda: ""),
        mock.patch.object(driver, "_active", active),
    ):
        graph.wrapper_code.push_codegened_graph(graph)
        graph.scheduler.codegen()
        return graph.wrapper_code.generate(graph.is_inference)[0].value


def fragments(code: str) -> list[set[str]]:
    """The nodes of the graph that are computed in each kernel, in order."""
    blocks = re.findall(r"# Graph fragment:\n((?:#.*\n)+)", code)
    return [set(re.findall(r"%(\w+) :.* = call_function", block)) for block in blocks]
