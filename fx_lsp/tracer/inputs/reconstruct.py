"""Find other constructor arguments for an object whose methods lack an attribute, or reject an argument."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from fx_lsp.tracer.failures.frames import called_in_vain
from fx_lsp.tracer.inputs.evidence.body import FUNCTIONS, constructor_facts, find_class
from fx_lsp.tracer.inputs.plan.configs import value_for, with_attribute, with_value
from fx_lsp.tracer.inputs.plan.facts import Facts
from fx_lsp.tracer.inputs.plan.plans import Plan, Plans, ValuePlan, value
from fx_lsp.tracer.inputs.plan.values import IDENTITY, RELU, functions_for, makes
from fx_lsp.tracer.inputs.solve import options
from fx_lsp.tracer.inputs.solve.attempt import Attempt, is_of_sizes, mentioned_names, missing_name
from fx_lsp.tracer.inputs.solve.path_conditions import guessed_number
from fx_lsp.tracer.inputs.solve.solver import FITS
from fx_lsp.tracer.inputs.task import Task
from fx_lsp.tracer.run.torch_calls import tensors_among
from fx_lsp.tracer.run.values.symbols import size_hint

Path: TypeAlias = tuple[str, ...]
"""A constructor parameter, or an attribute of one: `("bias",)`, `("config", "bias")`."""

_GUESSED = ("search", "annotation", "default")


def reconstructions(task: Task, instance: Any, attempt: Attempt) -> Iterator[Plans]:
    """Yield plans with other arguments for the constructor of `instance` that provide what a call lacked.

    A missing attribute is one of the object itself, whose constructor sets it under a condition, or of an object passed
    to the constructor. A number that is called may be a module. The error's words may contain the right value of a
    guessed number or string. Given arguments are not changed.
    """
    if attempt.plans.init is not None:
        yield from map(attempt.plans.with_init, _rebuilt(task, type(instance), attempt.plans.init, attempt))


def _rebuilt(task: Task, cls: type, init: Plans, attempt: Attempt) -> Iterator[Mapping[str, Plan]]:
    error = attempt.run.error
    guessed = {n: p for n, p in init.items if isinstance(p, ValuePlan) and p.source in _GUESSED}
    yield from _callables(task, cls, init, guessed, attempt)
    yield from _numbers_for_none(task, guessed, attempt)
    if is_of_sizes(attempt):
        yield from _equal_numbers(init, attempt)
    values = options.guessed(init.items)
    yield from ({n: value(other, "search", FITS)} for n, other in options.of_other_lengths(attempt, values))
    for name, have in values.items():
        yield from ({name: value(other, "search", "from an error")} for other in options.worded(error, name, have))
    missing = missing_name(error)
    if missing is None or not missing.kind:
        return
    owner, name = missing.kind, missing.name
    if owner == cls.__name__:
        for settings in _conditions(task.tree, cls, name):
            plans = _changed(guessed, settings, f"for self.{name}")
            if plans:
                yield plans
    for parameter, plan in guessed.items():
        if plan.kind == owner:
            other = with_value(plan, name, task.module)
            if other is not None:
                yield {parameter: other}


def _numbers_for_none(task: Task, guessed: Mapping[str, ValuePlan], failed: Attempt) -> Iterator[Mapping[str, Plan]]:
    """Yield numbers for arguments that are None by default, if the failing code computes with them."""
    error, mentioned = failed.run.error, mentioned_names(failed)
    if isinstance(error, TypeError) and "NoneType" in str(error):
        for name in (n for n, p in guessed.items() if p.source == "default" and p.shown == "None" and n in mentioned):
            yield {name: value(value_for(name, task.module), "search", "the code computes with it")}


def _equal_numbers(init: Plans, failed: Attempt) -> Iterator[Mapping[str, Plan]]:
    """Yield plans with one guessed number replaced by another, if the operands of the failing call have both
    as sizes.
    """
    operands = tensors_among(failed.run.failed.args, failed.run.failed.kwargs) if failed.run.failed is not None else ()
    sizes = {size_hint(size) for tensor in operands for size in tensor.shape}
    numbers = {n: number for n, plan in init.items if (number := guessed_number(plan)) in sizes and number != 1}
    for name, number in numbers.items():
        for other in sorted({*numbers.values()} - {number}, reverse=True):
            yield {name: value(other, "search", FITS)}


def _callables(
    task: Task, cls: type, init: Plans, guessed: Mapping[str, ValuePlan], failed: Attempt
) -> Iterator[Mapping[str, Plan]]:
    """Yield functions and modules for an object that is called but not callable."""
    called = called_in_vain(failed.run.error, failed.sources)
    if called is not None:
        for name in (n for n, p in guessed.items() if p.is_guess and makes(p, called.value)):
            yield from ({name: function} for function in functions_for(guessed[name], called.more))
    unset = _called(task, cls, init) if isinstance(failed.run.error, TypeError) and called is None else ()
    yield from ({name: function} for name in unset for function in (RELU, IDENTITY))


def _called(task: Task, cls: type, init: Plans) -> Iterator[str]:
    """Yield the parameters that are None by default and that methods call."""
    facts = constructor_facts(find_class(task.tree, cls.__name__))
    for name, plan in init.items:
        if getattr(plan, "shown", "") == "None" and "called" in facts.get(name, Facts()).uses:
            yield name


def _changed(guessed: Mapping[str, ValuePlan], settings: Mapping[Path, Any], why: str) -> dict[str, Plan] | None:
    """Return the plans that differ with those settings; None if a setting belongs to no guessed argument."""
    plans: dict[str, ValuePlan] = {}
    for (parameter, *attribute), wanted in settings.items():
        plan = plans.get(parameter, guessed.get(parameter))
        other = None if plan is None else value(wanted, "search", why)
        if plan is not None and attribute:
            other = with_attribute(plan, attribute[0], wanted)
        if other is None:
            return None
        plans[parameter] = other
    return dict(plans)


def _conditions(tree: ast.Module, cls: type, name: str) -> Iterator[dict[Path, Any]]:
    """Yield the conditions under which a constructor sets the attribute, one dict for each place."""
    for base in cls.__mro__:
        definition = find_class(tree, base.__name__)
        methods = definition.body if definition is not None else []
        constructor = next((m for m in methods if isinstance(m, FUNCTIONS) and m.name == "__init__"), None)
        if constructor is not None:
            parameters = [a.arg for a in (*constructor.args.args[1:], *constructor.args.kwonlyargs)]
            paths: dict[str, Path] = {parameter: (parameter,) for parameter in parameters}
            yield from _reaching(constructor.body, name, paths, {})


def _reaching(
    body: Sequence[ast.stmt], name: str, paths: dict[str, Path], so_far: dict[Path, Any]
) -> Iterator[dict[Path, Any]]:
    """Yield the conditions that lead to a statement that sets the attribute; `paths` are keyed by their text."""
    for node in body:
        if isinstance(node, ast.If):
            for branch, truth in ((node.body, True), (node.orelse, False)):
                wanted = _wanted(node.test, truth, paths)
                if wanted is not None:
                    yield from _reaching(branch, name, paths, {**so_far, **wanted})
        elif so_far and _makes(node, name):
            yield so_far
        elif isinstance(node, ast.Assign) and (path := _path(node.value, paths)) is not None:
            paths |= {ast.unparse(target): path for target in node.targets}


def _makes(statement: ast.stmt, name: str) -> bool:
    attributes: list[str] = []
    for node in ast.walk(statement):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            attributes += [node.attr] if ast.unparse(node.value) == "self" else []
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in _REGISTERS:
            attributes += [str(first.value) for first in node.args[:1] if isinstance(first, ast.Constant)]
    return name in attributes


_REGISTERS = frozenset({f"self.{word}" for word in ("register_buffer", "register_parameter", "add_module")})


def _wanted(test: ast.expr, truth: bool, paths: Mapping[str, Path]) -> dict[Path, Any] | None:
    """Return values of arguments that give a condition this truth; None if it depends on other values."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _wanted(test.operand, not truth, paths)
    if isinstance(test, ast.BoolOp):
        parts = [_wanted(part, truth, paths) for part in test.values]
        if isinstance(test.op, ast.And) != truth:
            return next((part for part in parts if part is not None), None)
        readable = [part for part in parts if part is not None]
        return {path: v for part in readable for path, v in part.items()} if len(readable) == len(parts) else None
    if (
        isinstance(test, ast.Compare)
        and len(test.ops) == 1
        and isinstance(constant := test.comparators[0], ast.Constant)
    ):
        path = _path(test.left, paths)
        same = isinstance(test.ops[0], (ast.Eq, ast.Is))
        return (
            {path: constant.value} if path is not None and same == truth and isinstance(test.ops[0], _EQUAL) else None
        )
    path = _path(test, paths)
    return None if path is None else {path: truth}


_EQUAL = (ast.Eq, ast.Is, ast.NotEq, ast.IsNot)


def _path(node: ast.expr, paths: Mapping[str, Path]) -> Path | None:
    """Return the argument that an expression refers to: `bias`, `self.bias`, `config.bias`, `getattr(config, "bias",
    …)`.
    """
    path = paths.get(ast.unparse(node))
    if path is not None:
        return path
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr" and len(node.args) > 1:
        named = node.args[1]
        attribute = named.value if isinstance(named, ast.Constant) else None
        base = paths.get(ast.unparse(node.args[0]))
    elif isinstance(node, ast.Attribute):
        attribute, base = node.attr, paths.get(ast.unparse(node.value))
    else:
        return None
    return (*base, attribute) if base is not None and len(base) == 1 and isinstance(attribute, str) else None
