"""Read facts on tensors from patterns of axes in calls: `"b (h d) n -> b h n d"`, `"ij,jk->ik"`."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping
from typing import Any

from fx_lsp.syntax import Term, axis_terms
from fx_lsp.tracer.inputs.plan.facts import Facts


def visit_pattern(node: ast.Call, of: Any) -> None:
    """Record the facts that a call with a pattern among its arguments shows of the others.

    Its keyword arguments are lengths of axes. `of` returns the facts of the parameter that an expression refers to, or
    None.
    """
    texts = [text for argument in node.args if (text := _text(argument)) is not None]
    text = next((text for text in texts if axis_terms(text)), None)
    operands = [argument for argument in node.args if _text(argument) is None]
    if text is None:
        _visit_letters(node, texts, operands, of)
        return
    if isinstance(node.func, ast.Attribute) and of(node.func.value) is not None:
        operands.insert(0, node.func.value)
    axes = set(re.findall(r"\w+", text))
    lengths = {k.arg: k.value for k in node.keywords if k.arg is not None and k.arg in axes}
    values = {name: getattr(length, "value", None) for name, length in lengths.items()}
    numbers = {name: value for name, value in values.items() if type(value) is int}
    for operand, term in zip(operands, axis_terms(text) or (), strict=False):
        if (facts := of(operand)) is not None:
            take_term(facts, term, numbers)
    for facts in filter(None, map(of, lengths.values())):
        facts.uses.add("count")


def _text(node: ast.expr) -> str | None:
    """Return the value of a string literal, or None."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def take_term(facts: Facts, term: Term, lengths: Mapping[str, int]) -> None:
    """Record the facts in a term on its tensor; `lengths` are those of axes, by name."""
    open_ended = [position for position, axes in enumerate(term) if "..." in axes or axes == ("*",)]
    facts.uses.add("tensor")
    if open_ended:
        facts.min_rank = max(facts.min_rank, len(term) - len(open_ended))
    else:
        facts.rank = len(term)
    for position, axes in enumerate(term):
        if position in open_ended or len(open_ended) > 1:
            continue
        index = position - len(term) if open_ended and position > open_ended[0] else position
        fixed = [int(axis) if axis.isdigit() else lengths[axis] for axis in axes if axis.isdigit() or axis in lengths]
        if len(fixed) == len(axes):
            facts.sizes.setdefault(index, math.prod(fixed))
        elif math.prod(fixed) > 1:
            facts.multiples.setdefault(index, math.prod(fixed))


def _visit_letters(node: ast.Call, texts: list[str], operands: list[ast.expr], of: Any) -> None:
    """Record the equation of an `einsum`, in which every letter is an axis."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name != "einsum" or not texts:
        return
    terms = texts[0].replace(" ", "").split("->")[0].split(",")
    for term, operand in zip(terms, operands, strict=False):
        if (facts := of(operand)) is not None and "..." not in term:
            facts.rank = len(term)
