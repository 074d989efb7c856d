"""Read the settings of a file's project: `[tool.fx-lsp]` in the nearest pyproject.toml.
    [tool.fx-lsp]
    passes = ["compiler/passes.py::fuse_bias"]
    [tool.fx-lsp.severity]
    graph-break = "error"
    [tool.fx-lsp.budgets]
    "model.py::Block" = { max-graph-breaks = 0 }
    [tool.fx-lsp.inputs]
    "model.py::Block" = "init(dim=64), x=f32[8, 64]"
Targets and passes have paths relative to the pyproject.toml; the value of an input has the syntax of a `# fx:` comment.
"""

from __future__ import annotations

import ast
import logging
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cache, lru_cache
from pathlib import Path, PurePath
from typing import Any, cast, get_args

from fx_lsp import files
from fx_lsp.model import Budgeted, FailureKind, FindingCode, RuleSeverity, WrittenInputs
from fx_lsp.tracing.source.index import ModuleIndex
from fx_lsp.tracing.source.parsing import module_name, split_lines

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

log = logging.getLogger(__name__)

PYPROJECT = "pyproject.toml"
_REPOSITORY = ".git"
BUDGETS = tuple(f"max-{cost}" for cost in get_args(Budgeted))
"""The settings of a budget."""
_ROOT_MARKERS = (PYPROJECT, "setup.py", "setup.cfg", _REPOSITORY)


@dataclass(frozen=True)
class Project:
    """Hold a project's settings for one file: inputs by the target's name, and the ids of the passes to show on
    everything; `trouble` is an error in the settings, or "". `severities` are those of codes, and `budgets` the largest
    costs of a target by its name; `wrong` are sentences on entries of both that set none.
    """

    inputs: Mapping[str, str] = field(default_factory=dict[str, str])
    passes: tuple[str, ...] = ()
    trouble: str = ""
    severities: Mapping[str, RuleSeverity] = field(default_factory=dict[str, RuleSeverity])
    budgets: Mapping[str, Mapping[Budgeted, int]] = field(default_factory=dict[str, "Mapping[Budgeted, int]"])
    wrong: tuple[str, ...] = ()

    def given(self, name: str) -> tuple[WrittenInputs, ...]:
        """Return the written inputs of the target `name` of the file."""
        text = self.inputs.get(name)
        return () if text is None else (WrittenInputs(text, "settings", detail=PYPROJECT),)


def project_root(file: str, folder: str = "") -> str:
    """Return the directory of a file's project: the nearest with a project marker, else the user's `folder`, else the
    one to import the file from.
    """
    return _marked(Path(file).parent) or folder or module_name(file)[2]


def import_roots(file: str, index: ModuleIndex, roots: Sequence[str]) -> list[str]:
    """Return the directories between a file and its project's that contain its imports, if none of `roots` does.

    A program that is started in another directory, or that changes `sys.path`, imports from there.
    """
    outermost = [root for root in (_marked(Path(file).parent), *roots) if root is not None]
    above = [path for path in Path(file).parents if any(path.is_relative_to(root) for root in outermost)]
    holders: dict[str, None] = {}
    for name in _imported(index):
        holder = next((path for path in (*map(Path, roots), *above) if _has_module(path, name)), None)
        if holder is not None and str(holder) not in roots:
            holders[str(holder)] = None
    return list(holders)


def imports_from(index: ModuleIndex, roots: Sequence[str]) -> bool:
    """Return True if a file imports a module in one of `roots`."""
    return any(_has_module(Path(root), name) for name in _imported(index) for root in roots)


def _imported(index: ModuleIndex) -> list[str]:
    """Return the dotted names of the modules that a file imports, except relative imports."""
    names = {n.module for n in index.import_statements if isinstance(n, ast.ImportFrom) and n.module and not n.level}
    return sorted(names | {a.name for n in index.import_statements if isinstance(n, ast.Import) for a in n.names})


def _has_module(directory: Path, name: str) -> bool:
    """Return True if a directory has a module of a dotted name, or a package with sources."""
    path = directory.joinpath(*name.split("."))
    try:
        return path.with_name(f"{path.name}.py").is_file() or (path.is_dir() and any(path.glob("*.py")))
    except (OSError, ValueError):
        return False


def read_project(file: str) -> Project:
    """Return the settings in the nearest pyproject.toml above `file`; it is read again only if its time or size has
    changed.
    """
    for directory in Path(file).parents:
        path = directory / PYPROJECT
        try:
            status = path.stat()
        except OSError:
            continue
        entries, shared = _read(str(path), status.st_mtime_ns, status.st_size)
        own = PurePath(file).relative_to(directory).as_posix()
        budgets = {
            name: most for target, most in shared.budgets.items() for where, name in [_split(target)] if where == own
        }
        return replace(shared, inputs={name: text for where, name, text in entries if where == own}, budgets=budgets)
    return Project()


def concerns(changed: Collection[str], file: str) -> bool:
    """Return True if one of the changed files is a pyproject.toml above `file`."""
    return any(path.name == PYPROJECT and path.parent in Path(file).parents for path in map(Path, changed))


def repository_of(file: str) -> str | None:
    """Return the directory of the repository that a file is in; None if it is in none."""
    return _marked(Path(file).parent, (_REPOSITORY,))


@cache
def _marked(directory: Path, markers: tuple[str, ...] = _ROOT_MARKERS) -> str | None:
    if any((directory / marker).exists() for marker in markers):
        return str(directory)
    return _marked(directory.parent, markers) if directory.parent != directory else None


_Read = tuple[tuple[tuple[str, str, str], ...], Project]
SEVERITY = "severity"
RATED_CODES = frozenset({*get_args(FindingCode), *get_args(FailureKind), "dimension", "graph"}) - {
    "budget", "comment", "interpreter", "no-torch", "nothing", "syntax"
}  # fmt: skip
"""The codes whose severity a project may set; a file that cannot be checked is always an error."""


@lru_cache(maxsize=64)
def _read(path: str, mtime_ns: int, size: int) -> _Read:
    """Return the inputs as (path, name, text), and the settings that are the same for all files."""
    try:
        text = files.read_text(path)
        table: Any = tomllib.loads(text)
        for key in ("tool", "fx-lsp"):
            table = table.get(key, {})
        inputs: dict[str, Any] = dict(table.get("inputs", {}))
        named: Any = table.get("passes", [])
    except (OSError, ValueError, RecursionError) as error:
        return _unreadable(f"{path} is not read: {getattr(error, 'strerror', None) or error}")
    except (AttributeError, TypeError):
        return _unreadable(f"{path} is not read: [tool.fx-lsp.inputs] is not a table")
    items = cast("list[Any]", named) if isinstance(named, list) else [named]
    if not all(isinstance(item, str) and "::" in item for item in items):
        return _unreadable(f'{path} is not read: passes of [tool.fx-lsp] is not a list like ["passes.py::fuse"]')
    entries: list[tuple[str, str, str]] = []
    for key, value in inputs.items():
        # A value that is not text is not a valid input either: the tracer reports it at the target's name.
        text = value if isinstance(value, str) else repr(value)
        entries.append((*_split(key), text))
    passes = tuple(os.path.normpath(Path(path).parent / item) for item in items)
    severities, wrong = _severities(table.get(SEVERITY, {}), path, split_lines(text))
    budgets, others = _budgets(table.get("budgets", {}), path)
    wrong += others
    return tuple(entries), Project({}, passes, next(iter(wrong), ""), severities, budgets, wrong)


def _split(target: str) -> tuple[str, str]:
    """Return the path and the name of a target in a table."""
    where, _, name = target.partition("::")
    return os.path.normpath(where).replace(os.sep, "/"), name


def _budgets(table: Any, path: str) -> tuple[dict[str, Mapping[Budgeted, int]], tuple[str, ...]]:
    """Return the budgets of targets in a table, and a sentence for each entry that sets none."""
    if not isinstance(table, dict):
        return {}, (f"{path}: [tool.fx-lsp.budgets] is not a table",)
    budgets: dict[str, Mapping[Budgeted, int]] = {}
    wrong: list[str] = []
    for target, most in cast("dict[str, Any]", table).items():
        entries = cast("dict[str, Any]", most) if isinstance(most, dict) else {"": most}
        costs: dict[Any, int] = {key.removeprefix("max-"): value for key, value in entries.items()}
        names = [key for key in entries if key not in BUDGETS]
        if "::" not in target or names or any(type(value) is not int or value < 0 for value in costs.values()):
            settings = ", ".join(BUDGETS)
            wrong.append(f"{path}: the budget of `{target}` is not a table of numbers from 0 for {settings}")
        else:
            budgets[target] = costs
    return budgets, tuple(wrong)


def _severities(table: Any, path: str, lines: Sequence[str]) -> tuple[dict[str, RuleSeverity], tuple[str, ...]]:
    """Return the severities of codes in a table, and a sentence with the line for each entry that sets none."""
    if not isinstance(table, dict):
        return {}, (f"{path}: [tool.fx-lsp.{SEVERITY}] is not a table",)
    values: tuple[RuleSeverity, ...] = ("error", "warning", "information", "off")
    severities: dict[str, RuleSeverity] = {}
    wrong: list[str] = []
    header = next((n for n, line in enumerate(lines, 1) if "fx-lsp" in line and SEVERITY in line), 1)
    for code, value in cast("dict[str, Any]", table).items():
        place = next(
            (n for n, line in enumerate(lines[header:], header + 1) if line.strip(" \t\"'").startswith(code)), header
        )
        if code not in RATED_CODES:
            codes = ", ".join(get_close_matches(code, RATED_CODES) or sorted(RATED_CODES))
            wrong.append(f"{path}:{place}: `{code}` is not a code whose severity can be set; choose one of {codes}")
        elif value not in values:
            wrong.append(f"{path}:{place}: the severity of `{code}` is {value!r}; choose one of {', '.join(values)}")
        else:
            severities[code] = value
    return severities, tuple(wrong)


def _unreadable(trouble: str) -> _Read:
    log.warning("%s", trouble)
    return (), Project(trouble=trouble)
