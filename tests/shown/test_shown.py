"""What an editor shows in whole files, in the files themselves: each text is a comment below its place.

A file of `cases/` begins with what is shown of it: `# shows: lenses, costs`. It may hold several programs, each below a
line `# === what it is about`; the lines before the first one belong to each of them. Of a program, the last target is
traced. A hover is shown where a comment has its caret, the others everywhere:

    y = x @ w
    #   ^^^^^ hover f32[4, 16]

`UPDATE_GOLDEN=1 pytest tests/shown` writes the comments anew; read what git says of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from pathlib import Path

import pytest
from carets import Shown, annotated, places, stripped
from conftest import TraceFixture

from fx_lsp.features.documents.document import render_stage
from fx_lsp.features.hints import SHOWN_KINDS, HintKind, HintStyle, TracedTarget, hints
from fx_lsp.features.hover import HoverStyle, HoverSubject, hover_expression
from fx_lsp.features.inline_values import inline_values
from fx_lsp.features.lenses import lenses
from fx_lsp.features.source.comments import comment_problems
from fx_lsp.features.wording.traces import shown_trace
from fx_lsp.features.wording.unreached import faded
from fx_lsp.model import Outcome, Span, Stage, Trace
from fx_lsp.tracing.source.targets import discover

pytestmark = pytest.mark.torch

CASES = sorted((Path(__file__).parent / "cases").glob("*.py"))
SEPARATOR = re.compile(r"^(# === .*\n)", re.MULTILINE)
STOPPED = "the debugger has stopped here"


class Case:
    """A program: `golden` is its text with comments; its last target is traced when something asks for it."""

    def __init__(self, golden: str, trace: TraceFixture, file: str) -> None:
        self.golden, self.text, self.file = golden, stripped(golden), file
        self.targets = discover(file, self.text).targets
        self._trace = trace

    @cached_property
    def _traced(self):
        return self._trace(self.text, self.targets[-1].name)

    @property
    def outcome(self) -> Outcome:
        return self._traced.outcome

    @property
    def shown(self) -> Trace:
        """The trace, of a target that fails that of what ran before."""
        found = shown_trace(self.outcome, self.file)
        assert found is not None, self.outcome
        return found

    def stage(self, *names: str) -> Stage | None:
        """Return the first of these stages that there is."""
        return next((self._traced.stage(name) for name in names if name in self._traced.reply.stages), None)


def of_lenses(case: Case) -> Iterator[Shown]:
    for lens in lenses(case.targets[-1], case.outcome, stale=False):
        yield below(lens.span, f"lens {lens.title}")


def of_hovers(case: Case) -> Iterator[Shown]:
    stages = [stage for name in ("forward", "inference", "backward", "torch") if (stage := case.stage(name))]
    subject = HoverSubject(case.text, case.targets[-1], case.outcome, stages[:2])
    for line, start, end in places(case.golden, "hover"):
        hover = hover_expression(subject, line, start, HoverStyle(chip="cuda:90"))
        text = "" if hover is None else hover.markdown.replace("```python", "").replace("```", "")
        yield Shown(line, start, end, f"hover\n{text}")


def of_hints(case: Case, kinds: frozenset[HintKind]) -> Iterator[Shown]:
    stage = case.stage("forward", "inference", "torch")
    traced = TracedTarget(case.targets[-1], case.outcome, stage, case.stage("backward"))
    for hint in hints(case.text, [traced], 1, len(case.text.splitlines()), HintStyle(kinds=kinds)):
        yield Shown(hint.line, hint.col, hint.col + 1, f"hint {hint.label.strip()}")


def of_inline_values(case: Case) -> Iterator[Shown]:
    stopped = next(n for n, row in enumerate(case.text.splitlines(), start=1) if STOPPED in row)
    for value in inline_values(case.targets[-1], case.outcome, stopped):
        yield below(value.span, f"inline {value.expression}")


def of_documents(case: Case) -> Iterator[Shown]:
    lines = case.text.splitlines()
    for name in ("inference", "forward", "backward", "torch"):
        stage = case.stage(name)
        if stage is not None and (name != "torch" or not isinstance(case.outcome, Trace)):
            text = render_stage(case.shown, stage, lambda span: lines[span.line - 1]).text
            yield below(case.targets[-1].name_span, f"document\n{text[text.index('def ') :]}")


def of_branches(case: Case) -> Iterator[Shown]:
    for problem in faded(case.text, [(case.targets[-1], case.outcome)]):
        yield below(problem.span, f"faded {problem.message}")


def of_comments(case: Case) -> Iterator[Shown]:
    for problem in comment_problems(case.file, case.text, case.targets):
        yield below(problem.span, f"{problem.severity} {problem.message}")


FEATURES: dict[str, Callable[[Case], Iterator[Shown]]] = {
    "lenses": of_lenses,
    "hovers": of_hovers,
    "hints": partial(of_hints, kinds=SHOWN_KINDS),
    "costs": partial(of_hints, kinds=frozenset({"costs", "savedForBackward"})),
    "inline values": of_inline_values,
    "documents": of_documents,
    "branches": of_branches,
    "comments": of_comments,
}


def below(span: Span, text: str) -> Shown:
    return Shown(span.line, span.col, span.end_col if span.end_line == span.line else span.col + 1, text)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_what_is_shown_of_a_file(path: Path, trace: TraceFixture, tmp_path: Path) -> None:
    golden = path.read_text()
    features = golden.partition("\n")[0].removeprefix("# shows: ").split(", ")
    head, *rest = SEPARATOR.split(golden)
    parts = [*zip(rest[::2], rest[1::2], strict=True)]
    again = "" if not parts else head
    for title, part in parts or [("", "")]:
        case = Case(head + part, trace, str(tmp_path / "user.py"))
        shown = annotated(case.text, (one for feature in features for one in FEATURES[feature](case)))
        again += title + (shown.removeprefix(head) if parts else shown)
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(again)
    assert again == golden
