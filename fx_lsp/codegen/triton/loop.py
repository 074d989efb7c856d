"""The text of a kernel that goes through rounds."""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import sympy
from torch import fx

from fx_lsp.codegen.ir.kernel import Kernel, Line, Naming
from fx_lsp.codegen.ir.loop import Carried, Loop, Making, Rounds
from fx_lsp.codegen.ir.text import filled, index_text, name, unparsed
from fx_lsp.codegen.ir.tile import Tile
from fx_lsp.codegen.ir.values import Constant, Value, triton_type
from fx_lsp.codegen.schedule.tiling import staged
from fx_lsp.codegen.triton.expressions import Scope
from fx_lsp.codegen.triton.fusion_kernel import PIPELINED, Emitter

WRITTEN_OUT = 8
"""Up to how many rounds Triton writes out again when it compiles."""

MANY = 33
"""From how many rounds on several are written out at a time; where there are fewer, loads are on their way early."""

TOGETHER = 4
"""How many rounds are written out at a time where there are many."""


def rolled(title: str, tile: Tile, rounds: Rounds, indirect: Mapping[sympy.Symbol, Value], naming: Naming) -> Kernel:
    """The kernel that goes through rounds."""
    if rounds.making is None and len(tile.configs) > 1 and WRITTEN_OUT < rounds.loop.end - rounds.loop.first < MANY:
        tile = staged(tile)
    return _Rolling(title, tile, rounds, indirect, naming).kernel()


class _Rolling(Emitter):
    def __init__(
        self, title: str, tile: Tile, rounds: Rounds, indirect: Mapping[sympy.Symbol, Value], naming: Naming
    ) -> None:
        loops = [*([rounds.making.loop] if rounds.making else []), rounds.loop]
        others = [v for loop in loops for c in loop.carried for v in (c.start, c.following)]
        others += rounds.making.loop.body if rounds.making else ()
        super().__init__(title, tile, rounds.stores, indirect, naming, others)
        self.rounds = rounds
        step = self.unique("step")
        self.names.update({loop.step: step for loop in loops})
        self.inside = frozenset[int]().union(*(loop.inside for loop in loops))

    def looped(self, value: Value) -> bool:
        return id(value) in self.inside

    def assign(self, value: Value, expr: ast.expr, wish: str | None = None) -> ast.expr:
        if self.in_loop:
            wish = self._plain(wish or self.wish(value))
        return super().assign(value, expr, wish)

    def _plain(self, wish: str) -> str:
        """What is the same in every round needs no number, unless that leaves a name of Python's own."""
        word = re.sub(r"(_\d+)+$", "", wish)
        return wish if _is_taken(word) else word

    def _body(self) -> None:
        rounds = self.rounds
        if rounds.making is not None:
            self._make(rounds.making)
        for store in rounds.before:
            self._store(store)
        ahead = self._loads_ahead() if rounds.making is not None else {}
        self._rounds(rounds.loop, lambda: self._round(ahead))
        for store in rounds.after:
            self._store(store)

    def _rounds(self, loop: Loop, body: Callable[[], None]) -> None:
        variables = [self._begin(carried) for carried in loop.carried]
        self.in_loop, before = True, self.comment
        body()
        following = [self._following(c.following, len(variables) == 1) for c in loop.carried]
        nodes = [c.following.node for c in loop.carried]
        self._hand_on(list(zip(variables, map(unparsed, following), nodes, strict=True)))
        self.in_loop = False
        self.outer.lines += [*self._head(loop), *self.inner.lines]
        self.inner, self.comment = Scope(), before
        for carried, variable in zip(loop.carried, variables, strict=True):
            if carried.last is not None:
                self.know(carried.last, name(variable))

    def _hand_on(self, handed: list[tuple[str, str, fx.Node | None]]) -> None:
        """Replace variables, each by a text: one that is such a text itself, after that was taken."""
        while handed:
            texts = [text for _, text, _ in handed]
            free = [n for n, (variable, *_) in enumerate(handed) if variable not in texts[:n] + texts[n + 1 :]]
            variable, text, node = handed.pop(free[0] if free else 0)
            if not free:
                handed.append((variable, self.unique(text), node))
                variable = handed[-1][1]
            self.line(f"{variable} = {text}", node)

    # what the rounds take

    def _make(self, making: Making) -> None:
        """The loop that keeps, of each of its rounds, what one of the other loop takes."""
        loop, names = making.loop, list[str]()
        for column, value in zip(making.made, loop.body, strict=True):
            first = [unparsed(self.ref(v)) for v in column[: loop.first]]
            names.append(self.unique(self._several(self._plain(self.wish(value)))))
            self.line(f"{names[-1]} = ({', '.join(first)}{',' if len(first) == 1 else ''})")

        def append() -> None:
            for variable, value in zip(names, loop.body, strict=True):
                expr = self.ref(value)
                expr = expr if isinstance(expr, ast.Name) else self.assign(value, expr)
                self.line(f"{variable} += ({unparsed(expr)},)", value.node)

        self._rounds(loop, append)
        for variable, column in zip(names, making.made, strict=True):
            for number, value in enumerate(column):
                if id(value) not in self.outer.known:
                    self.know(value, filled(f"{variable}[{number}]", {}))
        other = self.rounds.loop
        last = len(other.kept[0].values) - 1
        place = last - (other.step - other.first) if making.backwards else other.step - other.first
        for variable, kept in zip(names, other.kept, strict=True):
            text = f"{variable}[{index_text(sympy.expand(place), self.names, {})}]"
            self.know(kept.given, filled(text, {}))

    def _several(self, wish: str) -> str:
        word = f"{wish}s"
        return f"all_{wish}" if wish.endswith("s") or _is_taken(word) else word

    def _loads_ahead(self) -> dict[int, ast.expr]:
        """What the rounds take from memory, loaded before the first of them stores; what stands for it in a round."""
        loop, loads = self.rounds.loop, self.rounds.loads
        names = [self.unique(self._several(self._plain(self.wish(v)))) for v in loads]
        for variable in names:
            self.line(f"{variable} = ()")

        def append() -> None:
            for variable, value in zip(names, loads, strict=True):
                self.line(f"{variable} += ({unparsed(self.ref(value))},)", value.node)

        if loads:
            self._rounds(replace(loop, carried=()), append)
        place = index_text(loop.step - loop.first, self.names, {})
        return {id(v): filled(f"{n}[{place}]", {}) for n, v in zip(names, loads, strict=True)}

    def _round(self, ahead: Mapping[int, ast.expr]) -> None:
        self.inner.known.update(ahead)
        for kept in self.rounds.loop.kept:
            if self.uses[id(kept.given)] > 1:
                self.assign(kept.given, self.ref(kept.given))
        for store in self.rounds.body:
            self._store(store)

    def _following(self, value: Value, alone: bool) -> ast.expr:
        """What the next round is given. Where it is given several values, all are known before any is replaced."""
        if alone and self.uses[id(value)] == 1 and id(value) not in self.inner.known and self.looped(value):
            return self.expr(value)
        expr = self.ref(value)
        return expr if alone or isinstance(expr, (ast.Name, ast.Constant)) else self.assign(value, expr)

    def _head(self, loop: Loop) -> list[Line]:
        step, first, end = self.names[loop.step], loop.first, loop.end
        bounds = f"{first}, {end}" if first else f"{end}"
        if end - first <= WRITTEN_OUT or self.rounds.making is not None:
            return [Line(f"    for {step} in tl.static_range({bounds}):")]
        stages = "STAGES" if "STAGES" in dict(self.tile.configs[0].blocks) else PIPELINED
        how = f"loop_unroll_factor={TOGETHER}" if end - first >= MANY else f"num_stages={stages}"
        if not self._is_large():
            return [Line(f"    for {step} in tl.range({first}, {end}, {how}):")]
        number = self.unique("number")
        head = f"    for {number} in tl.range({first}, {end}, {how}):"
        return [Line(head), Line(f"        {step} = tl.cast({number}, tl.int64)")]

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


def _is_taken(word: str) -> bool:
    return keyword.iskeyword(word) or hasattr(builtins, word)
