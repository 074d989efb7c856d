"""Objects that parameters ask for by their class: configurations and the like, made from defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from fx_lsp.tracer.inputs.body import Facts
from fx_lsp.tracer.inputs.plan import Plans, materialize
from fx_lsp.tracer.inputs.propose import Context, proposals
from fx_lsp.tracer.inputs.signatures import hints_of, signature_of

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def constructor(module: ModuleType) -> Callable[[type], Any]:
    """Makes one instance of a class from its defaults and the first proposals for the rest; the same one every time."""
    made: dict[type, Any] = {}

    def construct(cls: type) -> Any:
        if cls in made:
            return made[cls]
        signature = signature_of(cls)
        arguments: dict[str, Any] = {}
        hints = hints_of(cls.__init__, module)
        for name, parameter in (signature.parameters if signature else {}).items():
            if parameter.default is not inspect.Parameter.empty or parameter.kind in _VARIADIC:
                continue
            context = Context(module, (), construct, constructing=True)
            plan = proposals(parameter, hints.get(name, parameter.annotation), Facts(), set(), context)[0]
            arguments.update(materialize(Plans(((name, plan),))).kwargs)
        made[cls] = cls(**arguments)
        return made[cls]

    return construct
