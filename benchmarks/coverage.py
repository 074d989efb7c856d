"""How much of code that nobody tuned for is traced without configuration: `fx-lsp check` over installed packages.

    python benchmarks/coverage.py [PATH…] [--package NAME]… [--convention DIR]… [--only KIND] [--failures FILE]

A package is named as it is imported (`torchvision.ops`, `transformers.models.llama.modeling_llama`). Without any name,
a list of packages is tried, those that are installed. Nothing is taken from the cache. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limits import output_of

CHECK_SECONDS = 7200.0
"""The longest that the check of a whole package may take."""

MODELS = ("llama", "gpt2", "bert", "t5", "vit", "whisper", "mixtral", "mamba", "clip")
LIBRARIES = ("torchvision", "timm", "einops", "diffusers", "torch_geometric", "kornia", "torchaudio")
KINDS = ("function", "module", "method", "step")
SEVERITIES = ("error", "warning")
HEADINGS = (
    *("package", "found", "traced", "%"),
    *(f"{kind}s" for kind in KINDS),
    *("inputs from", "why not"),
    *(f"{severity}s" for severity in SEVERITIES),
    "internal errors",
    *("median", "p95", "total"),
)

Report = dict[str, Any]
"""One target of `fx-lsp check --format json`."""


@dataclass(frozen=True)
class Suite:
    """What one row of the table is about.

    With `convention`, each file counts once: its module that `get_inputs()` is for.
    """

    title: str
    paths: tuple[str, ...]
    only: str | None = None
    convention: bool = False


@dataclass(frozen=True)
class Result:
    """What came of a suite; `seconds` is the whole run, with the start of torch."""

    title: str
    targets: list[Report]
    failed_files: list[Report]
    seconds: float

    @property
    def traced(self) -> list[Report]:
        return [target for target in self.targets if target["traced"]]


def locate(name: str, python: str) -> str | None:
    """The directory or file of a package or module, found without importing it; None where it is not installed."""
    top, *rest = name.split(".")
    code = "import importlib.util as u, sys; s = u.find_spec(sys.argv[1]); print(s.origin if s and s.origin else '')"
    origin = output_of([python, "-c", code, top], 60)[0].strip()
    if not origin:
        return None
    path = Path(origin).parent.joinpath(*rest) if Path(origin).name == "__init__.py" else Path(origin)
    found = path if path.exists() else path.with_suffix(".py")
    return str(found) if found.exists() else None


def default_suites(python: str) -> Iterator[Suite]:
    """The modeling files of well-known models, and the free functions of libraries: those that are installed."""
    for model in MODELS:
        title = f"transformers.models.{model}.modeling_{model}"
        if path := locate(title, python):
            yield Suite(title, (path,))
    for library in LIBRARIES:
        if path := locate(library, python):
            yield Suite(library, (path,), only="functions")


def convention_suite(directory: str) -> Suite:
    """The files below a directory that define `get_inputs()`."""
    files = sorted(str(f) for f in Path(directory).rglob("*.py") if "def get_inputs" in f.read_text(errors="replace"))
    if not files:
        raise SystemExit(f"{directory} has no file that defines get_inputs()")
    return Suite(f"{Path(directory).name} (get_inputs)", tuple(files), only="modules", convention=True)


def measure(suite: Suite, python: str, jobs: int | None) -> Result:
    """Run `fx-lsp check` over a suite."""
    command = [sys.executable, "-m", "fx_lsp", "check", *suite.paths]
    command += ["--format", "json", "--no-cache", "--python", python]
    command += ["--only", suite.only] if suite.only else []
    command += ["--jobs", str(jobs)] if jobs else []
    printed, code = output_of(command, CHECK_SECONDS)
    if code not in (0, 1):
        raise SystemExit(f"fx-lsp check ended with code {code}")
    answer: dict[str, Any] = json.loads(printed)
    files: list[dict[str, Any]] = answer["files"]
    if suite.convention:
        return Result(suite.title, [counted(file) for file in files], [], answer["seconds"])
    targets = [target for file in files for target in file["targets"]]
    return Result(suite.title, targets, [file for file in files if file["failure"]], answer["seconds"])


def counted(file: Report) -> Report:
    """Of the modules of a file, the one that `get_inputs()` was for; else the last, not traced."""
    modules: list[Report] = file["targets"]
    for module in modules:
        if any(given["source"] == "convention" for given in module["inputs"]):
            return module
    nothing = {"target": file["file"], "kind": "module", "inputs": [], "source": None, "seconds": 0.0, "failure": None}
    last = modules[-1] if modules else nothing
    missed = {"kind": "inputs", "message": "get_inputs() was not what a module was traced with"}
    return {**last, "traced": False, "failure": last["failure"] or file["failure"] or missed}


def row(result: Result) -> tuple[str, ...]:
    """Return the cells of a result."""
    targets, traced = result.targets, result.traced
    seconds = sorted(target["seconds"] for target in targets)
    failures = Counter(target["failure"]["kind"] for target in targets if target["failure"])
    failures.update(f"{file['failure']['kind']} (whole file)" for file in result.failed_files)
    return (
        result.title,
        f"{len(targets):,}",
        f"{len(traced):,}",
        f"{100 * len(traced) / len(targets):.1f}" if targets else "–",
        *(_share(target for target in targets if target["kind"] == kind) for kind in KINDS),
        _counts(Counter(target["source"] for target in traced)),
        _counts(failures),
        *(str(sum(severity in severities_of(target) for target in targets)) for severity in SEVERITIES),
        str(failures["internal"] + failures["crash"]),
        f"{statistics.median(seconds):.2f} s" if seconds else "–",
        f"{seconds[min(len(seconds) * 95 // 100, len(seconds) - 1)]:.2f} s" if seconds else "–",
        f"{result.seconds:.0f} s",
    )


def severities_of(target: Report) -> set[str]:
    """Return how bad what is said of a target is: of its failure, or of expressions of what runs."""
    return {said["severity"] for said in (target["failure"], *target["remarks"]) if said}


def _share(targets: Iterable[Report]) -> str:
    known = [target["traced"] for target in targets]
    return f"{sum(known)}/{len(known)}" if known else "–"


def _counts(numbers: Counter[str]) -> str:
    return " · ".join(f"{name} {number:,}" for name, number in numbers.most_common()) or "–"


def failures_of(result: Result) -> Iterator[dict[str, Any]]:
    """Everything that was not traced, with what it was tried with."""
    for file in result.failed_files:
        yield {"package": result.title, "target": file["file"], "failure": file["failure"]}
    for target in result.targets:
        if not target["traced"]:
            yield {"package": result.title, **target}


def total(results: list[Result]) -> Result:
    """All results as one."""
    targets = [target for result in results for target in result.targets]
    files = [file for result in results for file in result.failed_files]
    return Result("all", targets, files, sum(result.seconds for result in results))


def suites(arguments: argparse.Namespace) -> Iterator[Suite]:
    """What the command line asks for."""
    for name in arguments.package:
        path = locate(name, arguments.python)
        if path is None:
            raise SystemExit(f"{name} is not installed in {arguments.python}")
        yield Suite(name, (path,), arguments.only)
    for path in arguments.paths:
        yield Suite(path, (path,), arguments.only)
    for directory in arguments.convention:
        yield convention_suite(directory)
    if not (arguments.package or arguments.paths or arguments.convention):
        for suite in default_suites(arguments.python):
            yield Suite(suite.title, suite.paths, arguments.only or suite.only)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("paths", nargs="*", metavar="PATH", help="a file or directory")
    parser.add_argument("--package", action="append", default=[], metavar="NAME", help="an installed package or module")
    parser.add_argument("--convention", action="append", default=[], metavar="DIR", help="files with get_inputs()")
    parser.add_argument("--only", choices=[f"{kind}s" for kind in KINDS], help="leave out what is of another kind")
    parser.add_argument("--python", default=sys.executable, metavar="PATH", help="the interpreter with the packages")
    parser.add_argument("--jobs", type=int, metavar="N", help="traces at once")
    parser.add_argument("--failures", type=Path, metavar="FILE", help="write each failure as a line of JSON")
    arguments = parser.parse_args()
    if arguments.failures:
        arguments.failures.write_text("")
    print(f"| {' | '.join(HEADINGS)} |\n|{' --- |' * len(HEADINGS)}", flush=True)
    results: list[Result] = []
    for suite in suites(arguments):
        result = measure(suite, arguments.python, arguments.jobs)
        results.append(result)
        print(f"| {' | '.join(row(result))} |", flush=True)
        if arguments.failures:
            with arguments.failures.open("a") as out:
                out.writelines(f"{json.dumps(failure)}\n" for failure in failures_of(result))
    if len(results) > 1:
        print(f"| {' | '.join(row(total(results)))} |")


if __name__ == "__main__":
    main()
