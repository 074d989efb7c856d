"""Convert written inputs to plans: comments, settings, recorded calls, conventions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

from torch import nn

from fx_lsp.messages.texts import UNMAKABLE_VALUE, UNPARSED_COMMENT, UNPARSED_INPUTS
from fx_lsp.model import Failure, InputSource, Span, WrittenInputs
from fx_lsp.specs import MODE, Comment, CommentError, TensorSpec, parse_comment
from fx_lsp.tracer.failures.exceptions import sentence
from fx_lsp.tracer.inputs.plan.offer import Offer, Written
from fx_lsp.tracer.inputs.plan.plans import Plan, Plans, materialize, plan_of, plan_of_made, value
from fx_lsp.tracer.inputs.plan.signatures import bound

Evaluate = Callable[[str], Any]

HINTS = (16, 24, 40, 48, 56, 72, 80, 88, 104)
"""The numbers for named sizes: a search tries them late, and they divide well."""


def written_offers(inputs: tuple[WrittenInputs, ...], evaluate: Evaluate) -> Written | Failure:
    """Return the parsed written inputs; a `Failure` (kind "comment") for malformed ones."""
    author, recorded = Offer({}), list[Offer]()
    named: dict[str, int] = {}
    spans: dict[str, Span | None] = {}
    for item in inputs:
        parsed = parse_comment(item.text)
        if isinstance(parsed, CommentError):
            if item.source == "recorded":
                continue
            span = _at(item, parsed)
            if item.source == "comment":
                return UNPARSED_COMMENT.failure(span, error=parsed.message)
            return UNPARSED_INPUTS.failure(span, place=item.detail or "the settings", error=parsed.message)
        offer = _offer(parsed, item.source, item.detail, evaluate)
        if item.source == "recorded":
            recorded.append(offer)
            continue
        author = author.over(offer)
        init = (f"init.{name}" for name in parsed.init or ())
        for name in (*parsed.args, *init, *((MODE,) if parsed.training is not None else ())):
            spans.setdefault(name, item.span)
        _collect_names(parsed.args, named)
    return Written(author, tuple(recorded), named, spans)


def unmakable(written: Written) -> Failure | None:
    """Return the failure of the author's first value that cannot be created; call it inside the fake mode."""
    init = ((f"init.{name}", plan) for name, plan in (written.author.init or {}).items())
    for name, plan in (*init, *written.author.args.items()):
        try:
            materialize(Plans(((name, plan),)), written.named)
        except Exception as error:
            return UNMAKABLE_VALUE.failure(written.spans[name], name=name, error=sentence(error))
    return None


def _offer(parsed: Comment, source: InputSource, detail: str, evaluate: Evaluate) -> Offer:
    args = {n: plan_of(v, source, evaluate, detail) for n, v in parsed.args.items()}
    init = None if parsed.init is None else {n: plan_of(v, source, evaluate, detail) for n, v in parsed.init.items()}
    mode = None if parsed.training is None else value(parsed.training, source, detail)
    context = replace(parsed.context, place=detail) if parsed.context is not None else None
    return Offer(args, init, mode=mode, context=context)


def _at(written: WrittenInputs, error: CommentError) -> Span | None:
    span = written.span
    if span is None or span.line != span.end_line:
        return span
    start = span.end_col - len(written.text.encode())
    return replace(span, col=start + error.col, end_col=max(start + error.end_col, start + error.col + 1))


def _collect_names(specs: Any, named: dict[str, int]) -> None:
    if isinstance(specs, TensorSpec):
        for size in specs.sizes:
            if isinstance(size, str) and size not in named:
                named[size] = HINTS[len(named) % len(HINTS)]
    elif isinstance(specs, (list, tuple)):
        for item in specs:
            _collect_names(item, named)
    elif isinstance(specs, dict):
        _collect_names(list(specs.values()), named)


def conventions(
    module: ModuleType, forward: inspect.Signature, constructor: inspect.Signature | None
) -> Iterator[Offer]:
    """Yield offers from `get_inputs()`, `get_init_inputs()` (both for modules) and `example_inputs` of the file.

    `constructor` is None for functions. Values that raise or do not bind to the signatures are skipped.
    """
    if constructor is not None:
        args = _called(module, "get_inputs", forward)
        init = _called(module, "get_init_inputs", constructor)
        if args is not None or init is not None:
            yield Offer(args or {}, init, final=args is not None and _only_module(module))
    if hasattr(module, "example_inputs"):
        args = _called(module, "example_inputs", forward)
        if args is not None:
            yield Offer(args)


def _called(module: ModuleType, name: str, signature: inspect.Signature) -> dict[str, Plan] | None:
    maker = getattr(module, name, None)
    try:
        inputs: Any = maker() if callable(maker) else maker
    except Exception:
        return None
    if not isinstance(inputs, (list, tuple, dict)):
        return None
    return bound_plans(signature, inputs, "convention", f"{name}()" if callable(maker) else name)


def bound_plans(
    signature: inspect.Signature, arguments: Any, source: InputSource, detail: str
) -> dict[str, Plan] | None:
    """Return plans for arguments (a sequence, a dict by name, or both) by the parameters they bind to.

    None if they do not bind.
    """
    if isinstance(arguments, dict):
        bindings = bound(signature, (), arguments)
    else:
        bindings = bound(signature, arguments, {})
        if _is_call(signature, arguments, fits=bindings is not None):
            bindings = bound(signature, *arguments)
    if bindings is None:
        return None
    plans: dict[str, Plan] = {}
    for name, argument in bindings.arguments.items():
        if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            plans.update({n: plan_of_made(v, source, detail) for n, v in argument.items()})
        else:
            plans[name] = plan_of_made(argument, source, detail)
    return plans


def _is_call(signature: inspect.Signature, arguments: Sequence[Any], *, fits: bool) -> bool:
    """Return True if `arguments` is `[args, kwargs]`, as in some files, and not two arguments, a list and a dict.

    `fits` is True if it can be two arguments.
    """
    match arguments:
        case [list() | tuple() as args, dict() as kwargs] if all(isinstance(key, str) for key in kwargs):
            named = kwargs.keys() <= signature.parameters.keys() if kwargs else not args
            return (named or not fits) and bound(signature, args, kwargs) is not None
        case _:
            return False


def _only_module(module: ModuleType) -> bool:
    """Return True if the file defines exactly one nn.Module class, to which its `get_inputs()` must belong."""
    classes = [
        v
        for v in vars(module).values()
        if isinstance(v, type) and issubclass(v, nn.Module) and v.__module__ == module.__name__
    ]
    return len(classes) == 1
