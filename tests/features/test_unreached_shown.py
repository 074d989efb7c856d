"""Code that did not run is faded; `tests/shown/cases/branches.py` has the reasons."""

from dataclasses import replace

from samples import FILE, TRACE, F, function, span

from fx_lsp.features.wording.unreached import faded
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


KNOWN = replace(
    TRACE,
    target=f"{FILE}::outer",
    unreached=(
        of("return x - targets", "targets is not None", Operand("targets", "None")),
        of("x = x[0]", "x.dim() == 3"),
        of("return -y", "flag", Operand("flag", "False")),
    ),
)


def test_it_is_faded_with_the_reason():
    assert [(p.span.line, p.severity, p.message, p.code, p.faded) for p in faded(SOURCE, [(OUTER, KNOWN)])] == [
        (6, "hint", "branch not taken: targets is None", "unreached", True),
        (10, "hint", "branch not taken: flag is False", "unreached", True),
        (14, "hint", "branch not taken: `x.dim() == 3` is false", "unreached", True),
    ]
    of_inner = faded(SOURCE, [(OUTER, KNOWN), (INNER, replace(KNOWN, unreached=()))])
    assert [p.span.line for p in of_inner] == [6, 14], "of a definition inside, its own trace speaks"
    assert faded(SOURCE, [(OUTER, None), (F, None)]) == ()
