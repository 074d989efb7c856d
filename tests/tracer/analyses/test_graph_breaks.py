"""Graph breaks stand where Dynamo says that they are, with its own number and page."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from conftest import TraceFixture, request_for
from inline_snapshot import snapshot

from fx_lsp.model import Trace, TraceReply, TraceRequest

FUNCTIONS = Path(__file__).parents[2] / "fixtures" / "graph_breaks.py"
NOT_TRACED = frozenset({"as_float", "as_int", "numbers", "pointers", "all_close", "equals"})
"""These have no graph without the value of a tensor: that it needs one is the failure."""
REAL_RUN = """
import importlib.util, sys, torch
spec = importlib.util.spec_from_file_location("functions", sys.argv[1])
module = sys.modules["functions"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
for name in sys.argv[2:]:
    torch._dynamo.reset()
    print("TARGET", name, file=sys.stderr, flush=True)
    function = getattr(module, name)
    torch.compile(function() if isinstance(function, type) else function, backend="eager")(torch.randn(3, 4))
"""


def names() -> list[str]:
    nodes = ast.parse(FUNCTIONS.read_text()).body
    functions = [n for n in nodes if isinstance(n, ast.FunctionDef) and not n.decorator_list and n.name != "helper"]
    return [*(f.name for f in functions if f.args.args), "Layer"]


def logged() -> dict[str, set[tuple[str, int]]]:
    """The lines at which a real run under `TORCH_LOGS=graph_breaks` says that graphs break, by function."""
    command = [sys.executable, "-c", REAL_RUN, str(FUNCTIONS), *names()]
    environment = {**os.environ, "TORCH_LOGS": "graph_breaks"}
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stderr
    lines: dict[str, set[tuple[str, int]]] = {}
    name = ""
    for line in told.splitlines():
        if line.startswith("TARGET "):
            name = line.split()[1]
            lines[name] = set()
        elif match := re.search(r"in user code at (.*):(\d+)$", line):
            lines[name].add((os.path.basename(match[1]), int(match[2])))
    return lines


def test_breaks_are_those_of_a_real_run(reply: Callable[[TraceRequest], TraceReply]) -> None:
    real, text = logged(), FUNCTIONS.read_text()
    shown: dict[str, set[tuple[str, int]]] = {}
    for name in sorted(real.keys() - NOT_TRACED):
        request = replace(request_for(str(FUNCTIONS), text, name), work="breaks")
        outcome = reply(request).outcome
        assert isinstance(outcome, Trace), name
        spans = [remark.span for remark in outcome.remarks if remark.code == "graph-break" and remark.span]
        shown[name] = {(os.path.basename(span.file), span.line) for span in spans}
    # What breaks inside of a library is told where the user's code calls it.
    inside = {name for name in shown if any(file != FUNCTIONS.name for file, _ in real[name])}
    assert inside == {"copies", "inspects"}
    assert {name: lines for name, lines in shown.items() if name not in inside} == {
        name: lines for name, lines in real.items() if name not in inside | NOT_TRACED
    }


SOURCE = """
import torch


def helper(x):
    print("in a helper")
    return x + 1


# fx: x=f32[3, 4]
@torch.compile
def f(x):
    y = x.relu()
    if y.sum() > 0:
        y = y * 2
    for _ in range(2):
        y = helper(y)
    return y
"""


def test_what_is_told_of_a_compiled_function(trace: TraceFixture) -> None:
    traced = trace(SOURCE)
    told = [r for r in traced.trace.remarks if r.code == "graph-break"]
    assert [(traced.at(r.span), r.page.rpartition("/")[2]) for r in told] == snapshot(
        [("y.sum() > 0", "gb0170.html"), ('print("in a helper")', "gb0059.html")]
    )
    assert textwrap.wrap(told[1].message, 100) == snapshot(
        [
            "torch.compile breaks the graph here (GB0059): Dynamo does not know how to trace builtin operator",
            "`print` with argument types ['str'] (has_kwargs False). Because of it, `f` is not compiled. Avoid",
            "calling builtin `print` with argument types ['str']. Consider using an equivalent alternative",
            "function/method to `print`",
        ]
    )


def test_what_is_compiled_whole_has_an_error(trace: TraceFixture) -> None:
    traced = trace(SOURCE.replace("@torch.compile", "@torch.compile(fullgraph=True)"))
    told = [(r.severity, r.message.partition(":")[0]) for r in traced.trace.remarks if r.code == "graph-break"]
    assert told == snapshot(
        [
            ("error", "torch.compile(fullgraph=True) raises here (GB0170)"),
            ("error", "torch.compile(fullgraph=True) raises here (GB0059)"),
        ]
    )


def test_guessed_inputs_make_no_error(trace: TraceFixture) -> None:
    source = SOURCE.replace("@torch.compile", "@torch.compile(fullgraph=True)").replace("# fx: x=f32[3, 4]\n", "")
    severities = {r.severity for r in trace(source).trace.remarks if r.code == "graph-break"}
    assert severities == {"warning"}


def test_what_is_not_compiled_has_none_where_nobody_asks(trace: TraceFixture) -> None:
    traced = trace(SOURCE.replace("@torch.compile\n", ""))
    assert [r for r in traced.trace.remarks if r.code == "graph-break"] == []


PARTS = """
import torch


# fx: x=f32[3, 4]
@torch.compile
def f(x):
    print("begins")
    y = x.relu()
    z = y * 2
    print("goes on")
    return z + 1
"""


def test_a_break_names_the_graphs_before_and_after_it(trace: TraceFixture) -> None:
    remarks = [remark for remark in trace(PARTS).trace.remarks if remark.code == "graph-break"]
    captured = [
        [(g.number, g.ops, g.span and (g.span.line, g.span.end_line)) if g else None for g in (r.before, r.after)]
        for r in remarks
    ]
    assert captured == [[None, (1, 2, (8, 9))], [(1, 2, (8, 9)), (2, 1, (11, 11))]]


def test_the_page_lists_graphs_and_breaks_in_their_order(trace: TraceFixture) -> None:
    traced = trace(SOURCE, work="breaks")
    assert traced.stage("breaks").text == snapshot("""\
# graphs: 2, breaks: 2
#
# break          line 13: if y.sum() > 0:
#                Data-dependent branching (GB0170)
#                Detected data-dependent branching (e.g. `if my_tensor.sum() > 0:`). Dynamo does not support
#                tracing dynamic control flow.
#                For the common pattern `if tensor_cond: x = transform(x)` (e.g. clamping inf/nan values),
#                consider making the code branchless by always applying the transform. Operations like
#                torch.clamp, torch.nan_to_num, and torch.where are typically no-ops on well-behaved inputs and
#                compile without graph breaks.
#                Use `torch.cond` to express dynamic control flow.
#                https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0170.html
#
# compiled:1     ops: 3
#                of lines 12, 13
#
# break          line 5: print("in a helper")
#                Failed to trace builtin operator (GB0059)
#                Dynamo does not know how to trace builtin operator `print` with argument types ['str']
#                (has_kwargs False)
#                Avoid calling builtin `print` with argument types ['str']. Consider using an equivalent
#                alternative function/method to `print`.
#                If you are attempting to call a logging function (e.g. `print`), you can try adding it to
#                `torch._dynamo.config.reorderable_logging_functions`.
#                Please report an issue to PyTorch.
#                called on line 16
#                because of it, `f` is not compiled
#                https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0059.html
#
# compiled:2     ops: 1
#                of line 6
#
""")
    assert traced.graph("compiled:1") == snapshot("""\
x: f32[3, 4] = placeholder
y: f32[3, 4] = relu(x)
sum_1: f32[] = sum(y)
gt: b8[] = operator.gt(sum_1, 0)
return (gt, y)\
""")


def test_a_target_that_is_captured_whole(trace: TraceFixture) -> None:
    traced = trace("import torch\n\n\n# fx: x=f32[3, 4]\ndef f(x):\n    return x.relu() * 2\n", work="breaks")
    assert traced.stage("breaks").text == snapshot("""\
# graphs: 1, breaks: 0
#
# compiled:1     ops: 2
#                of line 6
#
# torch.compile captures the whole target: fullgraph=True works.
#
""")


def test_a_large_target_runs_without_values(trace: TraceFixture) -> None:
    source = SOURCE.replace("x=f32[3, 4]", "x=f32[65536, 65536]")
    text = trace(source, work="breaks").stage("breaks").text
    assert text.partition("not further")[2] == snapshot("""\
    line 13: the code needs the value of a tensor here (`aten._local_scalar_dense.default`), and a
#                trace has shapes but no values
#
""")
