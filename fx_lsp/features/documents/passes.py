"""List the pipeline of a target: its stages, and the changes of each pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fx_lsp.features.documents.diffs import diff_lines
from fx_lsp.features.documents.document import Document, Line, body, title_lines
from fx_lsp.features.wording.text import count, one_line
from fx_lsp.features.wording.traces import PASSES
from fx_lsp.model import Change, Stage, StageInfo, Trace


@dataclass(frozen=True)
class PassRow:
    """Hold one row: a stage, and the passes directly before it that changed nothing."""

    info: StageInfo
    hidden: tuple[StageInfo, ...] = ()

    @property
    def shown(self) -> bool:
        """Return True if the stage can be shown: a stage that could not be computed is only its note."""
        return bool(self.info.nodes) or not self.info.note


def steps(trace: Trace) -> list[PassRow]:
    """Return the stages in order. Passes that changed nothing are hidden in the next row, or in the last."""
    rows: list[PassRow] = []
    hidden: list[StageInfo] = []
    for info in trace.stages:
        if is_unchanged(info):
            hidden.append(info)
        else:
            rows.append(PassRow(info, tuple(hidden)))
            hidden = []
    if hidden and rows:
        rows[-1] = PassRow(rows[-1].info, (*rows[-1].hidden, *hidden))
    return rows


def is_unchanged(info: StageInfo) -> bool:
    """Return True for a stage of a pass that changed nothing and has no note."""
    return info.change is not None and not info.change and not info.note


def change_text(change: Change | None) -> str:
    """Return `+3 −2 ~1`: added, removed and changed nodes; `nothing` if a pass did nothing, "" without a pass."""
    if change is None:
        return ""
    parts = [
        f"{sign}{number:,}"
        for sign, number in (("+", change.added), ("−", change.removed), ("~", change.changed), ("↕", change.moved))
        if number
    ]
    return " ".join(parts) or "nothing"


def render_passes(
    trace: Trace, every: bool = False, what: str = PASSES, how: str = "compiler passes, stage by stage"
) -> Document:
    """Return the list as a document with a title: its name, and `how` it is computed.

    With `every`, it includes the passes that changed nothing.
    """
    infos = trace.stages if every else tuple(step.info for step in steps(trace))
    width = max([len(info.name) for info in infos], default=0)
    changes = max([len(change_text(info.change)) for info in infos] + [6])
    title = title_lines(trace, what, how)
    notes = [f"# note: {one_line(note, 400)}" for note in trace.notes]
    lines = [Line(line) for line in [*title[:-1], *notes, ""]]
    lines += [Line(f"# {'stage':<{width}}  {'ops':>6}  {'change':<{changes}}  made by")]
    for info in infos:
        ops = f"{info.ops:,}" if info.nodes else ""
        row = f"# {info.name:<{width}}  {ops:>6}  {change_text(info.change):<{changes}}  {info.title}"
        lines.append(Line(row.rstrip(), (), (info.name,)))
        if info.note:
            lines.append(Line(f"#   {one_line(info.note, 400)}"))
    unchanged = [info.name for info in trace.stages if is_unchanged(info)]
    if unchanged and not every:
        lines += [Line("#"), Line(f"# {count('pass', len(unchanged), 'passes')} changed nothing:")]
        lines += [Line(f"#   {row}") for row in _wrapped(unchanged)]
    return Document(tuple(lines))


def render_run(trace: Trace, stages: Mapping[str, Stage]) -> Document:
    """Return the run of a user's pass as a document: its steps, its matches, its changes, and its errors.

    If the pass only matched, the graph follows, with the matches marked.
    """
    lines = list(render_passes(trace, True).lines)
    searched = stages.get(trace.stages[0].name) if trace.stages else None
    for info in trace.stages:
        stage, before = stages.get(info.name), stages.get(trace.kept(info.before) or "")
        if stage is not None and stage.text:
            lines += [Line(""), *(Line(line) for line in stage.text.splitlines())]
        elif stage is not None and before is not None and info.change:
            lines += [Line(""), *diff_lines(before, stage)]
    if searched is not None and any(s.text for s in stages.values()) and not any(i.change for i in trace.stages):
        lines += [Line(""), *body(trace, searched, lambda span: None)]
    for remark in trace.remarks:
        if remark.severity == "error" and remark.span is not None:
            where = f"{remark.span.file}:{remark.span.line}"
            lines += [Line(""), Line(f"# {where}: {remark.message}", (remark.span,))]
    return Document(tuple(lines))


def _wrapped(names: list[str], width: int = 110) -> list[str]:
    rows: list[str] = []
    for name in names:
        if rows and len(rows[-1]) + len(name) + 2 <= width:
            rows[-1] += f", {name}"
        else:
            rows.append(name)
    return rows
