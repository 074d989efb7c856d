"""The pipeline of a target as a list: which stages there are, and what each pass changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fx_lsp.features.diffs import diff_lines
from fx_lsp.features.documents import Document, Line, body, title_lines
from fx_lsp.features.lenses import PASSES
from fx_lsp.features.text import count, one_line
from fx_lsp.model import Change, Stage, StageInfo, Trace


@dataclass(frozen=True)
class PassRow:
    """One row: a stage, how many passes right before it changed nothing, and whether it can be shown."""

    info: StageInfo
    hidden: tuple[StageInfo, ...] = ()

    @property
    def shown(self) -> bool:
        """Return whether there is something to show: a stage that could not be made is only its note."""
        return bool(self.info.nodes) or not self.info.note


def steps(trace: Trace) -> list[PassRow]:
    """The stages in their order; passes that changed nothing are hidden in the row after them, or in the last."""
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
    """Return whether a stage is that of a pass that changed nothing, and says nothing else."""
    return info.change is not None and not info.change and not info.note


def change_text(change: Change | None) -> str:
    """`+3 −2 ~1`: nodes that are new, gone and changed; `nothing` where a pass did nothing, "" for no pass."""
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
    """Return the list as a document, entitled by what it is and `how` it comes about.

    With `every`, also the passes that changed nothing.
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
    """Show what a pass of the user did: its steps, what it found where, what changed, and what went wrong.

    Where it only looked for something, the graph follows, with what it found marked.
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
