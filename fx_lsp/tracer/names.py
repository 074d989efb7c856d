"""Readable names for the nodes of a trace: the user's own variables where there are any."""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections.abc import Iterable, Sequence

import torch

from fx_lsp.model import Span
from fx_lsp.tracer.provenance import Chain


class Namer:
    """Hands out unique Python identifiers."""

    def __init__(self) -> None:
        self._taken: set[str] = {"aten", "torch", "operator", "forward", "backward", "joint"}

    def unique(self, wish: str) -> str:
        """`wish` as an identifier nobody has yet; `_1`, `_2`, … is appended where it is taken."""
        name = identifier(wish)
        candidate, count = name, 0
        while candidate in self._taken:
            count += 1
            candidate = f"{name}_{count}"
        self._taken.add(candidate)
        return candidate


def identifier(text: str) -> str:
    """`text` as a Python identifier: `self.q_proj.weight` gives `q_proj_weight`, `xs[0]` gives `xs_0`."""
    name = re.sub(r"\W+|__+", "_", text.removeprefix("self.")).strip("_") or "value"
    if name[0].isdigit():
        name = f"_{name}"
    return f"{name}_" if keyword.iskeyword(name) or (hasattr(builtins, name) and name not in _FINE) else name


_FINE = frozenset({"input", "sum", "max", "min", "abs", "pow", "all", "any", "round", "slice"})


def assigned_names(tree: ast.Module, file: str) -> dict[Span, str]:
    """For each statement `name = expression`: the expression's span to the name."""
    names: dict[Span, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            target, value = node.target, node.value
        else:
            continue
        if isinstance(target, ast.Name):
            end = (value.end_lineno or value.lineno, value.end_col_offset or value.col_offset)
            names[Span(file, value.lineno, value.col_offset, *end)] = target.id
    return names


def variables_of(
    nodes: Sequence[torch.fx.Node], chains: dict[torch.fx.Node, Chain], assigned: dict[Span, str]
) -> dict[torch.fx.Node, str]:
    """The variable that each of the forward `nodes` was bound to.

    A statement's nodes are an uninterrupted run that came from its right-hand side; its value is the last of them that
    is used outside the run. (What follows it there, `detach` and `t`, is made for backward alone.)
    """
    found: dict[torch.fx.Node, str] = {}
    open_runs: dict[Span, list[torch.fx.Node]] = {}
    forward = set(nodes)

    def close(span: Span) -> None:
        run = open_runs.pop(span)
        members = set(run)
        used = [n for n in run if any(u.op == "output" or (u in forward and u not in members) for u in n.users)]
        found.setdefault((used or run)[-1], assigned[span])

    for node in nodes:
        current = [s for s in chains.get(node, ()) if s in assigned]
        for span in [s for s in open_runs if s not in current]:
            close(span)
        for span in current:
            open_runs.setdefault(span, []).append(node)
    for span in list(open_runs):
        close(span)
    return found


def returned_names(tree: ast.Module, name: str) -> list[str] | None:
    """The names in the last `return a, b` of a function, or None where it returns something else."""
    function = _find(tree.body, name.split("."))
    returns = [n for n in ast.walk(function) if isinstance(n, ast.Return)] if function else []
    if not returns:
        return None
    value = max(returns, key=lambda r: r.lineno).value
    items: Iterable[ast.expr] = value.elts if isinstance(value, ast.Tuple) else [value] if value else []
    names = [i.id if isinstance(i, ast.Name) else "" for i in items]
    return names if any(names) else None


def _find(body: Sequence[ast.stmt], path: list[str]) -> ast.stmt | None:
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node.name == path[0]:
            return node if len(path) == 1 else _find(node.body, path[1:])
    return None
