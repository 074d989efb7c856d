"""How long opening the diff of two stages takes: `python benchmarks/diffs.py [NODES]`.

The graph is a chain of layers; a pass has changed every twentieth node of it, has replaced every second one by three
others, or has moved a tenth of it elsewhere. A diff is opened from its two stages as they are kept, encoded, to its
text: each time in a process of its own, which has done nothing yet ("first"), and there once more ("again"). "decode"
and "render" are the parts of the first time. difflib compares the rendered texts of the same stages. Times are medians
of seven processes, in milliseconds; of one run for difflib.
"""

from __future__ import annotations

import difflib
import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from limits import output_of

from fx_lsp.cli import GARBAGE
from fx_lsp.features.documents.diffs import render_diff
from fx_lsp.features.documents.document import render_stage
from fx_lsp.model import Node, Span, Stage, StageInfo, Trace
from fx_lsp.wire import decode_stage, encode_stage

GOAL = 300
PROCESSES = 7
OPEN = "--open"
OPEN_SECONDS = 300.0
OPS = ("aten.mm.default", "aten.add.Tensor", "aten.relu.default", "aten.mul.Tensor", "aten.view.default")


def graph(size: int) -> Stage:
    """A chain of `size` nodes, five operations in turn, each from a place of its own."""
    nodes = [Node("x", "placeholder", "primals_1", spec="f32[64, 64]"), Node("w", "placeholder", "primals_2")]
    for index in range(size - 3):
        before = nodes[-1].name if index else "x"
        span = Span("/project/model.py", index // 5 + 1, 4 * (index % 5), index // 5 + 1, 40)
        target, inputs = OPS[index % len(OPS)], (before, "w")
        name = f"{target.split('.')[1]}_{index}"
        nodes.append(Node(name, "call_function", target, inputs, inputs, (), "f32[64, 64]", (span,)))
    last = (nodes[-1].name,)
    return Stage("joint", with_users([*nodes, Node("output", "output", "output", last, last)]))


def with_users(nodes: Sequence[Node]) -> tuple[Node, ...]:
    users: dict[str, list[str]] = {node.name: [] for node in nodes}
    for node in nodes:
        for name in node.inputs:
            users[name].append(node.name)
    return tuple(replace(node, users=tuple(users[node.name])) for node in nodes)


def changed(stage: Stage) -> Stage:
    nodes = [replace(n, args=(*n.args, "alpha=2")) if i % 20 == 7 else n for i, n in enumerate(stage.nodes)]
    return Stage("joint:pass", tuple(nodes))


def replaced(stage: Stage) -> Stage:
    nodes: list[Node] = []
    parts: dict[str, str] = {}
    for index, node in enumerate(stage.nodes):
        inputs = tuple(parts.get(name, name) for name in node.inputs)
        node = replace(node, args=inputs, inputs=inputs)
        if node.op == "call_function" and index % 2:
            for part in range(3):
                nodes.append(replace(node, name=f"{node.name}_part_{part}", args=(*node.args, str(part))))
            parts[node.name] = nodes[-1].name
        else:
            nodes.append(node)
    return Stage("joint:pass", with_users(nodes))


def moved(stage: Stage) -> Stage:
    middle, tenth = list(stage.nodes[2:-1]), len(stage.nodes) // 10
    return Stage("joint:pass", (*stage.nodes[:2], *middle[tenth:], *middle[:tenth], stage.nodes[-1]))


PASSES = {"changed every 20th node": changed, "replaced every second": replaced, "moved a tenth": moved}


def trace_of(*stages: Stage) -> Trace:
    infos = tuple(StageInfo(stage.name, len(stage.nodes), len(stage.nodes)) for stage in stages)
    return Trace("/project/model.py::f", (), infos, (), (), (), 1.0, "2")


def seconds(work: Callable[[], Any]) -> float:
    """How long `work` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def open_twice(folder: Path) -> None:
    """Print what opening the diff of the two encoded stages in `folder` takes: decoding and rendering, two times."""
    gc.set_threshold(*GARBAGE)
    data = [(folder / name).read_bytes() for name in ("before", "after")]
    times: list[float] = []
    for _ in range(2):
        stages: list[Stage] = []
        times.append(seconds(lambda stages=stages: stages.extend(map(decode_stage, data))))
        times.append(seconds(lambda stages=stages: render_diff(trace_of(*stages), *stages).text))
    print(json.dumps(times))


def opened(before: Stage, after: Stage) -> list[float]:
    """Milliseconds: opening the diff for the first time and again, and what decoding and rendering take at first."""
    with tempfile.TemporaryDirectory() as folder:
        for name, stage in (("before", before), ("after", after)):
            (Path(folder) / name).write_bytes(encode_stage(stage))
        command = [sys.executable, __file__, OPEN, folder]
        found = [json.loads(output_of(command, OPEN_SECONDS)[0]) for _ in range(PROCESSES)]
    rows = [(d1 + r1, d2 + r2, d1, r1) for d1, r1, d2, r2 in found]
    return [1000 * median(column) for column in zip(*rows, strict=True)]


def main(arguments: Sequence[str]) -> None:
    """Print the table."""
    if arguments[:1] == [OPEN]:
        open_twice(Path(arguments[1]))
        return
    size = int(arguments[0]) if arguments else 10_000
    before = graph(size)
    columns = ("first", "again", "decode", "render", "difflib", "ratio")
    print(f"{size:,} nodes · goal for the first time {GOAL} ms\n")
    print(f"| {'a pass that has':<24} |{''.join(f' {name:>7} |' for name in columns)}")
    print(f"|{'-' * 26}|{'--------:|' * len(columns)}")
    for title, make in PASSES.items():
        after = make(before)
        times = opened(before, after)
        trace = trace_of(before, after)
        texts = [render_stage(trace, s, lambda span: None, full=True).text.splitlines() for s in (before, after)]
        theirs = 1000 * seconds(lambda texts=texts: list(difflib.unified_diff(*texts, lineterm="", n=3)))
        cells = [f"{t:.0f}" for t in (*times, theirs)] + [f"{times[3] / theirs:.2f}"]
        print(f"| {title:<24} |{''.join(f' {cell:>7} |' for cell in cells)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
