"""Code that did not run: faded, with a hover that says why."""

from dataclasses import replace

from inline_snapshot import snapshot
from samples import FILE, TRACE, F, function, span

from fx_lsp.features.hover import HoverSubject, hover_expression
from fx_lsp.features.unreached import faded
from fx_lsp.model import Operand, Unreached

SOURCE = """\
import torch


def outer(x, targets=None):
    if targets is not None:
        return x - targets

    def inner(y, flag=False):
        if flag:
            return -y
        return y

    if x.dim() == 3:
        x = x[0]
    return inner(x)
"""
OUTER = function("outer", SOURCE[SOURCE.index("def outer") :].rstrip("\n"), SOURCE)
INNER = function("outer.inner", SOURCE[SOURCE.index("def inner") : SOURCE.index("\n\n    if x.dim")], SOURCE)


def of(code: str, decider: str, *operands: Operand) -> Unreached:
    return Unreached(span(code, SOURCE), "condition", span(decider, SOURCE), False, operands)


TARGETS = of("return x - targets", "targets is not None", Operand("targets", "None"))
DIM = of("x = x[0]", "x.dim() == 3")
FLAG = of("return -y", "flag", Operand("flag", "False"))
KNOWN = replace(TRACE, target=f"{FILE}::outer", unreached=(TARGETS, DIM, FLAG), values=())


def test_it_is_faded_with_the_reason():
    assert [(p.span.line, p.severity, p.message, p.code, p.faded) for p in faded(SOURCE, [(OUTER, KNOWN)])] == snapshot(
        [
            (6, "hint", "branch not taken: targets is None", "unreached", True),
            (10, "hint", "branch not taken: flag is False", "unreached", True),
            (14, "hint", "branch not taken: `x.dim() == 3` is false", "unreached", True),
        ]
    )


def test_of_a_definition_inside_its_own_trace_speaks():
    inner = replace(KNOWN, unreached=())
    assert [p.span.line for p in faded(SOURCE, [(OUTER, KNOWN), (INNER, inner)])] == snapshot([6, 14])


def test_a_hover_says_why():
    hover = hover_expression(HoverSubject(SOURCE, OUTER, KNOWN), TARGETS.span.line, TARGETS.span.col + 8)
    assert hover is not None
    assert (hover.markdown, hover.span) == ("*branch not taken: targets is None*", TARGETS.span)


def test_nothing_is_faded_where_nothing_is_known():
    assert faded(SOURCE, [(OUTER, None), (F, None)]) == ()
