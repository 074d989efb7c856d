"""Choose readable names for the nodes of a trace: the user's variables if there are any."""

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
    """Generate unique Python identifiers."""

    def __init__(self) -> None:
        self._used: set[str] = {"aten", "torch", "operator", "forward", "backward", "joint"}

    def unique(self, wish: str) -> str:
        """Return `wish` as a unique identifier; `_1`, `_2`, … is appended if it is used already."""
        name = identifier(wish)
        candidate, count = name, 0
        while candidate in self._used:
            count += 1
            candidate = f"{name}_{count}"
        self._used.add(candidate)
        return candidate


def identifier(text: str) -> str:
    """Return `text` as a Python identifier: `self.q_proj.weight` becomes `q_proj_weight`, `xs[0]` becomes `xs_0`."""
    name = re.sub(r"\W+|__+", "_", text.removeprefix("self.")).strip("_") or "value"
    if name[0].isdigit():
        name = f"_{name}"
    return f"{name}_" if keyword.iskeyword(name) or (hasattr(builtins, name) and name not in _FINE) else name


_FINE = frozenset({"input", "sum", "max", "min", "abs", "pow", "all", "any", "round", "slice"})


Assigned: TypeAlias = "str | tuple[str, ...]"
"""The variable that a value is bound to, or those of its parts."""


def assigned_names(tree: ast.Module, file: str) -> dict[Span, Assigned]:
    """Return the variable of each expression by its span: of `name = expression`; several for `a, b = expression`."""
    names: dict[Span, Assigned] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            target, value = node.target, node.value
        else:
            continue
        for one, bound in _pairs(target, value):
            if isinstance(one, ast.Name):
                names[_span(bound, file)] = one.id
            elif isinstance(one, (ast.Tuple, ast.List)):
                several = [item.id for item in one.elts if isinstance(item, ast.Name)]
                if len(several) == len(one.elts) > 1:  # a tensor is unpacked at the span of the names
                    names[_span(bound, file)] = names[_span(one, file)] = tuple(several)
    return names


def _span(node: ast.expr, file: str) -> Span:
    end = (node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
    return Span(file, node.lineno, node.col_offset, *end)


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """Return targets with their values, as far as written: `a, b = x, y` has two."""
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
    """Return the variable that each of the forward `nodes` was bound to.

    A statement's nodes are a contiguous run from its right-hand side; its value is the last of them that is used
    outside the run. (Later nodes in the run, `detach` and `t`, are for backward alone.) If several variables are bound,
    their values are the parts of one operation's result.
    """
    variable_of: dict[torch.fx.Node, str] = {}
    open_runs: dict[Span, list[torch.fx.Node]] = {}
    forward = set(nodes)

    def close(span: Span) -> None:
        run = open_runs.pop(span)
        members = set(run)
        used = [n for n in run if any(u.op == "output" or (u in forward and u not in members) for u in n.users)]
        variables = assigned[span]
        if isinstance(variables, str):
            variable_of.setdefault((used or run)[-1], variables)
        else:
            for node, number in _parts(used, len(variables)).items():
                if variables[number].strip("_"):
                    variable_of.setdefault(node, variables[number])

    for node in nodes:
        current = [s for s in chains.get(node, ()) if s in assigned]
        for span in [s for s in open_runs if s not in current]:
            close(span)
        for span in current:
            open_runs.setdefault(span, []).append(node)
    for span in list(open_runs):
        close(span)
    return variable_of


def _parts(nodes: Sequence[torch.fx.Node], count: int) -> dict[torch.fx.Node, int]:
    """Return the number of each node among `count` parts of one value; {} if they are not such parts."""
    if not nodes or any(len(n.args) < 2 for n in nodes):
        return {}
    target, whole = nodes[0].target, nodes[0].args[0]
    if any(n.target != target or n.args[0] != whole for n in nodes):
        return {}
    if target is operator.getitem:
        results: Any = whole.meta.get("val") if isinstance(whole, torch.fx.Node) else None
        has_parts = isinstance(results, (tuple, list)) and len(results) == count
        return {n: cast(int, n.args[1]) for n in nodes} if has_parts else {}
    is_unpacked = target in (torch.ops.aten.select.int, torch.ops.aten.slice.Tensor) and _in_order(nodes)
    return {n: i for i, n in enumerate(nodes)} if is_unpacked and len(nodes) == count else {}


def _in_order(slices: Sequence[torch.fx.Node]) -> bool:
    """Return True if slices of a tensor are consecutive along one dimension."""
    starts = [n.args[2] if len(n.args) > 2 else None for n in slices]
    numbers = [start for start in starts if isinstance(start, int)]
    along_one = all(n.args[1] == slices[0].args[1] for n in slices)
    return along_one and len(numbers) == len(starts) and numbers == sorted(numbers)


def returned_names(tree: ast.Module, name: str) -> list[str] | None:
    """Return the names in the last `return a, b` of a function, or None if it returns something else."""
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
