"""Find the files that a change affects: those that git lists and the files that import them; and wait for a change."""

from __future__ import annotations

import ast
import asyncio
import os
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from fx_lsp.commands.sources import NOTEBOOK, Source, read_source
from fx_lsp.errors import UsageError
from fx_lsp.model import Failure
from fx_lsp.tracing.answers.disk import Dependency, is_fresh, read_dependencies
from fx_lsp.tracing.calls.documents import notebook_code
from fx_lsp.tracing.source.index import ModuleIndex
from fx_lsp.tracing.source.parsing import parse
from fx_lsp.tracing.source.project import PYPROJECT

SECONDS = 0.2
"""The seconds between two looks at the files."""
SHARE = 20
"""The least ratio of the time between two looks to the time of a look."""


@dataclass
class WatchedFiles:
    """Hold the state of files at the beginning of a check, and of those that its answers depend on."""

    sources: frozenset[str] = frozenset()
    states: dict[str, Dependency] = field(default_factory=dict[str, Dependency])
    started: float = 0.0

    def begin(self, sources: Iterable[Source], others: Iterable[str]) -> None:
        """Note the state of the sources, of the settings that concern them, and of other files, before a check."""
        self.started = time.time()
        self.sources = frozenset(source.file for source in sources)
        settings = {str(parent / PYPROJECT) for file in self.sources for parent in Path(file).parents}
        paths = sorted({*self.sources, *settings, *others, *self.states})
        self.states = {state.path: state for state in read_dependencies(paths, {})}

    def add(self, dependencies: Iterable[Dependency]) -> None:
        """Note what the answers of a check depend on, in the state that they were traced with, if it is a file's.

        A file that has changed since the check began counts as changed.
        """
        for dependency in dependencies:
            path = dependency.path.partition("::")[0]  # a part of a file
            if path not in self.states:
                is_of_file = path == dependency.path and dependency.mtime_ns >= 0
                state = dependency if is_of_file else read_dependencies([path], {}, self.started)[0]
                self.states[path] = state

    def changed(self, present: Iterable[Source]) -> bool:
        """Return True if a file has changed since, or if others are `present`."""
        return self.sources != frozenset(source.file for source in present) or not is_fresh([*self.states.values()], {})


async def wait_for_change(watched: WatchedFiles, find: Callable[[], list[Source]]) -> None:
    """Return when a watched file has changed, or when `find` returns other files."""
    while True:
        started = time.monotonic()
        if await asyncio.to_thread(lambda: watched.changed(find())):
            return
        await asyncio.sleep(max(SECONDS, SHARE * (time.monotonic() - started)))


_SECONDS = 120


def changed_since(revision: str, folders: Iterable[str]) -> frozenset[str]:
    """Return the files in the repositories of these folders that differ from a revision, and those that git does not
    track; also removed ones.

    Raises UsageError without git, outside of a repository, and for an unknown revision.
    """
    repositories = dict.fromkeys(_repository(Path(folder)) for folder in dict.fromkeys(folders))
    tops = dict.fromkeys(_top(str(folder)) for folder in repositories)
    return frozenset(str(top / name) for top in tops for name in _changed(top, revision))


@cache
def _repository(folder: Path) -> Path:
    """Return the nearest folder above that may be a repository, or `folder` itself."""
    return next((above for above in (folder, *folder.parents) if (above / ".git").exists()), folder)


def _top(folder: str) -> Path:
    done = _git(folder, "rev-parse", "--show-toplevel")
    if done.returncode:
        raise UsageError(f"--since needs a git repository, and {folder} is not in one ({_reason(done)})")
    return Path(done.stdout.rstrip("\n")).resolve()


def _changed(top: Path, revision: str) -> list[str]:
    is_option = revision.startswith("-")
    commit = _git(str(top), "rev-parse", "--verify", "--quiet", f"{'' if is_option else revision}^{{commit}}")
    if commit.returncode:
        raise UsageError(f"--since: `{revision}` is not a revision of the git repository {top}")
    differing = _git(str(top), "diff", "--name-only", "--no-renames", "-z", commit.stdout.strip(), "--")
    untracked = _git(str(top), "ls-files", "--others", "--exclude-standard", "-z")
    for done in (differing, untracked):
        if done.returncode:
            raise UsageError(f"--since: git cannot list the changed files of {top} ({_reason(done)})")
    return [name for name in f"{differing.stdout}{untracked.stdout}".split("\0") if name]


def texts_at(revision: str, changed: Iterable[str]) -> dict[str, str]:
    """Return the code of changed Python files and notebooks at a revision, by path; a file that it does not have, or
    whose code cannot be read, is left out. Raises UsageError as `changed_since`.
    """
    texts: dict[str, str] = {}
    for file in (Path(path) for path in sorted(changed) if path.endswith((".py", NOTEBOOK))):
        top = _repository(file.parent)
        done = _git(str(top), "show", f"{revision}:{file.relative_to(top).as_posix()}")
        if not done.returncode:
            with suppress(ValueError):
                texts[str(file)] = notebook_code(done.stdout) if file.suffix == NOTEBOOK else done.stdout
    return texts


def _git(folder: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["git", "-C", folder, *arguments],
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=_SECONDS,
        )
    except FileNotFoundError as error:
        raise UsageError("--since needs git, which is not on PATH") from error
    except (OSError, ValueError) as error:
        raise UsageError(f"--since: git cannot be started: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"--since: git did not answer within {_SECONDS} s") from error


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    return done.stderr.strip().partition("\n")[0].removeprefix("fatal: ") or f"git ended with {done.returncode}"


def affected_by(changed: Collection[str], sources: Iterable[Source]) -> list[Source]:
    """Return the sources that changed, that import a changed file directly or through others, or that have a changed
    pyproject.toml above them.
    """
    asked = list(sources)
    importers = defaultdict[str, set[str]](set)
    waiting = [(source.file, source.root) for source in asked]
    seen = {file for file, _ in waiting}
    while waiting:
        file, root = waiting.pop()
        for path in _imported_paths(file, root):
            importers[path].add(file)
            if path not in seen:
                seen.add(path)
                if Path(path).is_file():
                    waiting.append((path, root))
    affected, reached = set(changed), list(changed)
    while reached:
        further = importers[reached.pop()] - affected
        affected |= further
        reached += further
    settings = {str(Path(path).parent) for path in changed if Path(path).name == PYPROJECT}
    return [s for s in asked if s.file in affected or not settings.isdisjoint(map(str, Path(s.file).parents))]


def _imported_paths(file: str, root: str) -> Iterator[str]:
    """Yield the paths of the modules that a file imports, whether they exist or not: below each directory from the
    file's to its project's.
    """
    try:
        tree = parse(file, read_source(file))
    except (OSError, SyntaxError, ValueError):
        return
    if isinstance(tree, Failure):
        return
    parent = Path(file).parent
    above = [folder for folder in (parent, *parent.parents) if folder.is_relative_to(root)]
    for statement in ModuleIndex(tree).import_statements:
        for name, level in _modules(statement):
            bases = [parent, *parent.parents][level - 1 : level] if level else [*above, Path(root, "src")]
            for base in bases:
                yield from _files_of(base, name)
    for folder in above:
        yield str(folder / "__init__.py")


def _modules(statement: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, int]]:
    """Yield the dotted names that may be modules, with the level of a relative import."""
    for alias in statement.names:
        if isinstance(statement, ast.Import):
            yield alias.name, 0
        else:
            yield ".".join(part for part in (statement.module, alias.name) if part), statement.level


def _files_of(base: Path, name: str) -> Iterator[str]:
    """Yield the paths of a module and of the packages around it; its last part may also be a name in one of these."""
    path = base
    for part in name.split("."):
        path /= part
        yield f"{path}.py"
        yield str(path / "__init__.py")
