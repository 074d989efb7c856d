"""Analyse one text of a file: its targets' names, slices, comments and cache keys. Reads syntax only."""

from __future__ import annotations

import ast
import asyncio
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import fx_lsp
from fx_lsp.comments import fx_comment
from fx_lsp.configurations import Reads
from fx_lsp.messages.texts import NESTED_TOO_DEEPLY
from fx_lsp.model import (
    Caller,
    Configuration,
    Failure,
    Fit,
    InputSpec,
    Pass,
    ProgramFile,
    Span,
    Target,
    TargetKind,
    TraceRequest,
    WatchedFile,
    Work,
    WrittenInputs,
    file_that_ran,
)
from fx_lsp.specs import Comment, names_used, parse_comment
from fx_lsp.syntax import outermost_functions
from fx_lsp.tracing.answers.disk import AnswerConditions
from fx_lsp.tracing.calls.callers import callers_of
from fx_lsp.tracing.calls.config_classes import fitting_classes
from fx_lsp.tracing.calls.offered_names import configurations_for
from fx_lsp.tracing.calls.parameter_reads import parameter_reads
from fx_lsp.tracing.calls.programs import TargetPlace, programs_for
from fx_lsp.tracing.calls.project_files import ProjectFile
from fx_lsp.tracing.calls.recordings import recorded_calls
from fx_lsp.tracing.slicing.module_slice import Slice, SourceGraph
from fx_lsp.tracing.slicing.passes import find_passes
from fx_lsp.tracing.source.compiled import compiled_targets
from fx_lsp.tracing.source.drivers import driver_of
from fx_lsp.tracing.source.parsing import module_name, parse, split_lines
from fx_lsp.tracing.source.project import PYPROJECT, Project, import_roots, imports_from, read_project
from fx_lsp.tracing.source.targets import discover
from fx_lsp.training.step import Step

T = TypeVar("T")
_LARGE_TEXT = 100_000


@dataclass(frozen=True)
class Plan:
    """Describe how to trace one target of a text. `lines` are the lines whose positions move with it: of its slice and
    its comment.
    """

    target: Target
    slice: Slice
    given: tuple[WrittenInputs, ...]
    lines: tuple[int, ...]


@dataclass
class Analysis:
    """Hold one text of a file with its analysis; plans and keys are computed on request and cached.

    `failure` explains why there are no targets. `passes` rewrite graphs or match parts of them, `steps` are targets.
    `roots` are the directories to import from, the nearest first; `project` has the project's settings for the file,
    `recorded` the recorded calls of its targets, by name.
    """

    file: str
    text: str
    roots: tuple[str, ...]
    module: str
    package: str
    targets: dict[str, Target]
    failure: Failure | None
    graph: SourceGraph | None
    project: Project
    recorded: Mapping[str, tuple[WrittenInputs, ...]]
    passes: tuple[Pass, ...] = ()
    steps: Mapping[str, Step] = field(default_factory=dict[str, Step])
    _plans: dict[str, Plan] = field(default_factory=dict[str, Plan])
    _keys: dict[tuple[str, str, float], str] = field(default_factory=dict[tuple[str, str, float], str])

    def plan(self, name: str) -> Plan:
        """Return the plan for the target `name`, which must be one of `targets`."""
        if name not in self._plans:
            assert self.graph is not None, "a text with targets has been parsed"
            target = self.targets[name]
            comment = fx_comment(self.text, target)
            extra = range(comment.span.line, comment.span.end_line + 1) if comment else ()
            inputs = (*((comment.given,) if comment else ()), *self.project.given(name), *self.recorded.get(name, ()))
            names = _names_in(inputs) | fitting_classes(self.graph.index, name)
            part = self._slice(target, names)
            self._plans[name] = Plan(target, part, inputs, (*part.lines, *extra))
        return self._plans[name]

    def _slice(self, target: Target, names: Collection[str]) -> Slice:
        assert self.graph is not None, "a text with targets has been parsed"
        is_of_top_level = target.kind == "script" or (target.kind == "step" and not self.steps[target.name].path)
        if is_of_top_level:
            return self.graph.slice_of(dict(enumerate(split_lines(self.graph.text), 1)))
        return self.graph.slice(target.name, names)

    def key(self, name: str, interpreter: str, search_seconds: float) -> str:
        """Return the cache key of the target `name` with an interpreter's identity."""
        conditions = (name, interpreter, search_seconds)
        if conditions not in self._keys:
            plan = self.plan(name)
            self._keys[conditions] = AnswerConditions(
                file=self.file,
                fingerprint=plan.slice.fingerprint,
                name=name,
                kind=plan.target.kind,
                evident=plan.target.evident,
                compiled=plan.target.compiled,
                module=self.module,
                package=self.package,
                inputs=plan.given,
                interpreter=interpreter,
                version=fx_lsp.__version__,
                search_seconds=search_seconds,
                roots=self.roots,
            ).key()
        return self._keys[conditions]

    def request(
        self,
        name: str,
        overlays: Mapping[str, str],
        search_seconds: float,
        previous: tuple[InputSpec, ...] = (),
        work: Work = "",
    ) -> TraceRequest:
        """Return the request to a tracer for the target `name`; `previous` are the inputs of its last trace."""
        plan = self.plan(name)
        return TraceRequest(
            file=self.file,
            name=name,
            kind=self._kind(plan.target),
            source=self.graph.text if self.graph is not None else self.text,
            sliced=plan.slice.text,
            module=self.module,
            package=self.package,
            roots=self.roots,
            given=plan.given,
            previous=previous,
            callers=self._callers(plan.target),
            overlays={path: text for path, text in overlays.items() if path != self.file and path.endswith(".py")},
            seconds=search_seconds,
            work=work,
            evident=plan.target.evident,
            step=self.steps[name].region.lineno if name in self.steps else 0,
            fits=self._fits(plan.target, overlays),
            compiled=plan.target.compiled,
            programs=self._programs(plan.target, overlays),
            bound=tuple(sorted(self.graph.reached(name) - {"*"})) if self.graph is not None else (),
        )

    def _programs(self, target: Target, overlays: Mapping[str, str]) -> tuple[ProgramFile, ...]:
        """Return the programs that may call a target."""
        place = TargetPlace(self.file, self.module, self.package, target, self.is_program)
        text = self.graph.text if self.graph is not None else self.text
        return programs_for(place, self.roots, {**overlays, self.file: text})

    @cached_property
    def is_program(self) -> bool:
        """Return True if running the file has an effect."""
        return self.graph is not None and driver_of(self.graph.index) is not None

    def watched(self) -> WatchedFile:
        """Return the description of the file for a world."""
        targets = tuple((target.name, target.kind) for target in self.targets.values())
        source = self.graph.text if self.graph is not None else self.text
        return WatchedFile(self.file, source, self.module, self.package, targets, self.is_program)

    @cached_property
    def imports_project(self) -> bool:
        """Return True if tracing a target of the file imports more of the project."""
        return bool(self.package) or (self.graph is not None and imports_from(self.graph.index, self.roots))

    def _kind(self, target: Target) -> TargetKind:
        """Return the kind of a target for a tracer: a step that is a whole function or method counts as that."""
        step = self.steps.get(target.name)
        if step is None or not isinstance(step.region, ast.FunctionDef):
            return target.kind
        if not step.path:
            return "function"
        return "method" if len(step.path) == 1 and isinstance(step.path[0], ast.ClassDef) else "step"

    def _fits(self, target: Target, overlays: Mapping[str, str]) -> tuple[Fit, ...]:
        """Return the configurations of the project that may fit the target's parameters."""
        if self.graph is None or target.kind in ("graph", "step", "script"):
            return ()
        reads = parameter_reads(target.name, ProjectFile(self.file, self.text, self.graph), self.roots, overlays)
        fits = (Fit(n, json.dumps(r.to_data()), self._configurations(r, overlays)) for n, r in reads.items())
        return tuple(fit for fit in fits if fit.configurations)

    def _configurations(self, reads: Reads, overlays: Mapping[str, str]) -> tuple[Configuration, ...]:
        return configurations_for(reads, self.file, self.roots, overlays)

    def _callers(self, target: Target) -> tuple[Caller, ...]:
        if self.graph is None or target.kind in ("graph", "step", "script"):
            return ()
        return callers_of(target.name, self.targets, self.graph)

    def use_of(self, name: str, overlays: Mapping[str, str]) -> str:
        """Return the callers of the target `name` and the names of the programs that may call it, as text."""
        if self.graph is None or name not in self.targets:
            return ""
        target = self.targets[name]
        programs = (f"{program.file} {program.entry}" for program in self._programs(target, overlays))
        return "\n".join([*(caller.sliced for caller in self._callers(target)), *programs])

    def text_run(self, functions: Collection[str]) -> str:
        """Return the executed part of this file as text without positions; `functions` are the functions that ran."""
        if self.graph is None:
            return ""
        tree = parse(self.file, self.graph.text)
        assert isinstance(tree, ast.Module), "it has been parsed before"
        for function, name in outermost_functions(tree.body):
            if name not in functions:
                function.body = []
        return ast.dump(tree)

    @property
    def trouble(self) -> str:
        """Return the error in the project's settings for this file, or ""."""
        unknown = next((name for name in self.project.inputs if self.graph and name not in self.targets), None)
        if unknown is None:
            return self.project.trouble
        return f"{PYPROJECT}: {self.file} has no function or module {unknown!r} that can be traced"

    def project_changed(self) -> bool:
        """Return True if the project's settings or the recorded calls of the file have changed."""
        return read_project(self.file) != self.project or recorded_calls(self.file) != self.recorded

    def import_span(self) -> Span:
        """Return the span for a problem of the whole file: its first import of torch, or line 1."""
        line = (self.graph.index.import_line("torch") if self.graph else None) or 1
        content = split_lines(self.text)[line - 1].rstrip()
        return Span(self.file, line, 0, line, len(content.encode("utf-8", "surrogatepass")))


def analyse(file: str, text: str, workspace: tuple[str, ...]) -> Analysis:
    """Parse a text and find its targets. `workspace` are the roots of the editor's workspace."""
    module, package, root = module_name(file, text)
    roots = tuple(dict.fromkeys((root, *workspace, str(Path(file).parent))))
    tree, project, recorded = parse(file, text), read_project(file), recorded_calls(file)
    plain = Analysis(file, text, roots, module, package, {}, None, None, project, recorded)
    try:
        return replace(plain, failure=tree) if isinstance(tree, Failure) else _with_targets(plain, tree)
    except RecursionError:
        return replace(plain, failure=NESTED_TOO_DEEPLY.failure(Span(file, 1, 0, 1, 0)))


def _with_targets(plain: Analysis, tree: ast.Module) -> Analysis:
    """Return an analysis with the targets of its text. Raises RecursionError for a tree that is too deep."""
    file, text = plain.file, plain.text
    graph = SourceGraph(text, tree)
    discovered = discover(file, text, graph.index, plain.project.inputs.keys() | plain.recorded.keys())
    passes = find_passes(file, text, graph.index)
    rewriting = {p.name for p in passes if p.kind != "rewrite"}
    compiled = compiled_targets(graph.index)
    targets = {
        target.name: replace(target, compiled=compiled.get(target.name, ""))
        for target in discovered.targets
        if target.name.partition(".")[0] not in rewriting
    }
    roots = (*plain.roots, *import_roots(file, graph.index, plain.roots))
    return replace(plain, roots=roots, targets=targets, graph=graph, passes=passes, steps=discovered.steps)


def _names_in(inputs: Iterable[WrittenInputs]) -> set[str]:
    """Return the names that written inputs look up in the file."""
    parsed = (parse_comment(item.text) for item in inputs)
    return {name for comment in parsed if isinstance(comment, Comment) for name in names_used(comment)}


@dataclass(frozen=True)
class Texts:
    """Hold the unsaved texts of files, by path, and the analyses of those that parse."""

    by_path: Mapping[str, str]
    analyses: Mapping[str, Analysis]

    def get(self, path: str, /) -> str | None:
        """Return the text for a dependency: of a file; for `file::name`, the part that shows the target's arguments;
        for a string from `ran`, the executed part. None for others.
        """
        if (run := file_that_ran(path)) is not None:
            return self.analyses[run[0]].text_run(run[1]) if run[0] in self.analyses else None
        file, separator, name = path.partition("::")
        if separator and file in self.analyses:
            return self.analyses[file].use_of(name, self.by_path)
        return self.by_path.get(path)


async def aside(text: str, work: Callable[[], T]) -> T:
    """Return the result of `work`, run in a thread if its text is long."""
    return work() if len(text) < _LARGE_TEXT else await asyncio.to_thread(work)
