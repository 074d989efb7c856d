"""Write the parameters of a generated function as in the user's code, and the checks of their values."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch import nn

from fx_lsp.codegen.file.format import literal
from fx_lsp.tracer.inputs.plan.signatures import signature_of
from fx_lsp.tracer.run.call import Call, children

MAX_CHECKS = 40
"""The most values that are compared with those of the trace, besides tensors."""

MAX_SETTINGS = 100
"""The most settings of a module's parts that are compared as well: each takes a microsecond."""


@dataclass
class Signature:
    """Hold the parameters of a generated function.

    `parameters` are source text; `values` are expressions of them with their values in the trace. `receiver` is the
    object of a method, which is then the first parameter.
    """

    parameters: list[str] = field(default_factory=list[str])
    values: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    receiver: Any = None

    def text(self, extra: Sequence[str]) -> str:
        """Return the parameters with further ones, which are passed by name."""
        parameters = list(self.parameters)
        last = [parameters.pop()] if parameters and parameters[-1].startswith("**") else []
        star = [] if not extra or any(p.startswith("*") for p in parameters) else ["*"]
        return ", ".join([*parameters, *star, *extra, *last])


def signature(call: Call) -> Signature:
    """Return the parameters of the called function, with the arguments of the call."""
    function: Any = call.function
    owner = function if isinstance(function, nn.Module) else getattr(function, "__self__", None)
    written = Signature(receiver=None if isinstance(owner, type) else owner)
    readable = signature_of(function.forward if isinstance(function, nn.Module) else function)
    parameters = list(readable.parameters.values()) if readable is not None else []
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    arguments = {**dict(zip(positional, call.args, strict=False)), **call.kwargs}
    named: set[str] = set()
    before: Any = None
    for parameter in parameters:
        name, kind = parameter.name, parameter.kind
        if kind is not before:
            written.parameters += ["/"] if before is parameter.POSITIONAL_ONLY else []
            written.parameters += (
                ["*"] if kind is parameter.KEYWORD_ONLY and before is not parameter.VAR_POSITIONAL else []
            )
        before = kind
        if kind is parameter.VAR_POSITIONAL:
            written.parameters.append(f"*{name}")
            written.values.append((name, call.args[len(positional) :]))
        elif kind is parameter.VAR_KEYWORD:
            written.parameters.append(f"**{name}")
            written.values.append((name, {k: v for k, v in call.kwargs.items() if k not in named}))
        else:
            named.add(name)
            written.parameters.append(name + _default(parameter, arguments.get(name)))
            written.values.append((name, arguments.get(name, parameter.default)))
    written.parameters += ["/"] if before is inspect.Parameter.POSITIONAL_ONLY else []
    if written.receiver is not None:
        written.parameters.insert(0, "self")
    return written


def _default(parameter: inspect.Parameter, traced: Any) -> str:
    """Return the default of a parameter: the user's own if it can be written, else the traced value, else None."""
    if parameter.default is parameter.empty:
        return ""
    text = literal(parameter.default)
    return f"={text if text is not None else literal(traced) or 'None'}"


def leaves(value: Any, path: str, depth: int = 6) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a value, which are not containers, each with its expression."""
    parts = [] if isinstance(value, torch.Tensor) or depth == 0 else children(value)
    if not parts:
        yield path, value
    for key, item in parts:
        where = f"{path}.{key[1:]}" if key.startswith(".") else f"{path}[{_key(key)}]"
        yield from leaves(item, where, depth - 1)


def _key(selector: str) -> str:
    inside = selector[1:-1]
    return f'"{inside[1:-1]}"' if inside.startswith("'") and '"' not in inside else inside


def value_checks(parameters: Signature) -> list[str]:
    """Return lines that reject non-tensor values other than those that the kernels are made for."""
    pairs: list[tuple[str, Any]] = []
    for name, value in parameters.values:
        if isinstance(value, (list, tuple, Mapping)) and any(isinstance(v, torch.Tensor) for _, v in leaves(value, "")):
            pairs.append((f"len({name})", len(value)))
        pairs += [(path, item) for path, item in leaves(value, name) if not isinstance(item, torch.Tensor)]
    if isinstance(parameters.receiver, nn.Module):
        pairs += _attributes(parameters.receiver)
    lines: list[str] = []
    for path, value in pairs[:MAX_CHECKS]:
        text = literal(value)
        if isinstance(value, (FunctionType, BuiltinFunctionType)):
            lines.append(f'if getattr({path}, "__name__", "{value.__name__}") != "{value.__name__}":')
            lines.append(f'    raise ValueError("{path} is {value.__name__} in these kernels")')
        if text is None or isinstance(value, torch.device) or value is inspect.Parameter.empty:
            continue
        sign = "is not" if value is None or isinstance(value, bool) else "!="
        lines.append(f"if {path} {sign} {text}:")
        shown, asked = (part.replace("\\", "\\\\").replace('"', "'") for part in (text, path))
        braces = shown.replace("{", "{{").replace("}", "}}")
        lines.append(
            f'    raise ValueError(f"{asked} is {braces} in these kernels, not {{{path}!r}}")'.replace(
                "{" + path, "{" + path.replace('"', "'")
            )
        )
    return lines


def _attributes(module: nn.Module) -> list[tuple[str, Any]]:
    """Return the attributes of a module that its code reads, without tensors, and whether it is in training mode."""
    reads = _names_read(type(module).forward)
    attributes = [
        (f"self.{name}", value)
        for name, value in vars(module).items()
        if name in reads and name != "training" and isinstance(value, (bool, int, float, str))
    ]
    if any("training" in _names_read(type(part).forward) for part in module.modules()):
        attributes.append(("self.training", module.training))
    return attributes


def settings(receiver: Any) -> list[str]:
    """Return items of a table: the attributes of a module's parts that their code reads, `"layers.0.eps": 1e-5`; those
    on the training mode come first, because they change most.
    """
    parts = receiver.named_modules() if isinstance(receiver, nn.Module) else ()
    texts: dict[str, str] = {}
    for path, part in parts:
        for name in _settings_read(type(part)) & vars(part).keys() if re.fullmatch(r"[\w.]+", path) else ():
            value: Any = vars(part)[name]
            text = literal(value) if isinstance(value, (bool, int, float, str, tuple, type(None))) else None
            if text is not None and not name.startswith("_"):
                texts[f"{path}.{name}"] = text
    first = sorted(texts, key=lambda path: (not path.endswith(".training"), path))
    return [f'"{path}": {texts[path]}' for path in first[:MAX_SETTINGS]]


def _settings_read(kind: type[nn.Module]) -> frozenset[str]:
    """Return the names that a module's forward reads, and the methods that it calls."""
    reads = _names_read(kind.forward)
    return reads.union(*(_names_read(getattr(kind, name, None)) for name in reads))


def _names_read(function: Any) -> frozenset[str]:
    return frozenset(getattr(getattr(function, "__code__", None), "co_names", ()))
