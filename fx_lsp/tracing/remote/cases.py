"""Generate the files of a benchmark: one, or one for each size of a sweep."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fx_lsp import files
from fx_lsp.choices import TRITON, Choices
from fx_lsp.comments import fx_comment
from fx_lsp.errors import TargetError
from fx_lsp.measured import INDUCTOR_KERNELS, BenchmarkCase, BenchmarkJob, LineTime, Module, Report
from fx_lsp.model import Failure, Target, Work, write_work
from fx_lsp.specs import CommentError, parse_comment
from fx_lsp.tracing.analysis import Analysis, analyse
from fx_lsp.tracing.answers.disk import Dependency
from fx_lsp.tracing.engine import Engine
from fx_lsp.tracing.remote.history import source_hash
from fx_lsp.tracing.source.copies import own_line
from fx_lsp.tracing.source.parsing import module_name

MAX_CASES = 24
MAX_TEXT = 8 << 20
"""The most text of a project that is sent with a job, in characters."""
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_LINE_ENDS = re.compile(r"(?<=\n)|(?<=\r)(?!\n)")


@dataclass(frozen=True)
class Sweep:
    """Hold a named size, and its values."""

    name: str
    values: tuple[int, ...]


def read_sweep(text: str) -> Sweep:
    """Return the sweep for `N=1024..65536` (the powers of two between) or `N=1000,2000`. Raises TargetError."""
    match = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*=\s*(?:(\d+)\s*\.\.\s*(\d+)|(\d+(?:\s*,\s*\d+)*))\s*", text)
    if match is None:
        raise TargetError(f"`{text}` is not a sweep: write it as N=1024..65536 or N=1000,2000,4000")
    name, first, last, several = match.groups()
    if several is not None:
        values = dict.fromkeys(int(value) for value in several.split(","))
    else:
        values = dict.fromkeys(1 << power for power in range(63) if int(first) <= 1 << power <= int(last))
    if not values or min(values) < 1:
        raise TargetError(f"`{text}` has no sizes: there is no power of two from {first} to {last}")
    if len(values) > MAX_CASES:
        raise TargetError(f"`{text}` has {len(values)} sizes; at most {MAX_CASES} can be measured in one run")
    return Sweep(name, tuple(values))


@dataclass(frozen=True)
class BenchRequest:
    """Describe what to measure: the target `name` in `text`, the current text of `file`, in the workspace `roots`.

    `inputs` replace the target's own, in the syntax of the `# fx:` comment. `inductor` is True to require Inductor's
    kernels as well, None to include them if available.
    """

    file: str
    name: str
    text: str
    roots: tuple[str, ...]
    inputs: str | None = None
    sweep: Sweep | None = None
    choices: Choices = field(default_factory=Choices)
    inductor: bool | None = None


@dataclass(frozen=True)
class PreparedJob:
    """Hold a job with its cases, and the files of the project that its target imports."""

    job: BenchmarkJob
    imports: tuple[Dependency, ...]


def analysed(asked: BenchRequest) -> tuple[Analysis, Target | None]:
    """Return the analysis of the target's file, and the target, or None if it is missing."""
    analysis = analyse(asked.file, asked.text, asked.roots)
    return analysis, analysis.targets.get(asked.name)


async def job_of(engine: Engine, asked: BenchRequest, job: BenchmarkJob) -> PreparedJob | Failure:
    """Return `job` with its cases, which `engine` generates, and the hash of their source. Raises TargetError."""
    analysis, target = analysed(asked)
    cases: list[BenchmarkCase] = []
    for label, text in texts_of(asked, analysis, target):
        engine.open(asked.file, text, asked.roots)
        file = await file_of(engine, asked, asked.choices)
        if isinstance(file, Failure):
            return file
        inductor: str | Failure = ""
        if asked.inductor is not False:
            inductor = await file_of(engine, asked, replace(asked.choices, engine="inductor"))
        if isinstance(inductor, Failure):
            if asked.inductor:
                return inductor
            inductor = ""
        cases.append(BenchmarkCase(label, file, {INDUCTOR_KERNELS: inductor} if inductor else {}))
    imports = _imports(engine, asked)
    filled = replace(
        job,
        name=function_of(cases[0].file),
        cases=tuple(cases),
        modules=_modules(engine, asked, imports),
        source_hash=source_hash(analysis.plan(asked.name)) if target else "",
        choices=write_work(asked.choices.parts()),
    )
    return PreparedJob(filled, imports)


def _imports(engine: Engine, asked: BenchRequest) -> tuple[Dependency, ...]:
    """Return the files of its project that the target imports."""
    dependencies = engine.dependencies(asked.file, asked.name, _work(asked.choices))
    return tuple(
        one
        for one in dependencies
        if one.path.endswith(".py") and "::" not in one.path and one.digest and not _is_installed(one.path)
    )


def _is_installed(path: str) -> bool:
    return not _INSTALLED.isdisjoint(Path(path).parts)


def _modules(engine: Engine, asked: BenchRequest, imports: Sequence[Dependency]) -> tuple[Module, ...]:
    """Return the modules that the target imports, in the engine's version; empty if they exceed `MAX_TEXT`."""
    modules: dict[str, Module] = {}
    roots = {*asked.roots, module_name(asked.file)[2]}
    for dependency in imports:
        file = Path(dependency.path)
        try:
            state = engine.state(dependency.path)
            text = files.read_python(file) if state is None else state.text
        except (OSError, SyntaxError, UnicodeDecodeError):
            continue
        for root in filter(file.is_relative_to, {*roots, module_name(dependency.path)[2]}):
            path = file.relative_to(root).as_posix()
            modules[path] = Module(path, text)
    return tuple(modules.values()) if sum(len(m.text) for m in modules.values()) <= MAX_TEXT else ()


def _work(choices: Choices) -> Work:
    return write_work({TRITON: "", **choices.parts()})


async def file_of(engine: Engine, asked: BenchRequest, choices: Choices) -> str | Failure:
    """Return the kernels of a target with these choices."""
    stage = await engine.stage(asked.file, asked.name, TRITON, _work(choices))
    return stage if isinstance(stage, Failure) else stage.text


def texts_of(asked: BenchRequest, analysis: Analysis, target: Target | None) -> list[tuple[str, str]]:
    """Return for each case its label and the file's text with its inputs. Raises TargetError."""
    inputs, sweep = asked.inputs, asked.sweep
    if target is None or (inputs is None and sweep is None):
        return [("", asked.text)]
    if inputs is None:
        written = analysis.plan(asked.name).given
        inputs = written[0].text if written else ""
    if sweep is None:
        return [("", with_inputs(asked.text, target, inputs))]
    if not re.search(_size(sweep.name), inputs):
        raise TargetError(
            f"no input of {asked.name} has a size {sweep.name}: name it, as in "
            f'"x=f32[{sweep.name}, 1024], …", with the benchmark or in its `# fx:` comment'
        )
    return [
        (f"{sweep.name}={value}", with_inputs(asked.text, target, re.sub(_size(sweep.name), str(value), inputs)))
        for value in sweep.values
    ]


def with_inputs(text: str, target: Target, inputs: str) -> str:
    """Return a file's text with these inputs in the `# fx:` comment of a target; the comment is added if missing.

    Raises TargetError for invalid inputs.
    """
    wrong = parse_comment(inputs)
    if isinstance(wrong, CommentError):
        raise TargetError(f"cannot parse the inputs `{inputs}`: {wrong.message}")
    lines = _LINE_ENDS.split(text)
    comment = fx_comment(text, target)
    if comment is None:
        definition = lines[target.span.line - 1]
        indent = definition[: len(definition) - len(definition.lstrip())]
        lines.insert(target.span.line - 1, f"{indent}# fx: {inputs}\n")
        return "".join(lines)
    for number, part in enumerate(comment.lines):
        line = lines[part.span.line - 1]
        before = line.encode()[: part.span.col].decode()
        ending = line[len(line.rstrip("\r\n")) :]
        lines[part.span.line - 1] = f"{before}# fx: {inputs if number == 0 else ''}".rstrip() + ending
    return "".join(lines)


def function_of(file: str) -> str:
    """Return the function of a generated file that launches its kernels: the first word of the file's docstring."""
    return (ast.get_docstring(ast.parse(file)) or "").split()[0]


def _size(name: str) -> str:
    """Return a pattern that matches a name used as a size, and not as an input or in a text."""
    return rf"(?<![\w.'\"]){re.escape(name)}(?![\w'\"]|\s*=)"


def with_own_lines(report: Report, asked: BenchRequest, prepared: PreparedJob) -> Report:
    """Return a report whose times by line have the paths and lines of the user's files. A line that is not found counts
    with the rest, at line 0.
    """
    generated = {case.label: case.file for case in prepared.job.cases}
    return replace(
        report,
        lines=tuple(_own(time, generated[time.label], asked, prepared) for time in report.lines),
    )


def _own(time: LineTime, generated: str, asked: BenchRequest, prepared: PreparedJob) -> LineTime:
    if time.file:
        paths = [one.path for one in prepared.imports if Path(one.path).as_posix().endswith(f"/{time.file}")]
        return replace(time, file=paths[0]) if len(paths) == 1 else replace(time, file="", line=0)
    line = own_line(generated, time.line, asked.text) if time.line else 0
    return replace(time, file=asked.file if line else "", line=line)
