"""Figures of the code that fall and do not rise: `ratchet.toml`. `python tests/test_ratchet.py` lowers them there.

A figure may be higher than in the table only by what an entry of `raised` adds, and says why.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "tests" / "ratchet.toml"
HEAD = "# Figures that fall and do not rise: tests/test_ratchet.py says what each is.\n"
SMALL = 100
"""The lines below which a module that only one other imports is better a part of that one."""
HUNDRED = 100
REGEX_FUNCTIONS = {"compile", "match", "search", "fullmatch", "findall", "finditer", "sub", "split"}


@cache
def figures() -> dict[str, int]:
    """Return the measured figures by their names in the table."""
    return {
        **{f"hundreds of lines.{name}": ceil(lines / HUNDRED) for name, lines in lines_of_packages().items()},
        "functions that return a bool.fx_lsp/tracer/inputs": sum(
            isinstance(node.returns, ast.Name) and node.returns.id == "bool"
            for file in modules("fx_lsp/tracer/inputs")
            for node in ast.walk(tree(file))
            if isinstance(node, ast.FunctionDef)
        ),
        "regular expressions.fx_lsp/tracer": sum(
            isinstance(node, ast.Attribute) and ast.unparse(node) in {f"re.{name}" for name in REGEX_FUNCTIONS}
            for file in modules("fx_lsp/tracer")
            for node in ast.walk(tree(file))
        ),
        "small modules with one importer.fx_lsp": len(small_modules()),
        **{f"floors.{folder}": floors(folder) for folder in ("fx_lsp/commands", "fx_lsp/features")},
    }


def lines_of_packages() -> dict[str, int]:
    """Return the lines of Python in each package of `fx_lsp`, in each folder of the tests, and in both."""
    lines: Counter[str] = Counter()
    for top in ("fx_lsp", "tests"):
        for file in modules(top):
            parts = file.relative_to(ROOT).parts
            number = file.read_text(encoding="utf-8").count("\n")
            lines[top] += number
            lines["/".join(parts[:2]) if len(parts) > 2 else f"{top}/*.py"] += number
    return dict(sorted(lines.items()))


def small_modules() -> list[str]:
    """Return the modules of under 100 lines that one other module imports, and no folder of a kind holds."""
    importers = {name: [other for other, names in imports().items() if name in names] for name in imports()}
    return [
        name
        for name, others in importers.items()
        if len(others) == 1
        and not name.startswith("fx_lsp.messages.")
        and (ROOT / (name.replace(".", "/") + ".py")).read_text(encoding="utf-8").count("\n") < SMALL
    ]


def floors(folder: str) -> int:
    """Return the number of modules in the longest chain of imports inside a folder."""
    prefix = folder.replace("/", ".") + "."
    below = {name: names for name, names in imports().items() if name.startswith(prefix)}
    inside = {name: names & below.keys() for name, names in below.items()}

    @cache
    def height(name: str) -> int:
        return 1 + max((height(other) for other in inside[name]), default=0)

    return max(map(height, inside))


@cache
def imports() -> dict[str, set[str]]:
    """Return the modules of the package, packages themselves left out, each with those that it imports."""
    names = {".".join(file.relative_to(ROOT).with_suffix("").parts): file for file in modules("fx_lsp")}
    names = {name: file for name, file in names.items() if file.stem != "__init__"}
    return {name: set(_imported(tree(file))) & names.keys() - {name} for name, file in names.items()}


def _imported(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))


def modules(folder: str) -> list[Path]:
    """Return the Python files below a folder of the repository."""
    return sorted((ROOT / folder).rglob("*.py"))


@cache
def tree(file: Path) -> ast.Module:
    """Return a file as it parses."""
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def table() -> dict[str, Any]:
    """Return the table: figures by group, and what raised them."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def allowed(name: str) -> int:
    """Return the figure of the table with what was added to it."""
    group, _, key = name.partition(".")
    return table().get(group, {}).get(key, 0) + sum(r["by"] for r in table().get("raised", ()) if r["figure"] == name)


@pytest.mark.parametrize("name", sorted(figures()))
def test_a_figure_does_not_rise_and_is_lowered_when_it_falls(name: str) -> None:
    assert figures()[name] == allowed(name), (
        f"{name} is {figures()[name]}, not {allowed(name)}. Where it fell, run `python tests/test_ratchet.py`; "
        "where it has to rise, add an entry to `raised` in tests/ratchet.toml that says why."
    )


def test_what_raises_a_figure_says_why() -> None:
    assert [r for r in table().get("raised", ()) if len(r["why"].split()) < 4 or r["figure"] not in figures()] == []


def lowered() -> str:
    """Return the table with the figures that fell, without the entries of `raised` that these had."""
    fell = {name for name, figure in figures().items() if figure < allowed(name)}
    rows: dict[str, list[str]] = {}
    for name, figure in figures().items():
        group, _, key = name.partition(".")
        rows.setdefault(group, []).append(f'"{key}" = {figure if name in fell else table().get(group, {}).get(key, 0)}')
    kept = (entry for entry in table().get("raised", ()) if entry["figure"] not in fell)
    raised = (f'[[raised]]\nfigure = "{r["figure"]}"\nby = {r["by"]}\nwhy = "{r["why"]}"\n' for r in kept)
    tables = (f'["{group}"]\n' + "\n".join(lines) + "\n" for group, lines in rows.items())
    return "\n".join([HEAD, *tables, *raised])


if __name__ == "__main__":
    FILE.write_text(lowered(), encoding="utf-8")
