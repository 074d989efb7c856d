"""Find the flags of a target, on which its code branches, and their untried values."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fx_lsp.model import Unreached
from fx_lsp.tracer.inputs.candidate import Candidate
from fx_lsp.tracer.inputs.evidence.body import find_class
from fx_lsp.tracer.inputs.plan.plans import Plan, Plans, ValuePlan, value

ANOTHER_VALUE = "another value of a flag"
"""The detail of a flag's value in a variant."""
_OPEN = ("default", "annotation", "search")
"""The sources of values that neither a program nor the author gave."""


@dataclass(frozen=True)
class Flag:
    """Hold another value of a parameter on which code branches: `plans` call the target, or construct its object, with
    it.
    """

    parameter: str
    value: bool | str
    default: str
    plans: Plans

    @property
    def name(self) -> str:
        """Return the flag as a keyword argument: `balance=True`, `mode=sum`."""
        return f"{self.parameter}={self.value}"


def flags(candidate: Candidate, plans: Plans, code: Sequence[Unreached]) -> Iterator[Flag]:
    """Yield the other values of the flags that `plans` leave unchanged: those of the call, then of the constructor.

    `code` is the code that a run of `plans` did not reach.
    """
    names = {name for name, _ in plans.items}
    deciding = {operand.text for unreached in code for operand in unreached.operands}
    if candidate.node is not None:
        for name, plan in plans.items:
            for other in _other_values(candidate.node, {name}, plan, deciding):
                yield Flag(name, other, _shown(plan), plans.with_plan(name, _plan(other)))
    owner = candidate.subject.owner
    definition = find_class(candidate.task.tree, owner.__name__) if owner is not None else None
    if definition is None or plans.init is None:
        return
    for name, plan in plans.init.items:
        for other in _other_values(definition, {name, *_attributes(definition, name)}, plan, deciding):
            if name not in names:
                yield Flag(name, other, _shown(plan), plans.with_init({name: _plan(other)}))


def open_options(candidate: Candidate, init: Plans) -> list[str]:
    """Return the parameters of the constructor that are None by default and that branches of the class test: nobody can
    list what callers pass in their place, such as a layer.
    """
    owner = candidate.subject.owner
    definition = find_class(candidate.task.tree, owner.__name__) if owner is not None else None
    if definition is None:
        return []
    read = {ast.unparse(p) for test in _tests(definition) for p in ast.walk(test) if isinstance(p, ast.expr)}
    absent = (n for n, p in init.items if isinstance(p, ValuePlan) and p.source == "default" and p.shown == "None")
    return [name for name in absent if not read.isdisjoint({name, *_attributes(definition, name)})]


def _plan(other: bool | str) -> Plan:
    return value(other, "annotation", ANOTHER_VALUE)


def _shown(plan: Plan) -> str:
    return plan.shown if isinstance(plan, ValuePlan) else ""


def _other_values(node: ast.AST, texts: set[str], plan: Plan, deciding: set[str]) -> list[bool | str]:
    """Return the values that branches of `node` test for besides that of `plan`: the other truth value, or the texts
    that a text is compared with. `texts` are the expressions with the value, `deciding` those that decided about
    unreached code.
    """
    if not isinstance(plan, ValuePlan) or plan.source not in _OPEN or plan.detail == ANOTHER_VALUE:
        return []
    if plan.kind not in ("bool", "str", "NoneType"):
        return []
    tests = list(_tests(node))
    if plan.kind == "bool":
        read = {ast.unparse(part) for test in tests for part in ast.walk(test) if isinstance(part, ast.expr)}
        return [] if texts.isdisjoint(read | deciding) else [not plan.make()]
    compared = (constant for test in tests for constant in _compared(test, texts))
    return [constant for constant in dict.fromkeys(compared) if constant != plan.make()]


def _tests(node: ast.AST) -> Iterator[ast.expr | ast.Match]:
    """Yield the conditions of branches below `node`."""
    for part in ast.walk(node):
        if isinstance(part, (ast.If, ast.IfExp, ast.While)):
            yield part.test
        elif isinstance(part, ast.Match):
            yield part


def _compared(test: ast.expr | ast.Match, texts: set[str]) -> Iterator[str]:
    """Yield the texts that a condition compares one of the expressions `texts` with."""
    if isinstance(test, ast.Match):
        if ast.unparse(test.subject) in texts:
            parts = (part for case in test.cases for part in ast.walk(case.pattern))
            yield from (text for part in parts if isinstance(part, ast.MatchValue) for text in _texts(part.value))
        return
    for part in ast.walk(test):
        if isinstance(part, ast.Compare):
            sides = [part.left, *part.comparators]
            if any(ast.unparse(side) in texts for side in sides):
                yield from (text for side in sides for text in _texts(side))


def _texts(node: ast.expr) -> Iterator[str]:
    """Yield the text of a literal, or those of a literal collection."""
    parts = node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else [node]
    yield from (part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str))


def _attributes(definition: ast.AST, name: str) -> Iterator[str]:
    """Yield the attributes that store a parameter unchanged: `self.gated` of `self.gated = gated`."""
    for part in ast.walk(definition):
        if isinstance(part, ast.Assign) and isinstance(part.value, ast.Name) and part.value.id == name:
            yield from (ast.unparse(target) for target in part.targets if isinstance(target, ast.Attribute))
