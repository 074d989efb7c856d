"""Write the spec of a hint into the text: as an annotation of jaxtyping if the file imports one, else as a comment."""

from __future__ import annotations

import ast
import re
import symtable
from typing import Any

from fx_lsp.features.source.findings import insertion
from fx_lsp.features.source.pin import TextChange
from fx_lsp.syntax import FUNCTIONS, FunctionNode, own_nodes, parse, tree_of, unparse

_SPEC = re.compile(r"(?:: |-> )?~?(?P<dtype>[a-z]+)\d+\w*\[(?P<sizes>[^\[\]]*)\](?:\([^()]*\))?")
_FLOATS, _INTEGERS = ("Float", "Inexact", "Num", "Shaped"), ("Integer", "Num", "Shaped")
_COMPLEX, _INT, _UINT = ("Complex", *_FLOATS[1:]), ("Int", *_INTEGERS), ("UInt", *_INTEGERS)
_KINDS = {"f": _FLOATS, "bf": _FLOATS, "c": _COMPLEX, "i": _INT, "u": _UINT, "b": ("Bool", "Shaped")}
"""The names in jaxtyping for each kind of dtype, the narrowest first."""


def annotating(text: str, line: int, col: int, label: str) -> TextChange | None:
    """Return the edit that writes the label of a hint at a place. None if the label is no spec, or if each edit would
    change what the program computes.
    """
    spec, tree = _SPEC.fullmatch(label), tree_of(text)
    if spec is None or tree is None:
        return None
    here = [node for node in ast.walk(tree) if _end(_hinted(node)) == (line, col)]
    annotation = _annotation(tree, spec, line) if here else None
    change = _written(text, here[0], annotation) if annotation else None
    if change is not None and _is_annotated(text, change):
        return change
    row = text.split("\n")[line - 1].rstrip()
    if "#" in row or any(isinstance(node, ast.arg) for node in here):
        return None
    names = (n for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    bound = "".join(f"{n.id}: " for n in names if _end(n) == (line, col) and not row.lstrip().startswith(f"{n.id} ="))
    return insertion(text, line, len(row), f"  # {bound}{label.lstrip('->: ')}")


def _hinted(node: ast.AST) -> ast.expr | ast.arg | None:
    """Return the part that the hint of a binding or of a function's only result follows; None for any other node."""
    match node:
        case ast.Assign(targets=[ast.Name() as target]):
            return target
        case ast.AnnAssign():
            return node.annotation
        case ast.arg():
            return node
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            ends = [n for n in own_nodes(node) if isinstance(n, (ast.Return, ast.Yield, ast.YieldFrom))]
            return ends[0].value if len(ends) == 1 and isinstance(ends[0], ast.Return) else None
        case _:
            return None


def _written(text: str, node: ast.AST, annotation: str) -> TextChange | None:
    """Return the edit that annotates a binding or a result; None if it is annotated with more than a tensor."""
    old = node.returns if isinstance(node, FUNCTIONS) else getattr(node, "annotation", None)
    if old is not None:
        is_tensor = unparse(old) in ("Tensor", "torch.Tensor")
        return TextChange(old.lineno, old.col_offset, *_end(old), annotation) if is_tensor else None
    place, before = (_end_of_head(text, node), " -> ") if isinstance(node, FUNCTIONS) else (_end(_hinted(node)), ": ")
    return TextChange(*place, *place, before + annotation)


def _end_of_head(text: str, function: FunctionNode) -> tuple[int, int]:
    """Return the place of the last colon before the body of a function."""
    lines, first = text.encode().split(b"\n"), function.body[0]
    lines[first.lineno - 1] = lines[first.lineno - 1][: first.col_offset]
    line = next(n for n in range(first.lineno, 0, -1) if b":" in lines[n - 1])
    return line, lines[line - 1].rindex(b":")


def _annotation(tree: ast.Module, spec: re.Match[str], line: int) -> str | None:
    """Return a spec as an annotation of jaxtyping with the names that the file imports above a line; None without them.

    Only named sizes are written: a number is that of one call.
    """
    local: dict[tuple[str | None, str], str] = {}
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)) and node.lineno < line:
            module = node.module if isinstance(node, ast.ImportFrom) else ""
            local |= {(module, name.name): name.asname or name.name for name in node.names}
    whole, torch = local.get(("", "jaxtyping")), local.get(("", "torch"))
    array = local.get(("torch", "Tensor")) or (f"{torch}.Tensor" if torch else None)
    names = (local.get(("jaxtyping", n)) or (whole and f"{whole}.{n}") for n in _KINDS.get(spec["dtype"], ()))
    kind = next(filter(None, names), None)
    sizes = [size.partition("=")[0] for size in spec["sizes"].split(", ") if size]
    written = " ".join(size if size.isidentifier() else "_" for size in sizes)
    return f'{kind}[{array}, "{written}"]' if kind and array else None


def _end(node: ast.expr | ast.arg | None) -> tuple[int, int]:
    return (0, 0) if node is None else (node.end_lineno or 0, node.end_col_offset or 0)


def _is_annotated(text: str, change: TextChange) -> bool:
    """Return True if a change only adds or replaces an annotation that Python allows."""
    changed = change.applied(text)
    try:
        symtable.symtable(changed, "<text>", "exec")  # it knows which names are global
        before, after = parse(text), parse(changed)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return ast.dump(before) != ast.dump(after) and ast.dump(_Plain().visit(before)) == ast.dump(_Plain().visit(after))


class _Plain(ast.NodeTransformer):
    """Remove the annotations of functions and variables; those in a class may be its fields."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        return node if node.value is None else ast.Assign([node.target], node.value)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        for child in node.body:
            if not isinstance(child, ast.AnnAssign):
                self.visit(child)
        return node

    def visit_FunctionDef(self, node: Any) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(node.arg)
