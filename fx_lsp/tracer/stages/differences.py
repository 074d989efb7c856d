"""Write a page on where numbers differ, from comparisons of graphs and of code that is generated from them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fx_lsp.model import Stage
from fx_lsp.tracer.stages.ledger import Ledger, page
from fx_lsp.tracer.stages.node_values import Difference, NodeComparison

DIVERGE = "diverge"
"""The stage that is the page on differences; its data is in `DATA`."""
DATA = "diverge:json"

_HEAD = ("graph", "compared with", "values", "differ", "first node")


@dataclass(frozen=True)
class ComparedStage:
    """Hold the comparison of the graph of a stage with that of another one; or why it was not compared.

    For code that is generated from the graph `before`, `stage` says which code that is, and `writers` has the kernel
    that writes the value of a node, if it is known.
    """

    stage: str
    before: str
    comparison: NodeComparison = field(default_factory=NodeComparison)
    trouble: str = ""
    is_code: bool = False
    writers: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def graph(self) -> str:
        """Return the stage that has its nodes."""
        return self.before if self.is_code else self.stage


def add_differences(ledger: Ledger, rows: Sequence[ComparedStage]) -> None:
    """Add a page on comparisons, and its data, to a ledger with their graphs; mark the nodes that differ."""
    data = [_data(ledger, row) for row in rows]
    notes = [line for info in ledger.infos if info.note for line in ("", f"{info.name}: {info.note}")]
    for row in rows:
        mark = f"differs in {row.stage}" if row.is_code else f"differs from {row.before}"
        ledger.mark(row.graph, ((name, mark) for name in row.comparison.wrong))
    ledger.text(DIVERGE, "where numbers differ by more than rounding", page([*_page(data), *notes]))
    ledger.text(DATA, "the same as JSON", json.dumps(data))


def _data(ledger: Ledger, row: ComparedStage) -> dict[str, Any]:
    """Return a row as data: JSON has no infinite numbers, so these are text."""
    comparison = row.comparison
    stage = next(s for s in ledger.stages if s.name == row.graph)
    inputs = {n.name for n in stage.nodes if n.op == "placeholder"}
    data: dict[str, Any] = {
        "stage": row.stage,
        "before": row.before,
        "compared": len(comparison.differences.keys() - inputs),
        "differ": len(comparison.wrong),
        "random": comparison.left_out,
        "trouble": row.trouble,
        "first": None,
    }
    if comparison.first:
        data["first"] = {**_first(stage, comparison), "kernel": row.writers.get(comparison.first, "")}
    return data


def _first(stage: Stage, comparison: NodeComparison) -> dict[str, Any]:
    node = next(n for n in stage.nodes if n.name == comparison.first)
    inputs = [{"name": n, **_numbers(comparison.differences.get(n))} for n in dict.fromkeys(node.inputs)]
    return {
        "node": node.name,
        "code": f"{node.name}: {node.spec} = {node.target}({', '.join(node.args)})",
        "file": node.span.file if node.span else "",
        "line": node.span.line if node.span else 0,
        **_numbers(comparison.differences[node.name]),
        "inputs": inputs,
    }


def _numbers(difference: Difference | None) -> dict[str, Any]:
    if difference is None:
        return {"compared": False}
    numbers = asdict(difference).items()
    return {"compared": True, **{k: str(v) if v in (math.inf, -math.inf) else v for k, v in numbers}}


def _page(data: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the page: the first difference, a table of all graphs, and the other differences."""
    differing = [row for row in data if row["first"]]
    if differing:
        yield from _told(differing[0], "The first difference")
    else:
        compared = sum(not row["trouble"] for row in data)
        yield f"No result differs by more than rounding, on random inputs: {compared} of {len(data)} graphs compared."
    yield ""
    widths = [max(map(len, column)) for column in zip(_HEAD, *map(_row, data), strict=True)]
    for row in (_HEAD, *map(_row, data)):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    drawn = sum(row["random"] for row in data)
    if drawn:
        yield ""
        yield f"Left out, as they are computed from random numbers that the graphs draw in other ways: {drawn} values."
    for row in data:
        if row["trouble"]:
            yield ""
            yield f"{row['stage']} was not compared: {row['trouble']}."
    for row in differing[1:]:
        yield ""
        yield from _told(row, "Another one")


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    if row["trouble"]:
        return row["stage"], row["before"], "–", "–", ""
    inside = "(no result differs)" if row["differ"] and not row["first"] else ""
    first = row["first"]["node"] if row["first"] else inside
    return row["stage"], row["before"], str(row["compared"]), str(row["differ"]), first


def _told(row: dict[str, Any], title: str) -> Iterator[str]:
    first = row["first"]
    yield f"{title}: in {row['stage']}, {first['node']} is not as in {row['before']}."
    if first["file"]:
        yield f"  {Path(first['file']).name}:{first['line']}"
    yield f"  {first['code']}"
    if first["kernel"]:
        yield f"  written by {first['kernel']}"
    if first["index"]:
        exact = f", {first['exact']} in float64" if first["exact"] else ""
        yield f"  at {first['index']}: {first['here']}, before {first['before']}{exact}"
        yield f"  absolute error {_short(first['absolute'])}, relative error {_short(first['relative'])}"
        yield f"  rounding before, against float64: {_short(first['rounding'])}"
    else:
        yield f"  {first['here']}, before {first['before']}"
    for item in first["inputs"]:
        yield f"  its input {item['name']}: {_verdict(item)}"


def _verdict(item: dict[str, Any]) -> str:
    if not item["compared"]:
        return "not compared"
    error = f"relative error {_short(item['relative'])}"
    return f"differs, {error}" if item["wrong"] else f"agrees, {error}"


def _short(number: float | str) -> str:
    return number if isinstance(number, str) else f"{number:.2g}"
