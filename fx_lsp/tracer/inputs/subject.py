"""Determine the callable of a target: a function, or a method of an instance of its class."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from inspect import getattr_static
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import nn

from fx_lsp.messages.targets import NOT_A_MODULE
from fx_lsp.model import Failure
from fx_lsp.tracer.inputs.plan.plans import Plans, materialize
from fx_lsp.tracer.inputs.plan.signatures import apply_of, signature_of
from fx_lsp.tracer.inputs.task import Task
from fx_lsp.tracer.run.call import Call
from fx_lsp.tracer.run.callables import innermost
from fx_lsp.tracer.run.dependence import Dependence


@dataclass(frozen=True)
class Subject:
    """Hold the callable of a target: `function` itself, or (with `owner`) a method of an instance that `bind` sets.

    `definition` is the qualified name of the `def` that runs.
    """

    definition: str
    function: Callable[..., Any] | None = None
    owner: type | None = None
    attribute: str = ""
    modules: dict[str, nn.Module] = field(default_factory=dict[str, nn.Module])

    @property
    def described(self) -> Callable[..., Any]:
        """Return the callable with the signature; `parameters` skips `self`, if there is one."""
        return self.function if self.function is not None else getattr(self.owner, self.attribute)

    def parameters(self) -> inspect.Signature | None:
        """Return the signature of the call, without `self`; None if Python cannot read one."""
        signature = signature_of(self.described)
        if signature is None or self.owner is None:
            return signature
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    def call(self, plans: Plans, sizes: Mapping[str, Any]) -> tuple[Call, Dependence]:
        """Return the call with arguments created from plans, with named `sizes`, and the input of each tensor."""
        arguments = materialize(plans, sizes)
        names = tuple(n for n, _ in plans.items if n in plans.positional)
        held = {**self.modules, **arguments.modules}
        return Call(self.described, arguments.args, arguments.kwargs, held, names), arguments.dependence

    def bind(self, instance: Any) -> Subject:
        """Return the subject as a callable of that instance; a module is called itself, so that its hooks run.

        An instance of a subclass that overrides the method still runs that of this class.
        """
        if self.owner is None:
            return self
        is_module = isinstance(instance, nn.Module)
        own, other = (getattr_static(kind, self.attribute, None) for kind in (self._class_of(instance), type(instance)))
        if isinstance(own, FunctionType) and own is not other:
            function = MethodType(own, instance)
        elif is_module and self.attribute == "forward":
            function = instance
        else:
            function = getattr(instance, self.attribute)
        return dataclasses.replace(self, function=function, modules={"": instance} if is_module else {})

    def _class_of(self, instance: Any) -> type:
        """Return the target's class among the instance's bases: a program may have loaded the file again."""
        assert self.owner is not None
        name = self.owner.__qualname__
        same = (kind for kind in type(instance).__mro__ if kind.__qualname__ == name)
        return next((kind for kind in same if kind.__module__ == self.owner.__module__), type(instance))


def subject_of(task: Task, target: Any) -> Subject | Failure:
    request = task.request
    if request.kind == "module":
        if isinstance(target, nn.Module):
            return Subject(f"{request.name}.forward", target, modules={"": target})
        if not (isinstance(target, type) and issubclass(target, nn.Module)):
            return NOT_A_MODULE.failure(name=request.name)
        return Subject(f"{request.name}.forward", owner=target, attribute="forward")
    if request.kind == "method":
        owner: Any = task.module
        *path, name = request.name.split(".")
        for part in path:
            owner = getattr(owner, part)
        bound = isinstance(inspect.getattr_static(owner, name), (staticmethod, classmethod))
        if isinstance(owner, type) and not bound:
            return Subject(request.name, owner=owner, attribute=name)
    if isinstance(target, type) and issubclass(target, torch.autograd.Function):
        return Subject(f"{request.name}.forward", apply_of(target))
    if isinstance(target, partial):
        return Subject(getattr(innermost(target), "__qualname__", request.name), target)
    return Subject(request.name, target)
