"""What becomes of small programs, in the programs themselves.

A file of `cases/` begins with lines that all its programs share. Each program follows a line with its title, and ends
with one line for each target that is traced, with the inputs that were found, grouped by their source, and the results:

    # === A call of the program says it
    def scaled(x, by):
        return x * by

    scaled(torch.randn(3, 5), 2)
    #: scaled(x=f32[3, 5], by=2 · call site) -> f32[3, 5]

Inputs of a comment are left out. Below stand notes, failures without a place, and the stages that are asked for
(`#: scaled [forward]`), or the names of operations (`#: scaled [ops]`); problems are comments with carets below their
expressions. A line `# --- other.py` begins another file of the program. A place in a file is shown by the code that
stands there.

To write a case, write the program and `#: NAME`. `UPDATE_GOLDEN=1 pytest tests/tracer/test_cases.py` writes the rest;
read what git says of it.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pytest
from carets import annotated, of_problem, stripped
from conftest import Traced, TraceFixture

from fx_lsp.features.source.findings import TOLD, told
from fx_lsp.features.wording.problems import problems
from fx_lsp.model import Failure, InputSpec, Outcome
from fx_lsp.tracing.analysis import analyse

FOLDER = Path(__file__).parent / "cases"
WIDTH = 120
TITLE, FILE, ANSWER = "# === ", "# --- ", "#:"
OPERATIONS = "ops"
_ASKED = re.compile(r"^#: ([\w.]+)(?: \[([\w, -]+)\])?", re.MULTILINE)


class Case(NamedTuple):
    """Hold one program: `prelude` is the text before it, `files` are others, `asked` are targets with their stages."""

    path: Path
    title: str
    prelude: str
    program: str
    files: dict[str, str]
    asked: dict[str, tuple[str, ...]]
    golden: str


def parsed(path: Path) -> list[Case]:
    """Return the programs of a file."""
    prelude, *parts = re.split(f"^{TITLE}", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [_case(path, prelude, *part.split("\n", 1)) for part in parts]


def _case(path: Path, prelude: str, title: str, golden: str) -> Case:
    asked = {name: tuple(filter(None, stages.split(", "))) for name, stages in _ASKED.findall(golden)}
    text = "".join(line for line in stripped(golden).splitlines(keepends=True) if not line.startswith(ANSWER))
    program, *others = re.split(f"^{FILE}", text.strip("\n") + "\n", flags=re.MULTILINE)
    files = {name: content for name, _, content in (other.partition("\n") for other in others)}
    return Case(path, title, prelude, program, files, asked, golden.strip("\n") + "\n")


def _identity(case: Case) -> str:
    return f"{case.path.relative_to(FOLDER).with_suffix('')}: {case.title}"


CASES = [case for path in sorted(FOLDER.rglob("*.py")) for case in parsed(path)]


@pytest.mark.parametrize("case", CASES, ids=_identity)
def test_a_program_and_what_becomes_of_it(case: Case, trace: TraceFixture, tmp_path: Path) -> None:
    text = case.prelude + case.program
    traced = {name: trace(text, name, files=case.files) for name in case.asked}
    lines = [with_problems(case, text, traced, tmp_path).rstrip("\n"), *answers(case, traced, tmp_path)]
    again = "\n".join(lines) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        content = case.path.read_text(encoding="utf-8")
        case.path.write_text(content.replace(case.golden, again, 1), encoding="utf-8")
    assert again == case.golden


def with_problems(case: Case, text: str, traced: dict[str, Traced], folder: Path) -> str:
    """Return the program and its other files with the problems of all targets below their expressions."""
    file = folder / "user.py"
    targets = analyse(str(file), text, ()).targets
    outcomes: list[tuple[object, Outcome]] = [(targets[name], one.reply.outcome) for name, one in traced.items()]
    found = [p for p in told(problems(str(file), outcomes, None), TOLD, text) if p.severity != "hint"]
    above = case.prelude.count("\n")
    shown = (of_problem(problem, text, f"{folder}{os.sep}") for problem in found)
    lines = annotated(case.program, (one._replace(line=one.line - above) for one in shown))
    return lines + "".join(f"{FILE}{name}\n{content}" for name, content in case.files.items())


def answers(case: Case, traced: dict[str, Traced], folder: Path) -> Iterator[str]:
    """Yield the lines that stand below the program."""
    for name, one in traced.items():
        stages = f" [{', '.join(case.asked[name])}]" if case.asked[name] else ""
        outcome = one.outcome
        inputs = _inputs(case, one)
        if isinstance(outcome, Failure):
            said = [] if outcome.span else [f"{outcome.severity}[{outcome.kind}]: {outcome.message}"]
            yield from _wrapped(f"#: {name}{stages}({inputs})", "  ")
        else:
            said = [f"note: {note}" for note in outcome.notes]
            yield from _wrapped(f"#: {name}{stages}({inputs}) -> {', '.join(outcome.outputs)}", "  ")
        for sentence in said:
            yield from _wrapped(f"#:   {_without(folder, sentence)}", "    ")
        for stage in case.asked[name]:
            if stage == OPERATIONS:
                yield from _wrapped(f"#:   {stage}: {', '.join(operations(one))}", "    ")
            else:
                yield f"#:   {stage}:"
                yield from (f"#:     {line}" for line in one.graph(stage).splitlines())


def operations(traced: Traced) -> list[str]:
    """Return the names of the operations that compute the results, without those that copy nothing."""
    nodes = traced.stage("forward" if "forward" in traced.reply.stages else "inference").nodes
    names = (node.target.split(".")[1] for node in nodes if node.op == "call_function")
    return [name for name in names if name not in ("detach", "alias")]


def _inputs(case: Case, traced: Traced) -> str:
    """Return the inputs that no comment states, grouped by their source: `x=f32[4], n=2 · call site: f(x)`."""
    found = (i for i in traced.outcome.inputs if i.source != "comment")
    groups = groupby(found, key=lambda i: _source(case, traced.source, i))
    return "; ".join(f"{', '.join(f'{i.name}={i.spec}' for i in inputs)} · {source}" for source, inputs in groups)


def _source(case: Case, text: str, found: InputSpec) -> str:
    """Return where an input comes from, with the code at the place in place of its line."""
    place = re.fullmatch(r"(?:([\w./-]+):|line )(\d+)", found.detail)
    if place is None:
        return f"{found.source}: {found.detail}" if found.detail else found.source
    lines = ({"user.py": text, **case.files}.get(place[1] or "user.py") or "").splitlines()
    number = int(place[2])
    at = f" `{lines[number - 1].strip()}`" if number <= len(lines) else f": {found.detail}"
    return f"{found.source}{at}"


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent=f"#: {indent}", break_long_words=False, break_on_hyphens=False)


def _without(folder: Path, text: str) -> str:
    return text.replace(f"{folder}{os.sep}", "")
