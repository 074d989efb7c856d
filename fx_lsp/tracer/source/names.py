"""Readable names for the nodes of a trace: the user's own variables where there are any."""

from __future__ import annotations

import ast
import builtins
import keyword
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import torch

from fx_lsp.model import Span
from fx_lsp.tracer.source.provenance import Chain


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


Assigned: TypeAlias = "str | tuple[str, ...]"
"""The variable that a value is bound to, or those that its parts are."""


def assigned_names(tree: ast.Module, file: str) -> dict[Span, Assigned]:
    """For each statement `name = expression`: the expression's span to the name; for `a, b = expression` to several."""
    names: dict[Span, Assigned] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            target, value = node.target, node.value
        else:
            continue
        for one, made in _pairs(target, value):
            if isinstance(one, ast.Name):
                names[_span(made, file)] = one.id
            elif isinstance(one, (ast.Tuple, ast.List)):
                several = [item.id for item in one.elts if isinstance(item, ast.Name)]
                if len(several) == len(one.elts) > 1:
                    names[_span(made, file)] = names[_span(one, file)] = tuple(several)  # a tensor is unpacked at these
    return names


def _span(node: ast.expr, file: str) -> Span:
    end = (node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
    return Span(file, node.lineno, node.col_offset, *end)


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """Targets with what each is bound to, as far as that is written down: `a, b = x, y` binds two."""
    if isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List)):
        starred = any(isinstance(e, ast.Starred) for e in (*target.elts, *value.elts))
        if len(target.elts) == len(value.elts) and not starred:
            return [pair for t, v in zip(target.elts, value.elts, strict=True) for pair in _pairs(t, v)]
    return [(target, value)]


def variables_of(
    nodes: Sequence[torch.fx.Node],
    chains: dict[torch.fx.Node, Chain],
    assigned: Mapping[Span, Assigned],
) -> dict[torch.fx.Node, str]:
    """The variable that each of the forward `nodes` was bound to.

    A statement's nodes are an uninterrupted run that came from its right-hand side; its value is the last of them that
    is used outside the run. (What follows it there, `detach` and `t`, is made for backward alone.) Where several
    variables are bound, their values are the parts that one operation gives.
    """
    found: dict[torch.fx.Node, str] = {}
    open_runs: dict[Span, list[torch.fx.Node]] = {}
    forward = set(nodes)

    def close(span: Span) -> None:
        run = open_runs.pop(span)
        members = set(run)
        used = [n for n in run if any(u.op == "output" or (u in forward and u not in members) for u in n.users)]
        variables = assigned[span]
        if isinstance(variables, str):
            found.setdefault((used or run)[-1], variables)
        else:
            for node, number in _parts(used, len(variables)).items():
                if variables[number].strip("_"):
                    found.setdefault(node, variables[number])

    for node in nodes:
        current = [s for s in chains.get(node, ()) if s in assigned]
        for span in [s for s in open_runs if s not in current]:
            close(span)
        for span in current:
            open_runs.setdefault(span, []).append(node)
    for span in list(open_runs):
        close(span)
    return found


def _parts(nodes: Sequence[torch.fx.Node], count: int) -> dict[torch.fx.Node, int]:
    """Which of `count` parts of a tensor, or of the results of an operation, each node is; {} where they are none."""
    if not nodes or any(len(n.args) < 2 or (n.target, n.args[0]) != (nodes[0].target, nodes[0].args[0]) for n in nodes):
        return {}
    target, whole = nodes[0].target, nodes[0].args[0]
    if target is operator.getitem:
        results: Any = whole.meta.get("val") if isinstance(whole, torch.fx.Node) else None
        known = isinstance(results, (tuple, list)) and len(results) == count
        return {n: cast(int, n.args[1]) for n in nodes} if known else {}
    if target not in (torch.ops.aten.select.int, torch.ops.aten.slice.Tensor) or len(nodes) != count:
        return {}
    along, places = [n.args[1] for n in nodes], [n.args[2] if len(n.args) > 2 else None for n in nodes]
    found = [p for p in places if isinstance(p, int)]
    in_order = along == along[:1] * count and len(found) == count and found == sorted(found)
    return {n: i for i, n in enumerate(nodes)} if in_order else {}


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
