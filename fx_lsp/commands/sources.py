"""Find and read the files of a command."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fx_lsp import files
from fx_lsp.errors import TargetError
from fx_lsp.model import Failure
from fx_lsp.tracing.calls.documents import notebook_code
from fx_lsp.tracing.kernel_files.generated import is_known
from fx_lsp.tracing.source.project import project_root
from fx_lsp.tracing.source.targets import discover, names_like

NOTEBOOK = ".ipynb"
_NOTEBOOK_BYTES = 128 << 20
_OUTPUT = frozenset({"build", "dist"})
_NOT_SOURCE = frozenset({"__pycache__", "node_modules"})


@dataclass(frozen=True)
class Source:
    """Hold a file to check; `names` are the requested targets, or None for all.

    `folder` is the requested directory that contains the file, or "".
    """

    file: str
    names: frozenset[str] | None = None
    folder: str = ""

    @property
    def root(self) -> str:
        """Return the directory of the file's project."""
        return project_root(self.file, self.folder)


def find_sources(paths: Iterable[str]) -> list[Source]:
    """Return the files of `paths` (files, directories, `path::name`), each once, in order.

    Raises TargetError for a missing path or name.
    """
    names_by_file: dict[str, frozenset[str] | None] = {}
    folders: dict[str, str] = {}
    for path in paths:
        before, separator, name = path.rpartition("::")
        start = Path(before if separator else path)
        if not start.exists():
            raise TargetError(f"there is no file or directory {start}")
        if separator:
            file = str(start.resolve())
            _require(file, name, path)
            names = names_by_file.get(file, frozenset())
            names_by_file[file] = None if names is None else names | {name}
        else:
            for file in python_files(start) if start.is_dir() else [start]:
                names_by_file[str(file.resolve())] = None
                if start.is_dir():
                    folders.setdefault(str(file.resolve()), str(start.resolve()))
    return [Source(file, names, folders.get(file, "")) for file, names in names_by_file.items()]


def python_files(directory: Path) -> Iterator[Path]:
    """Yield the Python files and notebooks below a directory, sorted; not those of hidden directories, environments and
    build output, and not the files that `fx-lsp kernel` wrote.

    `directory` itself is searched whatever its name is.
    """
    for parent, directories, names in os.walk(directory):
        directories[:] = sorted(name for name in directories if _is_source(Path(parent, name)))
        python = (Path(parent, name) for name in sorted(names) if name.endswith((".py", NOTEBOOK)))
        yield from (file for file in python if not is_known(file))


def read_source(file: str) -> str:
    """Return the text of a Python file, or the code of a notebook's cells, one below the other.

    Raises OSError, SyntaxError and ValueError (including UnicodeDecodeError) for an unreadable file.
    """
    return notebook_code(read_document(file)) if file.endswith(NOTEBOOK) else files.read_python(file)


def read_document(file: str) -> str:
    """Return the JSON text of a notebook, which contains its pictures. Raises OSError and UnicodeDecodeError."""
    return files.read_text(file, limit=_NOTEBOOK_BYTES)


def shown_path(file: str) -> str:
    """Return a path for people: relative if it is below the working directory."""
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except ValueError:
        return file


def _require(file: str, name: str, asked: str) -> None:
    try:
        discovered = discover(file, read_source(file))
    except (OSError, SyntaxError, ValueError) as error:
        raise TargetError(f"cannot read {asked}: {getattr(error, 'strerror', None) or error}") from error
    names = [target.name for target in discovered.targets]
    if not isinstance(discovered.failure, Failure) and name not in names:
        raise TargetError(f"`{asked}` is not a function or module that can be traced. {names_like(name, names)}")


def _is_source(directory: Path) -> bool:
    name = directory.name
    if name.startswith(".") or name in _NOT_SOURCE or (directory / "pyvenv.cfg").exists():
        return False
    return name not in _OUTPUT or (directory / "__init__.py").exists()
