"""How long a diff of two stages takes: `python benchmarks/diffs.py [NODES]`.

The graph is a chain of layers; a pass has changed every twentieth node of it, has replaced every second one by three
others, or has moved a tenth of it elsewhere. difflib compares the rendered texts of the same stages in the same run.
Times are the best of five, in milliseconds; of one for difflib.
"""

from __future__ import annotations

import difflib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from fx_lsp.features.diffs import render_diff
from fx_lsp.features.documents import render_stage
from fx_lsp.model import Node, Span, Stage, StageInfo, Trace

GOAL = 300
OPS = ("aten.mm.default", "aten.add.Tensor", "aten.relu.default", "aten.mul.Tensor", "aten.view.default")


def graph(size: int) -> Stage:
    """A chain of `size` nodes, five operations in turn, each from a place of its own."""
    nodes = [Node("x", "placeholder", "primals_1", spec="f32[64, 64]"), Node("w", "placeholder", "primals_2")]
    for index in range(size - 3):
        before = nodes[-1].name if index else "x"
        span = Span("/project/model.py", index // 5 + 1, 4 * (index % 5), index // 5 + 1, 40)
        target = OPS[index % len(OPS)]
        name = f"{target.split('.')[1]}_{index}"
        nodes.append(Node(name, "call_function", target, (before, "w"), spec="f32[64, 64]", spans=(span,)))
    nodes.append(Node("output", "output", "output", (nodes[-1].name,)))
    return Stage("joint", tuple(nodes))


def changed(stage: Stage) -> Stage:
    nodes = [replace(n, args=(*n.args, "alpha=2")) if i % 20 == 7 else n for i, n in enumerate(stage.nodes)]
    return Stage("joint:pass", tuple(nodes))


def replaced(stage: Stage) -> Stage:
    nodes: list[Node] = []
    for index, node in enumerate(stage.nodes):
        if node.op == "call_function" and index % 2:
            nodes += [replace(node, name=f"{node.name}_part_{part}", args=("w", str(part))) for part in range(3)]
        else:
            nodes.append(node)
    return Stage("joint:pass", tuple(nodes))


def moved(stage: Stage) -> Stage:
    middle, tenth = list(stage.nodes[2:-1]), len(stage.nodes) // 10
    return Stage("joint:pass", (*stage.nodes[:2], *middle[tenth:], *middle[:tenth], stage.nodes[-1]))


PASSES = {"changed every 20th node": changed, "replaced every second": replaced, "moved a tenth": moved}


def best(work: Callable[[], Any], count: int) -> float:
    """The shortest of `count` runs, in milliseconds."""
    times: list[float] = []
    for _ in range(count):
        start = time.perf_counter()
        work()
        times.append(1000 * (time.perf_counter() - start))
    return min(times)


def main(arguments: Sequence[str]) -> None:
    """Print the table."""
    size = int(arguments[0]) if arguments else 10_000
    before = graph(size)
    print(f"{size:,} nodes · goal {GOAL} ms\n")
    print(f"| {'a pass that has':<24} | render_diff | difflib | ratio |\n|{'-' * 26}|------------:|--------:|------:|")
    for title, make in PASSES.items():
        after = make(before)
        infos = tuple(StageInfo(stage.name, size, size) for stage in (before, after))
        trace = Trace("/project/model.py::f", (), infos, (), (), (), 1.0, "2")
        documents = [render_stage(trace, stage, lambda span: None, full=True) for stage in (before, after)]
        texts = [document.text.splitlines() for document in documents]
        ours = best(lambda after=after, trace=trace: render_diff(trace, before, after).text, 5)
        theirs = best(lambda texts=texts: list(difflib.unified_diff(*texts, lineterm="", n=3)), 1)
        print(f"| {title:<24} | {ours:>11.0f} | {theirs:>7.0f} | {ours / theirs:>5.2f} |")


if __name__ == "__main__":
    main(sys.argv[1:])
