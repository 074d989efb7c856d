"""Turn statements of a traced function into a checkpoint: the memory that it saves, and the edited text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from fx_lsp.features.source.bindings import Flow
from fx_lsp.features.source.pin import WIDTH, TextChange
from fx_lsp.features.source.regions import Place, RegionSignature, first_line, last_line, place_of, signature_of_region
from fx_lsp.model import Outcome, Target, Trace, Work, write_work
from fx_lsp.syntax import tree_of

STAGE = "checkpoint"
"""The stage that reports the memory that a region saves as a checkpoint."""
_MODULE = "torch.utils.checkpoint"
_ENDS = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True)
class Checkpoint:
    """Hold statements that can be a checkpoint: the work that computes the saving, and the edits.

    There are no edits if the statements cannot be a separate function.
    """

    work: Work
    edits: tuple[TextChange, ...]


def checkpoint(text: str, target: Target, outcome: Outcome, first: int, last: int) -> Checkpoint | None:
    """Return the whole statements on the lines from `first` to `last`, as a checkpoint.

    None if they are outside of the traced target, or nothing is saved for backward.
    """
    inside = target.span.line <= first and last <= target.span.end_line
    if not isinstance(outcome, Trace) or outcome.info("backward") is None or not inside:
        return None
    tree = tree_of(text)
    place = None if tree is None else place_of(tree, first, last)
    if tree is None or place is None:
        return None
    lines = range(first_line(place.statements[0]), last_line(place.statements[-1]) + 1)
    if not any(v.span.file == target.file and v.span.line in lines for v in outcome.values):
        return None
    return Checkpoint(write_work({STAGE: f"{lines[0]}-{lines[-1]}"}), tuple(_edits(text, tree, place)))


def _edits(text: str, tree: ast.Module, place: Place) -> Iterator[TextChange]:
    """Yield the edits that move the statements into a function for `torch.utils.checkpoint`; nothing if that is
    impossible.
    """
    lines = _ENDS.split(text)
    signature = signature_of_region(place)
    if signature is None or not _has_lines_of_its_own(place, lines):
        return
    newline = "\r\n" if "\r\n" in text else "\n"
    called, imported = _checkpoint_name(tree, place, newline)
    first, last = first_line(place.statements[0]), last_line(place.statements[-1])
    if imported is not None:
        yield imported
    body = newline.join(_rewritten(lines, place, signature, called, _unused("region", tree)))
    yield TextChange(first, 0, last, len(lines[last - 1].encode()), body)


def _has_lines_of_its_own(place: Place, lines: list[str]) -> bool:
    """Return True if the lines of the statements contain nothing else."""
    first, last = place.statements[0], place.statements[-1]
    before = lines[first_line(first) - 1].encode()[: first.col_offset]
    after = lines[last_line(last) - 1].encode()[last.end_col_offset or 0 :].strip()
    above, opening = lines[first_line(first) - 2], lines[first_line(first) - 1].split()[0]
    if before.strip() or above.endswith("\\") or opening == "elif" or (after and not after.startswith(b"#")):
        return False
    return place.function.lineno < first_line(place.function.body[0])


def _rewritten(lines: list[str], place: Place, signature: RegionSignature, called: str, name: str) -> Iterator[str]:
    first, last = first_line(place.statements[0]), last_line(place.statements[-1])
    indent, unit = _indent(lines[first - 1]), _unit(lines, place)
    results, fixed = ", ".join(signature.outputs), _text_lines(place)
    if place.start and lines[first - 2].strip():
        yield ""
    yield from _call(f"{indent}def {name}(", list(signature.inputs), "):", indent, unit)
    for number in range(first, last + 1):
        line = lines[number - 1]
        yield f"{unit}{line}" if line.strip() and number not in fixed else line
    yield f"{indent}{unit}return {results}"
    yield ""
    yield from _call(
        f"{indent}{results} = {called}(", [name, *signature.inputs, "use_reentrant=False"], ")", indent, unit
    )


def _call(head: str, arguments: list[str], tail: str, indent: str, unit: str) -> list[str]:
    line = f"{head}{', '.join(arguments)}{tail}"
    if len(line) <= WIDTH:
        return [line]
    return [head, *(f"{indent}{unit}{argument}," for argument in arguments), f"{indent}{tail}"]


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _unit(lines: list[str], place: Place) -> str:
    """Return the indentation of one level in the function."""
    outer, inner = (_indent(lines[n - 1]) for n in (place.function.lineno, first_line(place.function.body[0])))
    return inner.removeprefix(outer) or "    "


def _text_lines(place: Place) -> set[int]:
    """Return the lines that begin inside of a string."""
    return {
        line
        for statement in place.statements
        for node in ast.walk(statement)
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)))
        for line in range(node.lineno + 1, (node.end_lineno or node.lineno) + 1)
    }


def _checkpoint_name(tree: ast.Module, place: Place, newline: str) -> tuple[str, TextChange | None]:
    """Return the file's name for `torch.utils.checkpoint.checkpoint`, with an edit that imports it if missing."""
    flow = Flow(None)
    flow.run(place.function.body, frozenset())
    hidden = {*flow.bound, *(a.arg for a in ast.walk(place.function.args) if isinstance(a, ast.arg))}
    for name in _imported(tree):
        if name.partition(".")[0] not in hidden:
            return name, None
    name = _unused("checkpoint", tree)
    alias = "" if name == "checkpoint" else f" as {name}"
    return name, _import(tree, f"from {_MODULE} import checkpoint{alias}{newline}", newline)


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (f"{a.asname or a.name}.checkpoint" for a in node.names if a.name == _MODULE)
        elif isinstance(node, ast.ImportFrom) and node.module in (_MODULE, "torch.utils") and not node.level:
            tail = ".checkpoint" if node.module == "torch.utils" else ""
            yield from (f"{a.asname or a.name}{tail}" for a in node.names if a.name == "checkpoint")


def _import(tree: ast.Module, text: str, newline: str) -> TextChange:
    """Return an edit that adds an import after the first group of imports, or after the torch imports in it."""
    imports: list[ast.stmt] = []
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            imports.append(node)
        elif imports:
            break
    group = [n for n in imports if _imports_torch(n)] or imports
    if group:
        line = last_line(group[-1]) + 1
    elif ast.get_docstring(tree, clean=False) is not None:
        line, text = last_line(tree.body[0]) + 1, newline + text
    else:
        line, text = first_line(tree.body[0]), text + newline * 2
    return TextChange(line, 0, line, 0, text)


def _imports_torch(node: ast.stmt) -> bool:
    if isinstance(node, ast.Import):
        return any(a.name.partition(".")[0] == "torch" for a in node.names)
    return isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch" and not node.level


def _unused(name: str, tree: ast.Module) -> str:
    """Return `name`, with a number appended if the file uses it already."""
    used = {n for node in ast.walk(tree) for n in _identifiers(node)}
    numbered = (name, *(f"{name}_{number}" for number in range(2, len(used) + 3)))
    return next(n for n in numbered if n not in used)


def _identifiers(node: ast.AST) -> Iterator[str]:
    for field in ("id", "arg", "name", "asname"):
        value = getattr(node, field, None)
        if isinstance(value, str):
            yield value.partition(".")[0]
