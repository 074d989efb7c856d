"""Choose the programs of a project that a world runs for a target: those that can reach it. Reads syntax only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from fx_lsp.model import ProgramFile, Target
from fx_lsp.tracing.calls.documents import code_in
from fx_lsp.tracing.calls.entries import Entry, undecorated
from fx_lsp.tracing.calls.project_files import document_files, read_file, text_of
from fx_lsp.tracing.calls.reach import Code, CodeFile, Unit, reached
from fx_lsp.tracing.source.parsing import module_name

MAX_PROGRAMS = 6
"""The most programs of a request."""
MAX_ENTRIES = 24
"""The most calls of functions without parameters whose reach is looked at."""
MAX_DOCUMENT_BYTES = 4_000_000
"""The size limit for documents: a notebook contains its pictures."""


@dataclass(frozen=True)
class TargetPlace:
    """Hold a target of a file that runs as `module` of `package`; `is_program` is as in `driver_of`."""

    file: str
    module: str
    package: str
    target: Target
    is_program: bool


def programs_for(place: TargetPlace, roots: Sequence[str], overlays: Mapping[str, str]) -> tuple[ProgramFile, ...]:
    """Return the programs that may call a target: its own file, then scripts, documents, functions that need no
    arguments, and tests.

    Of each kind those that mention the target itself come first, then those near its file. `overlays` are unsaved texts
    by path.
    """
    code = Code.of(place.file, roots, overlays)
    own = [ProgramFile(place.file, place.module, place.package)] if place.is_program else []
    for unit in _units_of(place, code.file(place.file)):
        others = [*islice(_reaching(place, unit, code, overlays), MAX_PROGRAMS - len(own))]
        if others:
            return (*own, *others)
    return (*own,)


def _reaching(place: TargetPlace, unit: Unit, code: Code, overlays: Mapping[str, str]) -> Iterator[ProgramFile]:
    """Yield the other programs that can reach a unit, each as it is run."""
    words = _words(unit)
    files = {path: file for path in code.paths if path != place.file and (file := code.file(path)) is not None}
    is_run = {path: file.is_program or bool(words & file.mentions.called) for path, file in files.items()}
    scripts = [path for path in files if is_run[path]]
    for path in sorted(scripts, key=lambda path: words.isdisjoint(files[path].mentions.names)):
        if unit in reached(code, path, "", files[path].mentions.guard):
            yield _program(path, code)
    for path, source in _in_documents(place, words, code, overlays):
        if unit in reached(code, path, source, frozenset[str]()):
            yield ProgramFile(path, *module_name(path)[:2], source=source)
    yield from _entries(unit, code, overlays)


def _words(unit: Unit) -> set[str]:
    """Return `Net` and `forward` of `Net.forward`."""
    return {unit[1].partition(".")[0], unit[1].rpartition(".")[2]}


def _in_documents(
    place: TargetPlace, words: Iterable[str], code: Code, overlays: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield the code in documents that mention some words, each with its path."""
    for path in document_files(code.roots, place.file):
        text = text_of(path, overlays, MAX_DOCUMENT_BYTES) or ""
        yield from ((path, source) for source in (code_in(path, text) if any(word in text for word in words) else ()))


def _entries(unit: Unit, code: Code, overlays: Mapping[str, str]) -> Iterator[ProgramFile]:
    """Yield the calls of functions without parameters, and tests, that can reach a unit."""
    words = _words(unit)
    files = {path: file for path in code.paths if (file := code.file(path)) is not None and not file.is_program}
    entries = [(path, entry) for path, file in files.items() for entry in file.entries]
    entries.sort(key=lambda item: (item[1].is_test, words.isdisjoint(_names_from(files[item[0]], item[1]))))
    for path, entry in entries[:MAX_ENTRIES]:
        if unit in reached(code, path, "", entry.names):
            parsed = read_file(path, overlays)
            source = undecorated(parsed.text, parsed.graph.index) if parsed is not None else ""
            yield ProgramFile(path, *module_name(path)[:2], entry=entry.call, source=source)


def _units_of(place: TargetPlace, own: CodeFile | None) -> Iterator[Unit]:
    """Yield the function or class that a target is, or is in; of a method that first, then its class."""
    outer, _, rest = place.target.name.partition(".")
    mentions = own.mentions if own is not None else None
    if mentions is not None and outer in mentions.classes and rest.partition(".")[0] in mentions.classes[outer].methods:
        yield place.file, f"{outer}.{rest.partition('.')[0]}"
    if mentions is not None and outer in mentions.functions.keys() | mentions.classes.keys():
        yield place.file, outer


def _program(path: str, code: Code) -> ProgramFile:
    return ProgramFile(path, *module_name(path, dict(code.unsaved).get(path))[:2])


def _names_from(file: CodeFile, entry: Entry) -> frozenset[str]:
    """Return the names that a call mentions, and the functions that it calls in its file."""
    mentions = file.mentions
    functions = (names for name, names in mentions.functions.items() if name in entry.names)
    methods = (names for cls in mentions.classes.values() for name, names in cls.methods.items() if name in entry.names)
    return entry.names.union(*functions, *methods)
