"""Write a target as one HTML file: its source beside its graphs, with the lines that belong together linked.

The file has its styles and its script, so that it opens from an issue, without a server and without network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template

from fx_lsp import __version__, files
from fx_lsp.features.costs.memory import why_saved
from fx_lsp.features.costs.summary import ESTIMATES, LineRow, Place, costs_text, shares_of, summary_of
from fx_lsp.features.documents.document import Document, Line, render_stage
from fx_lsp.features.wording.dimensions import SizeNames, SizeStyle
from fx_lsp.features.wording.inputs import input_text, source_text
from fx_lsp.features.wording.text import basename, count, format_bytes
from fx_lsp.features.wording.traces import default_stage, summarize
from fx_lsp.model import Span, Stage, Target, Trace

_NEARBY = 3
"""The most lines without operations between two lines of one excerpt."""
_COSTING = ("forward", "backward", "inference")
_ORDER = (*_COSTING, "joint")


def web_page(
    target: Target, trace: Trace, stages: Sequence[Stage], read: Callable[[str], Sequence[str]], sizes: SizeStyle
) -> str:
    """Return the page of a traced target. `read` returns the lines of a file, none if it cannot be read."""

    def line_of(span: Span) -> str | None:
        lines = read(span.file)
        return lines[span.line - 1] if span.line <= len(lines) else None

    ordered = sorted(stages, key=lambda stage: _ORDER.index(stage.name) if stage.name in _ORDER else len(_ORDER))
    documents = {stage.name: render_stage(trace, stage, line_of, full=True, sizes=sizes) for stage in ordered}
    costing = [stage for stage in stages if stage.name in _COSTING]
    rows = {(row.span.file, row.span.line): row for row in (summary_of(trace, costing).lines if costing else ())}
    numbers = {place: str(i) for i, place in enumerate(_places(documents.values()))}
    shares, measure = shares_of(rows.values())
    template = Template(files.read_text(Path(__file__).with_name("web_page.html")))
    return template.substitute(
        title=escape(f"{basename(target.file)}::{target.name}"),
        summary=escape(summarize(trace)),
        inputs=_inputs(trace, SizeNames(trace, sizes)),
        rules="\n".join(_tab_rules(len(documents))),
        source="".join(_excerpts(target, numbers, rows, shares, read)),
        graphs=_graphs(documents, numbers, default_stage(trace))
        + _saved(trace, next((stage for stage in stages if stage.name == "forward"), None)),
        torch=escape(trace.torch),
        version=__version__,
        measure=ESTIMATES[measure],
    )


def _inputs(trace: Trace, names: SizeNames) -> str:
    rows = (f"<code>{escape(input_text(item, names))}</code> · {escape(source_text(item))}" for item in trace.inputs)
    items = "".join(f"<li>{row.replace('`', '')}</li>" for row in rows)
    return f"<details><summary>{count('input', len(trace.inputs))}</summary><ul>{items}</ul></details>" if items else ""


def _places(documents: Iterable[Document]) -> dict[Place, None]:
    """Return the lines of the code that lines of the documents come from, in order."""
    spans = (span for document in documents for line in document.lines for span in line.spans)
    return dict.fromkeys((span.file, span.line) for span in spans)


def _excerpts(
    target: Target,
    numbers: Mapping[Place, str],
    rows: Mapping[Place, LineRow],
    shares: Mapping[Place, float],
    read: Callable[[str], Sequence[str]],
) -> Iterator[str]:
    """Yield the code of the target, then the other lines with operations and those between them, file by file."""
    used: dict[str, set[int]] = {target.file: {*range(target.span.line, target.span.end_line + 1)}}
    for file, line in numbers:
        used.setdefault(file, set()).add(line)
    for file, wanted in used.items():
        lines = read(file)
        yield f"<h2>{escape(basename(file))}</h2><pre>"
        before = 0
        for line in sorted(wanted):
            if before and line - before > _NEARBY:
                yield '<span class="comment"><i>⋮</i></span>'
            for number in range(before + 1 if before and line - before <= _NEARBY else line, line + 1):
                if number <= len(lines):
                    place = (file, number)
                    yield _source_line(
                        lines[number - 1], number, numbers.get(place), rows.get(place), shares.get(place)
                    )
            before = line
        yield "</pre>"


def _source_line(text: str, number: int, of: str | None, row: LineRow | None, share: float | None) -> str:
    attributes = "" if of is None else f' data-of="{of}"'
    if share:
        attributes += f' class="heat" style="--share: {100 * share:.1f}%"'
    cost = "" if row is None else f"<b>{escape(_cost(row))}</b>"
    return f"<span{attributes}><i>{number}</i>{escape(text.rstrip())}{cost}</span>"


def _cost(row: LineRow) -> str:
    ops, saved = row.totals.ops, row.totals.saved_bytes
    parts = [count("op", ops.forward), f"{ops.backward:,} backward" if ops.backward else "", *costs_text(row.totals)]
    return " · ".join(filter(None, [*parts, f"saves {format_bytes(saved)}" if saved else ""]))


def _tab_rules(stages: int) -> Iterator[str]:
    for i in range(stages):
        yield f"#s{i}:checked ~ #g{i} {{ display: block; }}"
        yield f"#s{i}:checked ~ .tabs label[for=s{i}] {{ background: var(--line); }}"


def _graphs(documents: Mapping[str, Document], numbers: Mapping[Place, str], first: str) -> str:
    """Return the graphs behind tabs, which work without a script."""
    inputs = "".join(
        f'<input type="radio" name="stage" id="s{i}"{" checked" if name == first else ""}>'
        for i, name in enumerate(documents)
    )
    labels = "".join(f'<label for="s{i}">{escape(name)}</label>' for i, name in enumerate(documents))
    bodies = ("".join(_graph_line(line, numbers) for line in document.lines) for document in documents.values())
    pages = "".join(f'<div class="stage" id="g{i}"><pre>{body}</pre></div>' for i, body in enumerate(bodies))
    return f'{inputs}<div class="tabs">{labels}</div>{pages}'


def _graph_line(line: Line, numbers: Mapping[Place, str]) -> str:
    of = dict.fromkeys(numbers[span.file, span.line] for span in line.spans)
    attributes = f' data-of="{" ".join(of)}"' if of else ""
    if line.text.lstrip().startswith("#"):
        attributes += ' class="comment"'
    return f"<span{attributes}>{escape(line.text)}</span>"


def _saved(trace: Trace, forward: Stage | None) -> str:
    rows = "".join(
        f'<tr><td class="number">{escape(value.name)}</td><td class="number">{escape(value.spec)}</td>'
        f'<td class="number">{format_bytes(value.bytes)}</td>'
        f"<td>{escape(why_saved(value, forward, trace.saved) or value.kind)}</td></tr>"
        for value in trace.saved
    )
    return f"<h2>saved for backward</h2><table>{rows}</table>" if rows else ""
