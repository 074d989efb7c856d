"""The graphs of fx-lsp are those that a program really runs.

A file of `cases/` begins with lines that all its programs share. Each program follows a line with its title. It is the
file `user.py`, which has the target, and other files, each below a line with its name. The last file is the one that
runs. The end of a program names the target, with what `torch.compile` makes of it when the program runs for real: the
operations, and the tensors saved for backward. They are those of the first call that is differentiated, or else of the
first call:

    # === A frozen backbone
    class Net(nn.Module):
        ...
    # --- train.py
    from user import Net
    ...
    #: Net
    #:   forward: 2 aten.addmm.default, 1 aten.tanh.default
    #:   backward: 1 aten.mm.default
    #:   saved: 1 f32[6, 40] 960 bytes

To write a case, write the program and `#: NAME`. `UPDATE_GOLDEN=1 pytest tests/truth` runs all programs for real and
writes the rest; read what git says of it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import Traced

from fx_lsp.model import Trace, TraceReply, TraceRequest
from fx_lsp.tracing.analysis import Texts, analyse
from fx_lsp.tracing.trace_request import wants_world, world_of

FOLDER = Path(__file__).parent / "cases"
REAL = Path(__file__).with_name("real_graphs.py")
WIDTH = 120
TITLE, FILE, ANSWER = "# === ", "# --- ", "#:"
USER = "user.py"
TOGETHER = "\0"
"""A space where a line does not end."""

LEFT_OUT = {"operator.getitem": "it picks a result of an operation that has several, and computes nothing"}
"""Nodes that are not compared, with the reasons."""

NOT_YET = {
    "gradients: A function that switches gradients by a flag": "the first call is shown, not the differentiated one",
}
"""Programs whose graphs differ from those of the real run, with what differs."""


class Graphs(NamedTuple):
    """Hold the numbers of operations in the graphs of a call, and of tensors saved for backward.

    `backward` is None for a call with an inference graph alone.
    """

    forward: Counter[str]
    backward: Counter[str] | None
    saved: Counter[str]

    def lines(self) -> Iterator[str]:
        """Yield the lines that stand below a program."""
        if self.backward is None:
            yield from _wrapped("inference", self.forward)
        else:
            yield from _wrapped("forward", self.forward)
            yield from _wrapped("backward", self.backward)
            yield from _wrapped("saved", self.saved)


class Case(NamedTuple):
    """Hold one program. `files` are its files by name, and the last one runs; `answer` is what stands below it."""

    path: Path
    title: str
    files: dict[str, str]
    target: str
    text: str
    answer: str

    @property
    def name(self) -> str:
        return f"{self.path.stem}: {self.title}"

    @property
    def graphs(self) -> Graphs:
        """Return the graphs of the real run."""
        rows = re.sub(r"\n#: {5,}", " ", self.answer).splitlines()[1:]
        parts = (row.removeprefix(ANSWER).strip().partition(": ") for row in rows)
        read = {name: _counted(items) for name, _, items in parts}
        if "inference" in read:
            return Graphs(read["inference"], None, Counter())
        return Graphs(read["forward"], read["backward"], read["saved"])

    @property
    def program(self) -> dict[str, Any]:
        """Return what `real_graphs.py` reads."""
        return {"target": self.target, "program": [*self.files][-1], "files": self.files}


def _counted(items: str) -> Counter[str]:
    pairs = (item.split(" ", 1) for item in re.split(r", (?=\d+ \w)", items) if item != "nothing")
    return Counter({name: int(number) for number, name in pairs})


def _wrapped(name: str, counts: Mapping[str, int]) -> list[str]:
    items = [f"{number} {item}".replace(" ", TOGETHER) for item, number in sorted(counts.items())] or ["nothing"]
    text, indent = f"{ANSWER}   {name}: {', '.join(items)}", f"{ANSWER}     "
    rows = textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return [row.replace(TOGETHER, " ") for row in rows]


def parsed(path: Path) -> list[Case]:
    """Return the programs of a file."""
    prelude, *parts = re.split(f"^{TITLE}", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [_case(path, prelude, *part.split("\n", 1)) for part in parts]


def _case(path: Path, prelude: str, title: str, text: str) -> Case:
    code, _, answer = text.partition(f"{ANSWER} ")
    program, *others = re.split(f"^{FILE}", code, flags=re.MULTILINE)
    files = {name: content for name, _, content in (other.partition("\n") for other in others)}
    answer = f"{ANSWER} {answer}".strip("\n")
    target = answer.splitlines()[0].removeprefix(f"{ANSWER} ")
    return Case(path, title, {USER: prelude + program, **files}, target, text, answer)


CASES = [case for path in sorted(FOLDER.glob("*.py")) for case in parsed(path)]


def _parameter(case: Case) -> Any:
    reason = NOT_YET.get(case.name)
    marks = () if reason is None else pytest.mark.xfail(strict=True, reason=reason)
    return pytest.param(case, id=case.name, marks=marks)


@pytest.mark.parametrize("case", [*map(_parameter, CASES)])
def test_graphs_are_those_of_the_real_run(
    case: Case, reply: Callable[[TraceRequest], TraceReply], tmp_path: Path
) -> None:
    assert [*traced(case, reply, tmp_path).lines()] == [*case.graphs.lines()]


def test_the_table_names_programs() -> None:
    assert {*NOT_YET} <= {case.name for case in CASES}


def traced(case: Case, reply: Callable[[TraceRequest], TraceReply], folder: Path) -> Graphs:
    """Return the graphs that fx-lsp shows of the target, in a world that runs the program."""
    for name, text in case.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "pyproject.toml").touch()
    file, text = str(folder / USER), case.files[USER]
    analysis = analyse(file, text, (str(folder),))
    request = analysis.request(case.target, {}, 5.0)
    assert wants_world(request, analysis)
    request = replace(request, world=world_of(analysis, Texts({file: text}, {file: analysis})))
    answer = Traced(reply(request), text)
    trace = answer.trace
    assert isinstance(trace, Trace)
    stages = {stage.name for stage in trace.stages}
    saved = Counter(f"{saved.spec} {saved.bytes} bytes" for saved in trace.saved)
    if "inference" in stages:
        return Graphs(_operations(answer, "inference"), None, Counter())
    return Graphs(_operations(answer, "forward"), _operations(answer, "backward"), saved)


def _operations(answer: Traced, stage: str) -> Counter[str]:
    nodes = answer.stage(stage).nodes
    return Counter(n.target for n in nodes if n.op == "call_function" and n.target not in LEFT_OUT)


@pytest.fixture(scope="module")
def real_runs() -> dict[str, Any]:
    """The answers of all programs that run for real."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(REAL)],
        input=json.dumps([case.program for case in CASES]),
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTORCH_JIT": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return {case.name: answer for case, answer in zip(CASES, json.loads(done.stdout), strict=True)}


@pytest.mark.release
@pytest.mark.torch
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_real_run_has_these_graphs(case: Case, real_runs: dict[str, Any]) -> None:
    real = real_runs[case.name]
    assert "error" not in real, real["error"]
    graphs = Graphs(
        Counter(real["forward"]),
        None if real["backward"] is None else Counter(real["backward"]),
        Counter(real["saved"]),
    )
    again = "\n".join([f"{ANSWER} {case.target}", *graphs.lines()])
    if os.environ.get("UPDATE_GOLDEN"):
        content = case.path.read_text(encoding="utf-8")
        case.path.write_text(content.replace(case.text, case.text.replace(case.answer, again), 1), encoding="utf-8")
    assert again == case.answer
