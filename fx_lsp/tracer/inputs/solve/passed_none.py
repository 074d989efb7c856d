"""Trace a None back through calls to the variable that it came from."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterator
from types import CodeType, FrameType, TracebackType

from fx_lsp.tracer.source.expressions import expression
from fx_lsp.tracer.source.provenance import Sources


def handed_as_none(error: BaseException, sources: Sources) -> list[str]:
    """Return the names that the outermost call passed as None and that an error concerns, under any name.

    `encoder(x, mask=source_mask)` passes `source_mask` as `mask`: an error on `mask` is about `source_mask`.
    """
    frames = [at for at in _frames(error.__traceback__) if sources.rank(at[0].f_code.co_filename) < 2]
    if not frames:
        return []
    *outer, (raised, _, line) = frames
    text = linecache.getline(raised.f_code.co_filename, line) + str(error)
    read = set(re.findall(r"\w+", text))
    names = [n for n in _parameters(raised.f_code) if raised.f_locals.get(n, 0) is None and n in read]
    callee = raised.f_code
    for frame, lasti, lineno in reversed(outer):
        span = sources.span(frame.f_code, lasti, lineno)
        call = expression(span, [line.rstrip("\n") for line in linecache.getlines(frame.f_code.co_filename)])
        if not isinstance(call, ast.Call):
            return []
        names = [variable for name in names for variable in _given_as(call, callee, name)]
        callee = frame.f_code
    return list(dict.fromkeys(names))


def _frames(traceback: TracebackType | None) -> Iterator[tuple[FrameType, int, int]]:
    """Yield the frames of a traceback, outermost first, each with its position."""
    while traceback is not None:
        yield traceback.tb_frame, traceback.tb_lasti, traceback.tb_lineno
        traceback = traceback.tb_next


def _parameters(code: CodeType) -> tuple[str, ...]:
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _given_as(call: ast.Call, callee: CodeType, name: str) -> Iterator[str]:
    """Yield the variables that a call passes to a parameter; the name itself if everything is passed on."""
    values = [keyword.value for keyword in call.keywords if keyword.arg == name]
    passed_on = any(isinstance(arg, ast.Starred) for arg in call.args) or any(k.arg is None for k in call.keywords)
    if not values and not passed_on:
        names = [n for n in _parameters(callee) if n != "self"]
        values = call.args[names.index(name) :][:1] if name in names else []
    for value in values:
        yield from (node.id for node in ast.walk(value) if isinstance(node, ast.Name))
    if not values and passed_on:
        yield name
