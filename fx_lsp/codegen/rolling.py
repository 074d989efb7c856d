"""The text of a kernel that goes through rounds."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

import sympy

from fx_lsp.codegen.emit import Emitter
from fx_lsp.codegen.kernel import Kernel, Line, Naming
from fx_lsp.codegen.pull import triton_type
from fx_lsp.codegen.rounds import Carried, Rounds
from fx_lsp.codegen.text import name, unparsed
from fx_lsp.codegen.tiles import Tile
from fx_lsp.codegen.values import Constant, Value
from fx_lsp.codegen.writing import Scope

UNROLLED = 32
"""Up to how many rounds Triton writes out again when it compiles, so that their loads overlap."""

TOGETHER = 4
"""How many rounds it writes out at a time where there are more."""


def rolled(title: str, tile: Tile, rounds: Rounds, indirect: Mapping[sympy.Symbol, Value], naming: Naming) -> Kernel:
    """The kernel that goes through rounds."""
    return _Rolling(title, tile, rounds, indirect, naming).kernel()


class _Rolling(Emitter):
    def __init__(
        self, title: str, tile: Tile, rounds: Rounds, indirect: Mapping[sympy.Symbol, Value], naming: Naming
    ) -> None:
        others = [v for c in rounds.carried for v in (c.start, c.following)]
        super().__init__(title, tile, rounds.stores, indirect, naming, others)
        self.rounds = rounds
        self.names[rounds.step] = self.unique("step")

    def looped(self, value: Value) -> bool:
        return id(value) in self.rounds.inside

    def assign(self, value: Value, expr: ast.expr, wish: str | None = None) -> ast.expr:
        if self.in_loop:
            wish = self._plain(wish or self.wish(value))
        return super().assign(value, expr, wish)

    def _plain(self, wish: str) -> str:
        """What is the same in every round needs no number."""
        return re.sub(r"(_\d+)+$", "", wish)

    def _body(self) -> None:
        rounds = self.rounds
        for store in rounds.before:
            self._store(store)
        variables = [self._begin(carried) for carried in rounds.carried]
        self.in_loop, before = True, self.comment
        for store in rounds.body:
            self._store(store)
        following = [self._following(c.following, len(variables) == 1) for c in rounds.carried]
        for carried, variable, value in zip(rounds.carried, variables, following, strict=True):
            self.line(f"{variable} = {unparsed(value)}", carried.following.node)
        self.in_loop = False
        self.outer.lines.append(Line(f"    for {self.names[rounds.step]} in {self._range_text()}:"))
        self.outer.lines.extend(self.inner.lines)
        self.inner, self.comment = Scope(), before
        for carried, variable in zip(rounds.carried, variables, strict=True):
            if carried.last is not None:
                self.know(carried.last, name(variable))
        for store in rounds.after:
            self._store(store)

    def _following(self, value: Value, alone: bool) -> ast.expr:
        """What the next round is given. Where it is given several values, all are known before any is replaced."""
        if alone and self.uses[id(value)] == 1 and id(value) not in self.inner.known and self.looped(value):
            return self.expr(value)
        expr = self.ref(value)
        return expr if alone or isinstance(expr, (ast.Name, ast.Constant)) else self.assign(value, expr)

    def _range_text(self) -> str:
        first, end = self.rounds.first, self.rounds.end
        if end - first <= UNROLLED:
            return f"tl.static_range({first}, {end})" if first else f"tl.static_range({end})"
        return f"tl.range({first}, {end}, loop_unroll_factor={TOGETHER})"

    def _begin(self, carried: Carried) -> str:
        """The variable that is carried, as it is for the first round of the loop."""
        start, following = carried.start, carried.following
        variable = self.unique(self._plain(self.wish(following)))
        alone = self.uses[id(start)] == 1 and id(start) not in self.outer.known
        text = unparsed(self.expr(start) if alone else self.ref(start))
        if self.shaped and self.dims_of(start.axes) != self.dims_of(following.axes):
            shape = self.tile_shape(following.axes)
            call = f"tl.full({shape}, {text}, {triton_type(start.dtype)})"
            text = call if isinstance(start, Constant) else f"tl.broadcast_to({text}, {shape})"
        self.line(f"{variable} = {text}", start.node)
        self.outer.known[id(carried.given)] = name(variable)
        return variable
