"""How many of the mistakes that people make are found, and how much correct code is called wrong: `fx-lsp check` over
the files of `mistakes/` as they should be, and as they were before someone found the mistake.

    python benchmarks/mistakes.py [--python PATH] [--jobs N] [--only NAME…] [--list]
    python benchmarks/mistakes.py --verify [--only NAME…]

A file of `mistakes/` is correct as it stands. Where a line ends with `# mistake: …`, that text is what people write
there instead; where it takes effect without a word elsewhere, that line ends with `# effect`. The first two lines say
what goes wrong (`crash` or `silent`) and how much the file says of its inputs (`evidence`); what stands behind a line
`# run:` runs the code with real tensors, and fx-lsp does not see it. Prints a
Markdown table. `--verify` only runs the files: the correct ones have to end well, the mistakes have to be mistakes.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from limits import output_of

CHECK_SECONDS = 7200.0
"""The longest that the check of all mistakes may take."""

CASES = Path(__file__).with_suffix("")
KINDS = ("crash", "silent")
EVIDENCE = ("none", "call", "config")
OUTCOMES = ("found", "elsewhere", "clean", "not traced")
HEADINGS = ("kind", "evidence", "mistakes", "found", "%", *OUTCOMES[1:], "twins", "errors", "warnings")
RUN = "# run:"
EFFECT = "  # effect"
TIMEOUT = 900
LENGTHS = range(20, 91)

_HEADER = re.compile(rf"# ({'|'.join(KINDS)}): (.+)")
_EVIDENCE = re.compile(rf"# evidence: ({'|'.join(EVIDENCE)})")
_MARKED = re.compile(r"(?P<indent>\s*)(?P<code>.*?)\s*# mistake: (?P<mistake>.+)")

# Run in a process of its own: for each file of stdin, a line of JSON that says how it ended.
_RUNNER = """
import contextlib, io, json, runpy, sys, traceback, warnings
import torch

warnings.simplefilter("ignore")
torch.set_num_threads(1)
for path in sys.stdin.read().splitlines():
    torch.manual_seed(0)
    sys.argv = [path]
    out, error, lines = io.StringIO(), None, set()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            runpy.run_path(path, run_name="__main__")
    except (Exception, SystemExit) as raised:
        error = f"{type(raised).__name__}: {raised}"
        for frame in traceback.extract_tb(raised.__traceback__):
            if frame.filename == path:
                lines.update(range(frame.lineno, (getattr(frame, "end_lineno", None) or frame.lineno) + 1))
    print(json.dumps({"path": path, "error": error, "lines": sorted(lines), "out": out.getvalue()}), flush=True)
"""

Outcome = Literal["found", "elsewhere", "clean", "not traced"]
Report = dict[str, Any]
"""What `fx-lsp check --format json` says of one file."""


@dataclass(frozen=True)
class Case:
    """One file of `mistakes/`: `lines` are all of it."""

    name: str
    kind: str
    evidence: str
    lines: tuple[str, ...]

    @cached_property
    def end(self) -> int:
        """How many lines there are before the driver."""
        return self.lines.index(RUN) if RUN in self.lines else len(self.lines)

    @cached_property
    def marked(self) -> frozenset[int]:
        """The lines that differ, counted from 1."""
        return frozenset(number for number, line in enumerate(self.lines, 1) if "# mistake:" in line)

    @cached_property
    def effects(self) -> frozenset[int]:
        """The lines where it takes effect that nobody hears of."""
        return frozenset(number for number, line in enumerate(self.lines, 1) if line.endswith(EFFECT))

    def text(self, mistaken: bool, driver: bool) -> str:
        """The file as it should be or with the mistake, line by line as it is, without what tells of the mistake."""
        lines = ["", "", *self.lines[2 : None if driver else self.end]]
        return "\n".join(_without_marker(line, mistaken) for line in lines).rstrip("\n") + "\n"


@dataclass(frozen=True)
class Ran:
    """How a file ended: `error` is what it raised, `lines` are those of the file in the traceback."""

    error: str | None
    lines: frozenset[int]
    out: str


@dataclass(frozen=True)
class Problem:
    """One line of what fx-lsp has to say; the lines of the file that it says it of, none where that is not known."""

    severity: str
    message: str
    lines: range

    def __str__(self) -> str:
        where = f"line {self.lines.start}: " if self.lines else ""
        return f"{where}{self.severity}: {self.message}"


@dataclass(frozen=True)
class Result:
    """What was said of both twins; `why` are the lines to print for the mistake, `wrong` those for what is correct."""

    case: Case
    outcome: Outcome
    why: tuple[Problem, ...]
    wrong: tuple[Problem, ...]

    @property
    def severities(self) -> frozenset[str]:
        """What the correct file was called."""
        return frozenset(problem.severity for problem in self.wrong)


def read_case(path: Path) -> Case:
    """Read a file of `mistakes/`. Raises SystemExit where it is not one."""
    lines = tuple(path.read_text().splitlines())
    header = _HEADER.fullmatch(lines[0]) if lines else None
    evidence = _EVIDENCE.fullmatch(lines[1]) if len(lines) > 1 else None
    if header is None or evidence is None:
        raise SystemExit(f"{path}: the first two lines are not `# kind: …` and `# evidence: …`")
    return Case(path.stem, header[1], evidence[1], lines)


def read_cases(names: Iterable[str]) -> list[Case]:
    """Read the cases of these names; all of them where none is named."""
    wanted = set(names)
    paths = sorted(path for path in CASES.glob("*.py") if not wanted or path.stem in wanted)
    if missing := wanted - {path.stem for path in paths}:
        raise SystemExit(f"there is no mistake called {', '.join(sorted(missing))}")
    return [read_case(path) for path in paths]


def _without_marker(line: str, mistaken: bool) -> str:
    found = _MARKED.fullmatch(line)
    return line.removesuffix(EFFECT) if found is None else found["indent"] + found["mistake" if mistaken else "code"]


def write(cases: Iterable[Case], folder: Path, mistaken: bool, driver: bool) -> dict[str, Path]:
    """Write each case to a folder of its own below `folder`, and say where, by their names."""
    paths = {case.name: folder / case.name / f"{case.name}.py" for case in cases}
    for case in cases:
        paths[case.name].parent.mkdir(parents=True)
        paths[case.name].write_text(case.text(mistaken, driver))
    return paths


def run_all(cases: list[Case], mistaken: bool, python: str) -> dict[str, Ran]:
    """Run the cases one after the other, with their drivers. Those are missing that were not reached."""
    with tempfile.TemporaryDirectory() as folder:
        paths = write(cases, Path(folder), mistaken, driver=True)
        text = "\n".join(map(str, paths.values()))
        command, printed = [python, "-c", _RUNNER], Path(folder, "answers")
        with printed.open("w") as out, contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, input=text, stdout=out, text=True, timeout=TIMEOUT)
        lines = [line for line in printed.read_text().splitlines(keepends=True) if line.endswith("\n")]
    ended = {answer["path"]: answer for answer in map(json.loads, lines)}
    answers = {name: ended[str(path)] for name, path in paths.items() if str(path) in ended}
    return {name: Ran(a["error"], frozenset(a["lines"]), a["out"]) for name, a in answers.items()}


def verify(cases: list[Case], python: str) -> bool:
    """Print what does not hold of the cases, and say whether there was nothing."""
    twins, mistakes = (run_all(cases, mistaken, python) for mistaken in (False, True))
    wrong = 0
    for case in cases:
        for complaint in complaints(case, twins.get(case.name), mistakes.get(case.name)):
            print(f"{case.name}: {complaint}", flush=True)
            wrong += 1
    counted = Counter((case.kind, case.evidence) for case in cases)
    numbers = ", ".join(f"{counted[key]} {key[0]} with evidence {key[1]}" for key in sorted(counted))
    print(f"{len(cases)} cases ({numbers}): {f'{wrong} do not hold' if wrong else 'all hold'}")
    return not wrong


def complaints(case: Case, twin: Ran | None, mistake: Ran | None) -> Iterator[str]:
    """Say what does not hold of a case."""
    if not case.marked or max(case.marked) > case.end:
        yield "no line before the driver is marked"
    if len(case.lines) not in LENGTHS:
        yield f"{len(case.lines)} lines"
    if twin is None or mistake is None:
        yield "did not end"
        return
    if twin.error is not None:
        yield f"the correct code raises {twin.error}"
    if case.kind == "crash":
        if mistake.error is None:
            yield "the mistake does not raise"
        elif not any(line <= case.end for line in mistake.lines):
            yield f"the mistake raises outside of the code: {mistake.error}"
        elif mistake.error.startswith(("SyntaxError", "IndentationError", "SystemExit")):
            yield f"the mistake raises {mistake.error}"
    elif mistake.error is not None:
        yield f"the mistake raises {mistake.error}"
    elif mistake.out == twin.out:
        yield "the mistake prints what the correct code prints"


def check(folder: Path, python: str, jobs: int | None) -> dict[str, Report]:
    """Run `fx-lsp check` over a folder: its reports, by the names of the files."""
    command = [sys.executable, "-m", "fx_lsp", "check", str(folder)]
    command += ["--format", "json", "--no-cache", "--python", python]
    command += ["--jobs", str(jobs)] if jobs else []
    printed, code = output_of(command, CHECK_SECONDS)
    if code not in (0, 1):
        raise SystemExit(f"fx-lsp check ended with code {code}")
    files: list[Report] = json.loads(printed)["files"]
    return {Path(file["file"]).stem: file for file in files}


def problems(report: Any, file: str) -> Iterator[Problem]:
    """Everything in a report that has a severity, wherever it stands; `lines` are empty where it is about no line."""
    if isinstance(report, list):
        for part in report:
            yield from problems(part, file)
    elif isinstance(report, dict):
        if "severity" in report:
            span = report.get("span")
            here = span is not None and Path(span.get("file", file)).name == Path(file).name
            lines = range(span["line"], span["end_line"] + 1) if here else range(0)
            yield Problem(report["severity"], " ".join(str(report.get("message", "")).split()), lines)
        for part in report.values():
            yield from problems(part, file)


def said(report: Report) -> tuple[list[Problem], list[Problem]]:
    """What a report calls wrong, and what it says besides, each once."""
    everything = list(dict.fromkeys(problems(report, report["file"])))
    wrong = [problem for problem in everything if problem.severity in ("error", "warning")]
    return wrong, [problem for problem in everything if problem not in wrong]


def judge(case: Case, ran: Ran | None, mistaken: Report, correct: Report) -> Result:
    """Judge what was said of a case, whose mistake ended as in `ran`."""
    wrong, other = said(mistaken)
    lines = case.marked | case.effects | (ran.lines if ran is not None and case.kind == "crash" else frozenset[int]())
    hits = [problem for problem in wrong if any(line in lines for line in problem.lines)]
    outcome: Outcome = "clean"
    if wrong:
        outcome = "found" if hits else "elsewhere"
    elif mistaken["failure"] or not mistaken["targets"] or _untraced(case, lines, mistaken):
        outcome = "not traced"
    return Result(case, outcome, tuple(hits or wrong or other), tuple(said(correct)[0]))


def _untraced(case: Case, lines: frozenset[int], report: Report) -> bool:
    """Whether a target was not traced that has the mistake in it, or because of one of these `lines`."""
    names = {
        node.name
        for node in ast.parse(case.text(mistaken=True, driver=False)).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
        if any(node.lineno <= line <= (node.end_lineno or node.lineno) for line in case.marked)
    }
    return any(
        target["target"].rpartition("::")[2].split(".")[0] in names
        or any(line in lines for problem in problems(target["failure"], report["file"]) for line in problem.lines)
        for target in report["targets"]
        if target["failure"]
    )


def measure(cases: list[Case], python: str, jobs: int | None) -> list[Result]:
    """Run the mistakes, let fx-lsp check all files, and judge what it said."""
    ran = run_all([case for case in cases if case.kind == "crash"], True, python)
    with tempfile.TemporaryDirectory() as folder:
        twins, mistakes = (Path(folder, name) for name in ("twins", "mistakes"))
        write(cases, twins, mistaken=False, driver=False)
        write(cases, mistakes, mistaken=True, driver=False)
        of_mistakes, of_twins = check(mistakes, python, jobs), check(twins, python, jobs)
    return [judge(case, ran.get(case.name), of_mistakes[case.name], of_twins[case.name]) for case in cases]


def row(title: str, evidence: str, results: list[Result]) -> tuple[str, ...]:
    """The cells of one row of the table."""
    outcomes = Counter(result.outcome for result in results)
    return (
        title,
        evidence,
        str(len(results)),
        str(outcomes["found"]),
        f"{100 * outcomes['found'] / len(results):.0f}",
        *(str(outcomes[outcome]) for outcome in OUTCOMES[1:]),
        str(len(results)),
        str(sum("error" in result.severities for result in results)),
        str(sum("warning" in result.severities for result in results)),
    )


def table(results: list[Result]) -> Iterator[str]:
    """The lines of the table."""
    yield f"| {' | '.join(HEADINGS)} |"
    yield f"|{' --- |' * len(HEADINGS)}"
    for kind in KINDS:
        for evidence in EVIDENCE:
            if some := [r for r in results if (r.case.kind, r.case.evidence) == (kind, evidence)]:
                yield f"| {' | '.join(row(kind, evidence, some))} |"
    if results:
        yield f"| {' | '.join(row('all', '', results))} |"


def details(result: Result) -> Iterator[str]:
    """One line for the mistake, and one for each thing that the correct file was called."""
    case = result.case
    yield " · ".join((case.name, f"{case.kind}, {case.evidence}", result.outcome, *map(str, result.why[:1])))
    for problem in result.wrong:
        yield f"{case.name} · correct · {problem}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--python", default=sys.executable, metavar="PATH", help="the interpreter with torch")
    parser.add_argument("--jobs", type=int, metavar="N", help="traces at once")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="some of the files, without .py")
    parser.add_argument("--list", action="store_true", help="print a line for each mistake too")
    parser.add_argument("--verify", action="store_true", help="run the files and check that the mistakes are mistakes")
    arguments = parser.parse_args()
    cases = read_cases(arguments.only)
    if arguments.verify:
        sys.exit(0 if verify(cases, arguments.python) else 1)
    results = measure(cases, arguments.python, arguments.jobs)
    if arguments.list:
        for result in results:
            print("\n".join(details(result)))
        print()
    print("\n".join(table(results)))


if __name__ == "__main__":
    main()
