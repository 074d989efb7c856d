"""Sum up the costs of a target, by submodule and by source line: parameters, operations, bytes, and peak memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Literal

from fx_lsp.features.costs.memory import Memory, memory
from fx_lsp.features.costs.operations import format_flops
from fx_lsp.features.documents.document import Document, Line, SourceLine, title_lines
from fx_lsp.features.wording.text import basename, format_bytes, one_line
from fx_lsp.features.wording.traces import default_stage, summarize
from fx_lsp.model import ModuleInfo, Node, Span, Stage, Trace

Place = tuple[str, int]
"""A line of the code: a file, and a number from 1."""
SUMMARY = "summary"
"""The stage that is a summary."""
Estimate = Literal["flops", "bytes"]
ESTIMATES: Mapping[Estimate, str] = {"flops": "the FLOPs", "bytes": "the moved bytes"}
"""The costs that lines are compared by without a measurement, as text."""
_TEXT = 60


@dataclass(frozen=True)
class Both:
    """Hold a number for forward (or inference) and one for backward."""

    forward: int = 0
    backward: int = 0

    @property
    def sum(self) -> int:
        """Return the number for both together."""
        return self.forward + self.backward

    def __add__(self, other: Both) -> Both:
        return Both(self.forward + other.forward, self.backward + other.backward)


@dataclass(frozen=True)
class Totals:
    """Hold the total cost of some operations. `saved` are bytes of activations saved for backward, `peak` the most
    bytes of live activations while one of them runs, `sent` those that each process sends in collectives.
    """

    ops: Both = Both()
    flops: Both = Both()
    moved_bytes: Both = Both()
    saved_bytes: int = 0
    peak_bytes: int = 0
    sent_bytes: Both = Both()

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.ops + other.ops,
            self.flops + other.flops,
            self.moved_bytes + other.moved_bytes,
            self.saved_bytes + other.saved_bytes,
            max(self.peak_bytes, other.peak_bytes),
            self.sent_bytes + other.sent_bytes,
        )


@dataclass(frozen=True)
class ModuleRow:
    """Describe a module with its submodules: `parameters` counts all of them, `like` are the identical modules after
    it.
    """

    path: str
    kind: str
    depth: int
    parameters: int
    parameter_bytes: int
    totals: Totals
    like: tuple[str, ...] = ()


@dataclass(frozen=True)
class LineRow:
    """Hold the cost of the expressions on a source line, without the code that they call on other lines."""

    span: Span
    totals: Totals


@dataclass(frozen=True)
class CostSummary:
    """Hold the costs of a target. `peak` is the operation with peak memory, None without activations."""

    totals: Totals
    parameters: int
    parameter_bytes: int
    modules: tuple[ModuleRow, ...]
    lines: tuple[LineRow, ...]
    peak: PeakMemory | None


@dataclass(frozen=True)
class PeakMemory:
    """Hold the operation with the most bytes of live activations, and the part of them that is saved for backward."""

    stage: str
    node: str
    span: Span | None
    bytes: int
    kept: int


@dataclass
class _Costs:
    """The totals of modules by path, and of lines by file and number."""

    modules: dict[str, Totals] = field(default_factory=dict[str, Totals])
    lines: dict[tuple[str, int], LineRow] = field(default_factory=dict[tuple[str, int], LineRow])
    totals: Totals = Totals()

    def add(self, node: Node, totals: Totals) -> None:
        self.totals += totals
        for path in _ancestors(node.module):
            self.modules[path] = self.modules.get(path, Totals()) + totals
        if (span := node.span) is not None:
            row = self.lines.get((span.file, span.line)) or LineRow(span, Totals())
            self.lines[span.file, span.line] = replace(row, totals=row.totals + totals)


def summary_of(trace: Trace, stages: Sequence[Stage]) -> CostSummary:
    """Return the costs of a target from its stages: forward and backward, or inference."""
    forward, backward = stages[0], stages[1] if len(stages) > 1 else None
    use, costs = memory(trace, forward, backward), _Costs()
    alive = {(step.stage, step.name): step.live for step in use.steps}
    saved = {value.name: value.bytes for value in trace.saved if value.kind == "activation"}
    for stage in stages:
        side = partial(Both, 0) if stage is backward else Both
        for node in stage.nodes:
            ops, flops, moved = side(int(node.computes)), side(node.flops), side(node.moved_bytes)
            kept = saved.get(node.name, 0) if stage is forward else 0
            live, sent = alive.get((stage.name, node.name), 0), side(node.sent_bytes)
            costs.add(node, Totals(ops, flops, moved, kept, live, sent))
    rows = tuple(_module_rows(trace.modules, costs.modules))
    own = trace.target.rpartition("::")[0]
    lines = sorted(costs.lines.values(), key=lambda row: (row.span.file != own, row.span.file, row.span.line))
    held = sum(m.parameters for m in trace.modules), sum(m.parameter_bytes for m in trace.modules)
    return CostSummary(costs.totals, *held, rows, tuple(row for row in lines if row.totals.ops != Both()), _peak(use))


def shares_of(rows: Iterable[LineRow]) -> tuple[dict[Place, float], Estimate]:
    """Return the share of each line in the FLOPs of all, or in the moved bytes if no operation has FLOPs; and which."""
    totals = {(row.span.file, row.span.line): row.totals for row in rows}
    flops = {place: total.flops.sum for place, total in totals.items()}
    moved = {place: total.moved_bytes.sum for place, total in totals.items()}
    costs, measure = (flops, "flops") if any(flops.values()) else (moved, "bytes")
    whole = sum(costs.values()) or 1
    return {place: cost / whole for place, cost in costs.items()}, measure


def costs_text(totals: Totals) -> list[str]:
    """Return the FLOPs, moved bytes and sent bytes, forward and backward together:
    `["1.2 GFLOP", "moves 3 MiB", "sends 2 MiB"]`.
    """
    flops, moved, sent = totals.flops.sum, totals.moved_bytes.sum, totals.sent_bytes.sum
    texts = {format_flops(flops): flops, f"moves {format_bytes(moved)}": moved, f"sends {format_bytes(sent)}": sent}
    return [text for text, number in texts.items() if number]


def _peak(use: Memory) -> PeakMemory | None:
    if use.peak is None:
        return None
    step = use.steps[use.peak]
    return PeakMemory(step.stage, step.name, step.span, step.live, step.kept)


def _ancestors(path: str) -> Iterator[str]:
    """Yield the paths of a module and of its ancestors; the target's own, "", is last."""
    while path:
        yield path
        path = path.rpartition(".")[0]
    yield ""


def _module_rows(modules: Sequence[ModuleInfo], totals: Mapping[str, Totals]) -> Iterator[ModuleRow]:
    """Yield the modules that have parameters or operations, each after its parent."""
    held: dict[str, tuple[int, int]] = {}
    for module in modules:
        for path in _ancestors(module.path):
            count, size = held.get(path, (0, 0))
            held[path] = count + module.parameters, size + module.parameter_bytes
    for module in modules:
        cost = totals.get(module.path, Totals())
        if held[module.path][0] or cost.ops != Both():
            depth = module.path.count(".") + 1 if module.path else 0
            yield ModuleRow(module.path, module.kind, depth, *held[module.path], cost)


def folded(rows: Sequence[ModuleRow]) -> tuple[ModuleRow, ...]:
    """Return the rows without repeats of the module before them, which lists them: the layers of a stack."""
    kept: list[ModuleRow] = []
    index = 0
    while index < len(rows):
        size = _extent(rows, index)
        like: list[str] = []
        after = index + size
        while after < len(rows) and _alike(rows[index : index + size], rows[after : after + _extent(rows, after)]):
            like.append(rows[after].path)
            after += size
        first = replace(rows[index], like=tuple(like))
        kept += [first, *folded(rows[index + 1 : index + size])]
        index = after
    return tuple(kept)


def _extent(rows: Sequence[ModuleRow], index: int) -> int:
    """Return the number of rows of a module and its submodules."""
    end = index + 1
    while end < len(rows) and rows[end].depth > rows[index].depth:
        end += 1
    return end - index


def _alike(rows: Sequence[ModuleRow], others: Sequence[ModuleRow]) -> bool:
    """Return True if modules are of the same classes and cost the same, ignoring peak memory, which differs by
    place.
    """
    return [*map(_unplaced, rows)] == [*map(_unplaced, others)]


def _unplaced(row: ModuleRow) -> ModuleRow:
    return replace(row, path="", totals=replace(row.totals, peak_bytes=0))


def render_summary(trace: Trace, stages: Sequence[Stage], source_line: SourceLine, full: bool = False) -> Document:
    """Return the summary as a document: modules, with repeats folded unless `full`, then lines."""
    summary = summary_of(trace, stages)
    lines = [Line(line) for line in title_lines(trace, SUMMARY, summarize(trace))]
    lines += [Line(f"# {text}") for text in _head(summary)]
    modules = summary.modules if full else folded(summary.modules)
    if len(modules) > 1:
        cells = [_module_cells(row) for row in modules]
        head = ("module", "class", "parameters", *_COLUMNS)
        lines += [Line("#"), *(Line(row) for row in table(head, cells, left=2))]
    if summary.lines:
        head = ("line", *_COLUMNS, "")
        cells = [_line_cells(row, trace, source_line) for row in summary.lines]
        rows = table(head, cells, left=1)
        spans = [(), *((row.span,) for row in summary.lines)]
        lines += [Line("#"), *(Line(text, span) for text, span in zip(rows, spans, strict=True))]
    return Document(tuple(lines))


_COLUMNS = ("ops", "backward", "FLOP", "backward", "moved", "backward", "saved", "peak")


def _head(summary: CostSummary) -> Iterator[str]:
    if summary.parameters:
        yield f"parameters  {summary.parameters:,}, {format_bytes(summary.parameter_bytes)}"
    if sent := summary.totals.sent_bytes.sum:
        yield f"sent        {format_bytes(sent)} by each process in collectives"
    peak = summary.peak
    if peak is not None:
        place = f", {basename(peak.span.file)}:{peak.span.line}" if peak.span is not None else ""
        kept = f", {format_bytes(peak.kept)} of them saved for backward" if peak.kept else ""
        alive = f"{format_bytes(peak.bytes)} of activations{kept}"
        yield f"peak        {alive}: in {peak.stage}, at {peak.node}{place}"


def _module_cells(row: ModuleRow) -> tuple[str, ...]:
    path = row.path or "the whole"
    name = f"{path} … {row.like[-1].rpartition('.')[2]}" if row.like else path
    kind = f"{len(row.like) + 1} × {row.kind}" if row.like else row.kind
    return (f"{'  ' * max(row.depth - 1, 0)}{name}", kind, f"{row.parameters:,}", *_cells(row.totals))


def _line_cells(row: LineRow, trace: Trace, source_line: SourceLine) -> tuple[str, ...]:
    own = row.span.file == trace.target.rpartition("::")[0]
    place = f"{row.span.line}" if own else f"{basename(row.span.file)}:{row.span.line}"
    return (place, *_cells(row.totals), one_line(source_line(row.span) or "", _TEXT))


def _cells(totals: Totals) -> tuple[str, ...]:
    ops = [f"{n:,}" if n else "" for n in (totals.ops.forward, totals.ops.backward)]
    flops = [format_flops(n).removesuffix("FLOP") if n else "" for n in (totals.flops.forward, totals.flops.backward)]
    sizes = totals.moved_bytes.forward, totals.moved_bytes.backward, totals.saved_bytes, totals.peak_bytes
    return (*ops, *flops, *(format_bytes(size) if size else "" for size in sizes))


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int) -> list[str]:
    """Return a table as comment lines. The first `left` columns and a last column of text are left-aligned."""
    cells = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    texts: list[str] = []
    for row in cells:
        shown = [
            cell.ljust(width) if i < left or (not head[i]) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        texts.append(f"# {'  '.join(shown)}".rstrip())
    return texts


def summary_to_json(summary: CostSummary, source_line: SourceLine) -> dict[str, Any]:
    """Return the summary as stable data for scripts; every module is listed separately."""
    peak = summary.peak
    return {
        "parameters": summary.parameters,
        "parameter_bytes": summary.parameter_bytes,
        **asdict(summary.totals),
        "peak": None if peak is None else {"stage": peak.stage, "node": peak.node, **_place(peak.span)},
        "modules": [
            {
                "path": row.path,
                "class": row.kind,
                "parameters": row.parameters,
                "parameter_bytes": row.parameter_bytes,
                **asdict(row.totals),
            }
            for row in summary.modules
        ],
        "lines": [
            {**_place(row.span), "text": (source_line(row.span) or "").strip(), **asdict(row.totals)}
            for row in summary.lines
        ],
    }


def _place(span: Span | None) -> dict[str, Any]:
    return {} if span is None else {"file": span.file, "line": span.line}


def stages_of_summary(trace: Trace) -> tuple[str, ...]:
    """Return the names of the stages of a summary."""
    first = default_stage(trace)
    return (first, "backward") if trace.info("backward") is not None and first == "forward" else (first,)
