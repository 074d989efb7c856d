"""Inspect the frames of an error: expressions, their values, and the call that PyTorch rejected."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from types import BuiltinMethodType, FrameType, TracebackType
from typing import Any

import torch

from fx_lsp.tracer.run.torch_calls import FailedCall
from fx_lsp.tracer.source.expressions import expression
from fx_lsp.tracer.source.provenance import Sources


def tracebacks(error: BaseException | None, sources: Sources) -> list[TracebackType]:
    """Return the tracebacks of an error in code other than PyTorch's, the innermost first."""
    traceback = error.__traceback__ if error is not None else None
    of_users: list[TracebackType] = []
    while traceback is not None:
        if sources.rank(traceback.tb_frame.f_code.co_filename) < 2:
            of_users.append(traceback)
        traceback = traceback.tb_next
    return of_users[::-1]


def expressions_raising(error: BaseException | None, sources: Sources) -> Iterator[tuple[FrameType, ast.expr]]:
    """Yield the expressions that were running at an error, the innermost first, with frames."""
    for traceback in tracebacks(error, sources):
        node = expression_at(traceback, sources)
        if node is not None:
            yield traceback.tb_frame, node


def expression_at(traceback: TracebackType, sources: Sources) -> ast.expr | None:
    """Return the expression that was running in a frame of a traceback, or None."""
    code = traceback.tb_frame.f_code
    span = sources.span(code, traceback.tb_lasti, traceback.tb_lineno)
    return expression(span, [line.rstrip("\n") for line in linecache.getlines(code.co_filename)])


def value_in(node: ast.expr, frame: FrameType) -> Any:
    """Return the value of an expression in a frame, if it only calls functions that return sizes; else None."""
    calls = [n.func for n in ast.walk(node) if isinstance(n, ast.Call)]
    if any((f.id if isinstance(f, ast.Name) else getattr(f, "attr", "")) not in _HARMLESS for f in calls):
        return None
    try:
        code = compile(ast.fix_missing_locations(ast.Expression(node)), "<condition>", "eval")
        return eval(code, frame.f_globals, frame.f_locals)
    except Exception:
        return None


@dataclass(frozen=True)
class CalledInVain:
    """Hold a value that an expression called although it is not callable; with `more` than one argument."""

    value: Any
    more: bool


def called_in_vain(error: BaseException | None, sources: Sources) -> CalledInVain | None:
    """Return the value that the innermost expression called in vain; None if that is not the cause of the error."""
    frame, call = next(expressions_raising(error, sources), (None, None))
    if not isinstance(error, TypeError) or frame is None or not isinstance(call, ast.Call):
        return None
    called = value_in(call.func, frame)
    more = len(call.args) + len(call.keywords) > 1
    return None if called is None or callable(called) else CalledInVain(called, more)


_HARMLESS = frozenset({"len", "size", "dim", "int", "numel", "lower", "upper", "strip", "keys"})


def refused_call(error: BaseException | None, sources: Sources) -> FailedCall | None:
    """Return the call of a PyTorch function that rejected its arguments before it began; None for any other error."""
    frame, call = next(expressions_raising(error, sources), (None, None))
    if not isinstance(error, TypeError) or frame is None or not isinstance(call, ast.Call):
        return None
    function = value_in(call.func, frame)
    arguments = [value_in(argument, frame) for argument in (*call.args, *(k.value for k in call.keywords))]
    is_plain = not any(isinstance(argument, ast.Starred) for argument in call.args) and all(
        k.arg for k in call.keywords
    )
    if not is_plain or not callable(function) or any(argument is None for argument in arguments):
        return None
    args = tuple(arguments[: len(call.args)])
    kwargs = {k.arg: value for k, value in zip(call.keywords, arguments[len(call.args) :], strict=True) if k.arg}
    owner = getattr(function, "__self__", None)
    if isinstance(function, BuiltinMethodType) and isinstance(owner, torch.Tensor):
        return FailedCall(getattr(type(owner), function.__name__), (owner, *args), kwargs, ())
    is_torch = (getattr(function, "__module__", None) or "torch").startswith("torch") or isinstance(owner, torch.Tensor)
    return FailedCall(function, args, kwargs, ()) if is_torch else None
