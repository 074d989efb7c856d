"""What an editor shows in whole files, in the files themselves: each text is a comment below its place.

A file of `cases/` begins with what is shown of it: `# shows: lenses, costs`. A hover is shown where a comment has its
caret, the others everywhere:

    y = x @ w
    #   ^^^^^ hover f32[4, 16]

`UPDATE_GOLDEN=1 pytest tests/shown` writes the comments anew; read what git says of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from carets import Shown, annotated, places, stripped
from conftest import TraceFixture

from fx_lsp.features.hints import HintStyle, TracedTarget, hints
from fx_lsp.features.hover import HoverStyle, HoverSubject, hover_expression
from fx_lsp.features.inline_values import inline_values
from fx_lsp.features.lenses import lenses
from fx_lsp.model import Span, Stage, Target, Trace
from fx_lsp.tracing.source.targets import discover

pytestmark = pytest.mark.torch

CASES = sorted((Path(__file__).parent / "cases").glob("*.py"))
STOPPED = "the debugger has stopped here"


class Case(NamedTuple):
    """Describe the last target of a file, traced; `golden` is the file with its comments."""

    golden: str
    text: str
    target: Target
    trace: Trace
    stages: dict[str, Stage]


def of_lenses(case: Case) -> Iterator[Shown]:
    for lens in lenses(case.target, case.trace, stale=False):
        yield below(lens.span, f"lens {lens.title}")


def of_hovers(case: Case) -> Iterator[Shown]:
    subject = HoverSubject(case.text, case.target, case.trace, [*case.stages.values()])
    for line, start, end in places(case.golden, "hover"):
        hover = hover_expression(subject, line, start, HoverStyle(chip="cuda:90"))
        text = "" if hover is None else hover.markdown.replace("```python", "").replace("```", "")
        yield Shown(line, start, end, f"hover\n{text}")


def of_costs(case: Case) -> Iterator[Shown]:
    forward = case.stages.get("forward", case.stages.get("inference"))
    traced = TracedTarget(case.target, case.trace, forward, case.stages.get("backward"))
    style = HintStyle(kinds=frozenset({"costs", "savedForBackward"}))
    for hint in hints(case.text, [traced], 1, len(case.text.splitlines()), style):
        yield Shown(hint.line, hint.col, hint.col + 1, f"hint {hint.label.strip()}")


def of_inline_values(case: Case) -> Iterator[Shown]:
    stopped = next(n for n, row in enumerate(case.text.splitlines(), start=1) if STOPPED in row)
    for value in inline_values(case.target, case.trace, stopped):
        yield below(value.span, f"inline {value.expression}")


FEATURES: dict[str, Callable[[Case], Iterator[Shown]]] = {
    "lenses": of_lenses,
    "hovers": of_hovers,
    "costs": of_costs,
    "inline values": of_inline_values,
}


def below(span: Span, text: str) -> Shown:
    return Shown(span.line, span.col, span.end_col if span.end_line == span.line else span.col + 1, text)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_what_is_shown_of_a_file(path: Path, trace: TraceFixture, tmp_path: Path) -> None:
    golden = path.read_text()
    text = stripped(golden)
    target = discover(str(tmp_path / "user.py"), text).targets[-1]
    traced = trace(text, target.name)
    stages = {name: traced.stage(name) for name in ("forward", "inference", "backward") if name in traced.reply.stages}
    case = Case(golden, text, target, traced.trace, stages)
    features = text.partition("\n")[0].removeprefix("# shows: ").split(", ")
    again = annotated(text, (one for feature in features for one in FEATURES[feature](case)))
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(again)
    assert again == golden
