"""Partitioners side by side, and regions that are computed again in backward: counted by hand on the graphs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from conftest import Traced, in_fork
from inline_snapshot import snapshot
from works import traced_for

from fx_lsp.features.source.checkpoint import checkpoint
from fx_lsp.features.source.pin import TextChange
from fx_lsp.model import Trace
from fx_lsp.tracer.compat import HAS_ANNOTATE, HAS_COLUMNS, min_cut_partition
from fx_lsp.tracing.analysis import analyse

SOURCE = """\
import torch
import torch.nn.functional as F
from torch import nn


# fx: x=f32[8, 16], w=f32[16, 32], v=f32[32, 4]
def mlp(x, w, v):
    h = x @ w
    a = F.gelu(h)
    p = torch.softmax(a * a, -1)
    return (p @ v).sum()


# fx: q=f32[2, 6, 8], k=f32[2, 6, 8], v=f32[2, 6, 8]
def attention(q, k, v):
    scores = q @ k.transpose(-2, -1)
    return torch.softmax(scores, -1) @ v


# fx: x=f32[4, 5]
def waves(x):
    y = x.sin()
    z = y.cos().exp()
    return (z * y).sum(0)


# fx: init(dim=16), x=f32[64, 16]
class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)

    def forward(self, x):
        h = F.gelu(self.up(self.norm(x)))
        return x + self.down(h)


class Net(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.layers = nn.ModuleList([Block(dim) for _ in range(3)])

    # fx: init(dim=16), x=f32[64, 16]
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x.sum()


# fx: x=f32[64, 32]
def random(x):
    y = F.dropout(x, 0.5).relu()
    return (y * y).sum()


# fx: x=i64[8]
def whole(x):
    return x + 1
"""
LINES = SOURCE.splitlines()
SIZES = {"f32": 4, "b8": 1, "u8": 1, "i64": 8}

pytestmark = pytest.mark.skipif(not (HAS_COLUMNS and HAS_ANNOTATE), reason="this Python or torch keeps no columns")


@pytest.fixture
def work(warm_torch: None, tmp_path: Path):
    return lambda work, name, text=SOURCE: traced_for(tmp_path, text, name, work)


def rows(traced: Traced, stage: str = "table") -> dict[str, list[int]]:
    """The numbers of each partitioner, in the order of the columns."""
    lines = traced.stage(stage).text.removeprefix("# ").splitlines()
    start = next(i for i, line in enumerate(lines) if "ops forward" in line)
    found = {}
    for line in lines[start + 1 :]:
        words = line.removeprefix("# ").split()
        if len(words) < 7:
            break
        found[words[0]] = [int(word.replace(",", "")) for word in words[1:7]]
    return found


def counted(traced: Traced, name: str) -> list[int]:
    """The same of two graphs, as one would count them: the values that are inputs of backward, but for gradients."""
    forward, backward = traced.stage(f"{name}:forward"), traced.stage(f"{name}:backward")
    ops = [
        [n for n in graph.nodes if n.op == "call_function" and not n.target.endswith("getitem")]
        for graph in (forward, backward)
    ]
    again = {n.name for n in ops[0]} & {n.name for n in ops[1]}
    kept = {n.name: n.spec for n in backward.nodes if n.op == "placeholder" and not n.name.startswith("grad_")}
    inputs = {n.name for n in forward.nodes if n.op == "placeholder"}
    sizes = {k: size(spec) for k, spec in kept.items()}
    activations = sum(s for k, s in sizes.items() if origin(forward, k) not in inputs)
    return [len(ops[0]), len(ops[1]), len(again), len(kept), sum(sizes.values()), activations]


def size(spec: str) -> int:
    dtype, sizes = re.match(r"(\w+)\[([\d, ]*)\]", spec).groups()
    total = SIZES[dtype]
    for n in sizes.split(","):
        total *= int(n)
    return total


def origin(graph, name: str) -> str:
    """What a value is a view of."""
    node = {n.name: n for n in graph.nodes}[name]
    views = ("aten.t.default", "aten.transpose.int", "aten.view.default", "aten.expand.default", "aten.detach.default")
    return origin(graph, node.inputs[0]) if node.target in views else name


def saved_bytes(trace: Trace) -> int:
    """The bytes of all that is kept for backward, inputs and parameters too."""
    return sum(saved.bytes for saved in trace.saved)


@pytest.mark.parametrize("name", ["mlp", "attention", "waves"])
def test_the_table_says_what_one_counts_on_the_graphs(work, name):
    traced = work("partitions", name)
    found = rows(traced)
    assert list(found) == ["default", "min-cut", "budget-0", "budget-0_25", "budget-0_5", "budget-0_75", "budget-1"]
    for partitioner, numbers in found.items():
        assert numbers == counted(traced, partitioner), partitioner
    assert found["min-cut"][4] == found["budget-1"][4] == saved_bytes(traced.trace)


@pytest.mark.parametrize("name", ["mlp", "attention", "waves", "Net"])
def test_the_smaller_the_budget_the_less_is_saved(work, name):
    found = rows(work("partitions&budgets=1,0.5,0", name))
    saved = [found[f"budget-{b}"][4] for b in ("1", "0_5", "0")]
    assert saved == sorted(saved, reverse=True) and saved[0] > saved[-1]
    assert found["budget-0"][4] == min(numbers[4] for numbers in found.values())
    assert found["budget-0"][5] == 0 and found["budget-0"][2] > found["min-cut"][2]


def test_the_page(work):
    assert work("partitions&budgets=0", "mlp").stage("table").text == snapshot("""\
# partitioner  ops forward  ops backward  recomputed  saved values  saved bytes  activations  against min-cut
# default                7            15           0             7        7,168        4,096           +2,048
# min-cut                9            13           1             5        5,120        2,048
# budget-0               6            19           4             3        3,072            0           -2,048
#
# Saved bytes count all values that forward saves for backward; activations are the ones
# that are neither inputs nor parameters nor buffers.
#
# default, against min-cut
#   saves instead       x f32[8, 16], w f32[16, 32], v f32[32, 4], a f32[8, 32], detach f32[8, 32]
#   does not save       t_1 f32[4, 32](1, 4), t_2 f32[16, 8](1, 16), t_3 f32[32, 16](1, 32)
#   does not recompute  a
#
# budget-0, against min-cut
#   saves instead       x f32[8, 16], w f32[16, 32], v f32[32, 4]
#   does not save       h f32[8, 32], p f32[8, 32], t_1 f32[4, 32](1, 4), t_2 f32[16, 8](1, 16),
#                       t_3 f32[32, 16](1, 32)
#   recomputes          h, mul, p
""")


def test_every_graph_is_compared_with_that_of_another_partitioner(work):
    traced = work("partitions&budgets=0.5", "mlp")
    assert [(i.name, i.before) for i in traced.trace.stages] == snapshot(
        [
            ("table", ""),
            ("default:forward", ""),
            ("default:backward", ""),
            ("min-cut:forward", "default:forward"),
            ("min-cut:backward", "default:backward"),
            ("budget-0_5:forward", "min-cut:forward"),
            ("budget-0_5:backward", "min-cut:backward"),
        ]
    )


def test_random_operations_that_are_computed_again_are_pointed_out(work):
    text = work("partitions&budgets=0", "random").stage("table").text
    assert "draws random values again" in text.partition("budget-0, against")[2]
    assert "draws random values again" not in text.partition("budget-0, against")[0]


def test_a_target_without_backward_says_why(work):
    assert work("partitions", "whole").stage("table").text == snapshot("""\
# There is nothing to partition: whole has no backward graph.
# No output can be differentiated with respect to an input.
""")


@pytest.mark.parametrize("budgets", ["2", "a", "0.5,-1", "nan"])
def test_budgets_are_numbers_from_0_to_1(work, budgets):
    assert "budgets must be numbers from 0 to 1" in work(f"partitions&budgets={budgets}", "mlp").failure.message


def region(first: str, last: str) -> tuple[int, int]:
    """The lines of statements that begin so."""
    return tuple(next(i for i, line in enumerate(LINES, 1) if line.strip().startswith(s)) for s in (first, last))


REGIONS = [
    ("mlp", "a = F.gelu", "p = torch.softmax"),
    ("waves", "y = x.sin", "z = y.cos"),
    ("Net", "x = layer(x)", "x = layer(x)"),
    ("Net", "for layer in", "x = layer(x)"),
    ("Block", "h = F.gelu(self.up", "h = F.gelu(self.up"),
]


@pytest.mark.parametrize(("name", "first", "last"), REGIONS)
def test_a_region_saves_less_as_a_checkpoint_and_as_much_as_when_it_is_rewritten(work, name, first, last):
    lines = region(first, last)
    page = work(f"checkpoint={lines[0]}-{lines[1]}", name)
    found = rows(page, "checkpoint")
    assert found["checkpoint"][5] < found["min-cut"][5]
    assert found["checkpoint"][2] > found["min-cut"][2]
    assert found["checkpoint"] == counted(page, "checkpoint") and found["min-cut"] == counted(page, "min-cut")

    plain = work("", name)
    file = plain.trace.target.partition("::")[0]
    offered = checkpoint(SOURCE, analyse(file, SOURCE, ()).targets[name], plain.trace, *lines)
    assert offered is not None and offered.work == f"checkpoint={lines[0]}-{lines[1]}"
    rewritten = work("", name, applied(SOURCE, offered.edits))
    assert "checkpoint(region, " in rewritten.source
    assert saved_bytes(rewritten.trace) == found["checkpoint"][4]


def applied(text: str, edits: Sequence[TextChange]) -> str:
    lines = text.splitlines(keepends=True)
    for edit in sorted(edits, key=lambda e: e.line, reverse=True):
        tail = lines[edit.end_line - 1][edit.end_col :]
        lines[edit.line - 1 : edit.end_line] = [lines[edit.line - 1][: edit.col] + edit.text + tail]
    return "".join(lines)


CHECKPOINTED = """\
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
from functools import partial


def region(h):
    a = F.gelu(h)
    return torch.softmax(a * a, -1)


def only_products(context, op, *args, **kwargs):
    return op == torch.ops.aten.mm.default


# fx: x=f32[8, 16], w=f32[16, 32], v=f32[32, 4]
def f(x, w, v):
    p = CALL
    return (p @ v).sum()
"""


@pytest.mark.parametrize(
    "call",
    [
        "region(x @ w)",
        "checkpoint(region, x @ w, use_reentrant=False)",
        "checkpoint(region, x @ w, use_reentrant=True)",
        "checkpoint(lambda x: region(x @ w), x, use_reentrant=False)",
        "checkpoint(lambda x: checkpoint(region, x @ w, use_reentrant=False), x, use_reentrant=False)",
        "checkpoint(region, checkpoint(region, x @ w, use_reentrant=False), use_reentrant=False)",
        "checkpoint(lambda x: region(x @ w), x, use_reentrant=False,"
        " context_fn=partial(create_selective_checkpoint_contexts, only_products))",
    ],
)
def test_what_the_user_checkpoints_is_saved_as_torch_compile_saves_it(work, call):
    text = CHECKPOINTED.replace("CALL", call)
    assert sorted(size(s.spec) for s in work("", "f", text).trace.saved) == in_fork(lambda: saved_by_compile(text))


def saved_by_compile(text: str) -> list[int]:
    """Bytes of the values that `torch.compile` saves for the function `f` of a text."""
    from torch._dynamo.backends.common import aot_autograd

    found: list[int] = []

    def partition(joint, inputs, **options):
        forward, backward = min_cut_partition(joint, inputs, **options)
        kept = list(forward.graph.nodes)[-1].args[0][options["num_fwd_outputs"] :]
        found.extend(n.meta["val"].numel() * n.meta["val"].element_size() for n in kept)
        return forward, backward

    def stay(graph, inputs):
        return graph

    names = {}
    exec(compile(text, "compiled.py", "exec"), names)
    backend = aot_autograd(fw_compiler=stay, bw_compiler=stay, partition_fn=partition)
    inputs = [torch.randn(*sizes, requires_grad=True) for sizes in ((8, 16), (16, 32), (32, 4))]
    torch._dynamo.optimize(backend, nopython=True)(names["f"])(*inputs)  # in a tracer, torch.compile does nothing
    return sorted(found)


def test_lines_without_operations_are_no_region(work):
    assert work("checkpoint=1-3", "mlp").failure.message == snapshot(
        "these statements have no operation in the forward graph"
    )
    assert work("checkpoint=mlp", "mlp").failure.message == snapshot(
        "'mlp' is not a range of lines: write the first and the last line of the region, as in 10-14"
    )
    assert work("checkpoint=61-61", "whole").failure.message == snapshot(
        "whole has no backward graph, so nothing is saved for backward"
    )
