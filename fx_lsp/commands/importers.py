"""Follow the imports between the files of a project: from a changed file to the files that import it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from fx_lsp.commands.sources import Source, read_source
from fx_lsp.model import Failure
from fx_lsp.tracing.source.index import ModuleIndex
from fx_lsp.tracing.source.parsing import parse
from fx_lsp.tracing.source.project import PYPROJECT


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
