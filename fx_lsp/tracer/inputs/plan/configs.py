"""Propose objects for parameters: by their class, with defaults, or by the attributes that are read from them."""

from __future__ import annotations

import copy
import dataclasses
import dis
import inspect
import re
import typing
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from keyword import iskeyword
from types import CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any, TypeAlias

import torch
from torch import nn

from fx_lsp.tracer.inputs.plan.facts import Facts
from fx_lsp.tracer.inputs.plan.plans import OF_FILE, Plan, Plans, ValuePlan, materialize
from fx_lsp.tracer.inputs.plan.signatures import bound, hints_of, signature_of
from fx_lsp.tracer.inputs.plan.values import (
    DICT_METHODS,
    TENSOR_ATTRIBUTES,
    Context,
    integers,
    needs_nothing,
    open_numbers,
    proposals,
)
from fx_lsp.tracer.source.likely_numbers import number_named

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def constructor(module: ModuleType) -> Callable[[type], Any]:
    """Return a function that constructs one instance of a class from its defaults and the first proposals for the rest;
    cached.
    """
    instances: dict[type, Any] = {}

    def construct(cls: type) -> Any:
        if cls in instances:
            return instances[cls]
        signature = signature_of(cls)
        arguments: dict[str, Any] = {}
        hints = hints_of(cls.__init__, module)
        for name, parameter in (signature.parameters if signature else {}).items():
            if parameter.default is not inspect.Parameter.empty or parameter.kind in _VARIADIC:
                continue
            context = Context(module, (), construct, namespaces(module, construct), constructing=True)
            hint = hints.get(name, parameter.annotation)
            plans = completed(hint) if isinstance(hint, type) else list[Plan]()
            plan = (plans or proposals(parameter, hint, Facts(), set(), context))[0]
            arguments.update(materialize(Plans(((name, plan),))).kwargs)
        instances[cls] = cls(**arguments)
        return instances[cls]

    return construct


Namespace: TypeAlias = Callable[[Facts], ValuePlan]
LENGTH = 64
"""The length of objects with a shape, if only the shape is read."""


def namespaces(module: ModuleType, construct: Callable[[type], Any]) -> Namespace:
    """Return a function that plans an object with the attributes and keys that are read of it.

    It is an instance of a class in the file that has them all; otherwise values by their names, with modules for those
    that are called, and nested objects for those with reads; a single module if only calls are read.
    """

    def namespace(facts: Facts) -> ValuePlan:
        keys, called = facts.keys, facts.called_parts
        wanted = {a for a in facts.attributes if not a.startswith("__") and a not in DICT_METHODS}
        for name, cls in list(vars(module).items()):
            if isinstance(cls, type) and not issubclass(cls, nn.Module) and wanted and wanted <= _attributes(cls):
                detail = "the class with the attributes that the code reads"
                certain = needs_nothing(cls)
                return ValuePlan(lambda cls=cls: construct(cls), f"{name}()", "annotation", detail, certain, cls)
        if called and not keys and wanted <= {*called, *dir(nn.Module)}:
            return _module_of(sorted(called))
        values = {name: of_part(name, facts.parts.get(name, Facts())) for name in sorted({*wanted, *keys} - called)}
        values |= {"shape": (LENGTH,) * (facts.rank or 1)} if "shape" in values else {}
        values |= {name: nn.Identity() for name in sorted(called)}
        if not keys:
            return settings_plan(SimpleNamespace(**values))
        return settings_plan(AttributeDict(values) if wanted else values)

    def of_part(name: str, part: Facts) -> Any:
        return namespace(part).make() if part.holds_others else value_for(name, module)

    return namespace


def _module_of(parts: Collection[str]) -> ValuePlan:
    """Return the plan for a module that has submodules of those names."""
    shown = ", ".join(f"{part!r}: nn.Identity()" for part in parts)
    return ValuePlan(
        lambda: nn.ModuleDict({part: nn.Identity() for part in parts}), f"nn.ModuleDict({{{shown}}})", "search"
    )


def completed(cls: type) -> list[ValuePlan]:
    """Return plans for an instance with likely numbers for the values that its class leaves open; empty if it leaves
    none.
    """
    numbers = {name: number_named(name) for name in open_numbers(cls)}
    shown = ", ".join(f"{name}={number}" for name, number in numbers.items())
    return [ValuePlan(lambda: cls(**numbers), f"{cls.__name__}({shown})", "search")] if numbers else []


def modules_with(module: ModuleType, construct: Callable[[type], Any]) -> Callable[[str, Facts], Sequence[Plan]]:
    """Return a function that plans instances of the modules that a file defines or imports, for a parameter of a name:
    those that have what the code reads of it, and can be called as the code calls it.

    A class with the parameter's name comes first; without that, a class that others in the file are built of does not
    count. A class whose constructor raises with guessed arguments gets no plan.
    """

    def is_constructed(cls: type) -> bool:
        with suppress(Exception):
            construct(cls)
            return True
        return False

    def plans(parameter: str, facts: Facts) -> Sequence[Plan]:
        wanted = {a for a in facts.attributes if not a.startswith("_")} - TENSOR_ATTRIBUTES - set(dir(nn.Module))
        if not wanted and "called" not in facts.uses:
            return []
        kinds = dict.fromkeys(kind for kind in list(vars(module).values()) if _is_module_of_project(kind))
        parts = frozenset[str]().union(*(_names_in(kind.__init__.__code__) for kind in kinds))
        fitting = [
            kind
            for kind in kinds
            if wanted <= _attributes(kind)
            and _takes(kind, facts)
            and (wanted or _is_named(kind, parameter) or kind.__name__ not in parts)
            and parameter not in inspect.signature(kind.__init__).parameters  # which holds another one
        ]
        fitting.sort(key=lambda kind: not _is_named(kind, parameter))
        return [
            ValuePlan(lambda kind=kind: construct(kind), f"{kind.__name__}()", "search", OF_FILE, needs_nothing(kind))
            for kind in fitting
            if is_constructed(kind)
        ][:MAX_MODULES]

    return plans


MAX_MODULES = 2
"""The most modules of a file that are tried for one parameter."""


def _is_module_of_project(kind: Any) -> bool:
    """Return True for a class of modules with a constructor in Python that is not PyTorch's."""
    is_class = isinstance(kind, type) and typing.get_origin(kind) is None
    if not is_class or not issubclass(kind, nn.Module) or kind.__module__.startswith("torch."):
        return False
    return isinstance(kind.__init__, FunctionType)


def _names_in(code: CodeType) -> frozenset[str]:
    """Return the names that a function reads, also in functions inside."""
    inside = (_names_in(part) for part in code.co_consts if isinstance(part, CodeType))
    return frozenset(code.co_names).union(*inside)


def _takes(cls: type, facts: Facts) -> bool:
    """Return True if a module can be called as the code calls a parameter, if it does."""
    signature = signature_of(cls.forward)
    arguments = [None] * (1 + facts.arguments), dict.fromkeys(facts.keywords)
    return "called" not in facts.uses or (signature is not None and bound(signature, *arguments) is not None)


def _is_named(cls: type, parameter: str) -> bool:
    """Return True if a class and a parameter have a word in common: `TextEncoder` and `encoder`."""
    words = {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", cls.__name__)}
    return bool({cls.__name__.lower(), *words} & {*parameter.lower().split("_"), parameter.lower()})


class AttributeDict(dict[str, Any]):
    """A dict whose items are also attributes, as in many configurations."""

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(f"'AttributeDict' object has no attribute '{name}'", name=name, obj=self)
        return self[name]

    def __repr__(self) -> str:
        return f"AttributeDict({super().__repr__()})"


def settings_plan(settings: dict[str, Any] | SimpleNamespace) -> ValuePlan:
    """Return the plan for such an object; every run gets a copy."""
    shown = repr(settings)
    if isinstance(settings, SimpleNamespace):
        shown = f"SimpleNamespace({shown.partition('(')[2]}"
    return ValuePlan(lambda: copy.copy(settings), shown, "search")


def with_value(plan: ValuePlan, name: str, module: ModuleType, called: nn.Module | None = None) -> ValuePlan | None:
    """Return the plan for the same object with one more value, or with `called`; None if the object cannot have any."""
    return with_attribute(plan, name, called or value_for(name, module))


def with_attribute(plan: ValuePlan, name: str, added: Any) -> ValuePlan | None:
    """Return the plan for the same object with that value; None if the object cannot have any."""
    holder = plan.make()
    if isinstance(holder, dict):
        return settings_plan(type(holder)({**holder, name: added}))
    if isinstance(holder, SimpleNamespace):
        return settings_plan(SimpleNamespace(**{**vars(holder), name: added}))
    if isinstance(holder, (torch.Tensor, nn.Module, type)) or not hasattr(holder, "__dict__"):
        return None

    def make() -> Any:
        again = copy.copy(plan.make())
        setattr(again, name, added)
        return again

    inside = plan.shown.removesuffix(")")
    return ValuePlan(make, f"{inside}{'' if inside.endswith('(') else ', '}{name}={added!r})", "search", plan.detail)


def value_for(name: str, module: ModuleType) -> Any:
    """Return a value for that name: a number, a flag, a rate."""
    spelled = re.sub(r"\W|^(?=\d)", "_", name) + "_" * iskeyword(name)  # a key may be any text
    parameter = inspect.Parameter(spelled, inspect.Parameter.KEYWORD_ONLY)

    context = Context(module, (2,), constructor(module), lambda _: settings_plan({}), constructing=True)
    plan = proposals(parameter, inspect.Parameter.empty, Facts(), set(), context)[0]
    return plan.make() if isinstance(plan, ValuePlan) else integers(name, Facts(), context)[0]


def _attributes(cls: type) -> set[str]:
    """Return the attributes of instances of a class: fields, constructor parameters, the constructor's assignments and
    class attributes.
    """
    fields = {f.name for f in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else set[str]()
    signature = signature_of(cls) if cls.__init__ is not object.__init__ else None
    code = getattr(cls.__init__, "__code__", None)
    assigned = (
        {step.argval for step in dis.get_instructions(code) if step.opname == "STORE_ATTR"} if code else set[str]()
    )
    return fields | set(signature.parameters if signature else ()) | set(dir(cls)) | assigned
