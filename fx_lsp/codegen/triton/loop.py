"""The text of a kernel that goes through iterations."""

from __future__ import annotations

import ast
import builtins
import keyword
from collections.abc import Callable, Mapping
from dataclasses import replace

import sympy
from torch import fx

from fx_lsp.codegen.ir.kernel import Kernel, Naming
from fx_lsp.codegen.ir.loop import CarriedState, Loop, LoopKernel, ProducerLoop
from fx_lsp.codegen.ir.ops import triton_type
from fx_lsp.codegen.ir.statement import For, assign
from fx_lsp.codegen.ir.text import index_text, name, parse_expression, unparse
from fx_lsp.codegen.ir.tile import Tile
from fx_lsp.codegen.ir.values import Constant, Value
from fx_lsp.codegen.schedule.tiling import with_stages
from fx_lsp.codegen.triton.expressions import Scope
from fx_lsp.codegen.triton.fusion_kernel import PIPELINE_STAGES, FusionKernel

MAX_UNROLLED = 8
"""Up to how many iterations Triton writes out again when it compiles."""

MIN_PARTLY_UNROLLED = 33
"""From how many iterations on several are written out at a time; where there are fewer, loads are on their way
early."""

UNROLL_FACTOR = 4
"""How many iterations are written out at a time where there are many."""


def write_loop_kernel(
    title: str, tile: Tile, loop_kernel: LoopKernel, indirect: Mapping[sympy.Symbol, Value], naming: Naming
) -> Kernel:
    """Return the kernel that goes through iterations."""
    if (
        loop_kernel.producer is None
        and len(tile.configs) > 1
        and MAX_UNROLLED < loop_kernel.loop.end - loop_kernel.loop.first < MIN_PARTLY_UNROLLED
    ):
        tile = with_stages(tile)
    return _LoopWriter(title, tile, loop_kernel, indirect, naming).kernel()


class _LoopWriter(FusionKernel):
    def __init__(
        self, title: str, tile: Tile, loop_kernel: LoopKernel, indirect: Mapping[sympy.Symbol, Value], naming: Naming
    ) -> None:
        loops = [*([loop_kernel.producer.loop] if loop_kernel.producer else []), loop_kernel.loop]
        others = [v for loop in loops for c in loop.carried for v in (c.start, c.following)]
        others += loop_kernel.producer.loop.body if loop_kernel.producer else ()
        super().__init__(title, tile, loop_kernel.stores, indirect, naming, others)
        self.loop_kernel = loop_kernel
        step = self.unique("step")
        self.names.update({loop.step: step for loop in loops})
        self.inside = frozenset[int]().union(*(loop.inside for loop in loops))

    def is_in_loop(self, value: Value) -> bool:
        return id(value) in self.inside

    def assign(self, value: Value, expr: ast.expr, wish: str | None = None) -> ast.Name:
        if self.in_loop:
            wish = self._without_number(wish or self.suggested_name(value))
        return super().assign(value, expr, wish)

    def _without_number(self, wish: str) -> str:
        """Return a name without its number, which what is the same in every iteration does not need, unless that is
        Python's own."""
        word = wish
        while (parts := word.rpartition("_"))[2].isdigit():
            word = parts[0]
        return wish if _is_python_name(word) else word

    def _body(self) -> None:
        loop_kernel = self.loop_kernel
        if loop_kernel.producer is not None:
            self._write_producer(loop_kernel.producer)
        for store in loop_kernel.before:
            self._store(store)
        ahead = self._load_before_stores() if loop_kernel.producer is not None else {}
        self._write_loop(loop_kernel.loop, lambda: self._write_iteration(ahead))
        for store in loop_kernel.after:
            self._store(store)

    def _write_loop(self, loop: Loop, body: Callable[[], None]) -> None:
        variables = [self._begin_carried(carried) for carried in loop.carried]
        self.in_loop, before = True, self.comment
        body()
        following = [self._next_state(c.following, len(variables) == 1) for c in loop.carried]
        nodes = [c.following.node for c in loop.carried]
        self._update_variables(list(zip(variables, following, nodes, strict=True)))
        self.in_loop = False
        self.outer.statements.append(self._loop_statement(loop))
        self.inner, self.comment = Scope(), before
        for carried, variable in zip(loop.carried, variables, strict=True):
            if carried.last is not None:
                self.bind_name(carried.last, name(variable))

    def _update_variables(self, updates: list[tuple[str, ast.expr, fx.Node | None]]) -> None:
        """Give variables new values: one that is the new value of another, after that was taken."""
        while updates:
            values = [value.id if isinstance(value, ast.Name) else "" for _, value, _ in updates]
            free = [n for n, (variable, *_) in enumerate(updates) if variable not in values[:n] + values[n + 1 :]]
            place = free[0] if free else 0
            variable, value, node = updates.pop(place)
            if not free:
                updates.append((variable, name(self.unique(values[place])), node))
                variable = unparse(updates[-1][1])
            self.define(variable, value, node)

    # what the iterations take

    def _write_producer(self, producer: ProducerLoop) -> None:
        """Write the loop that saves, of each of its iterations, what one of the other loop takes."""
        loop, names = producer.loop, list[str]()
        for column, value in zip(producer.values, loop.body, strict=True):
            first = [self.ref(v) for v in column[: loop.first]]
            names.append(self.unique(self._plural(self._without_number(self.suggested_name(value)))))
            self.define(names[-1], ast.Tuple(first, ast.Load()))

        def append() -> None:
            for variable, value in zip(names, loop.body, strict=True):
                expr = self.ref(value)
                expr = expr if isinstance(expr, ast.Name) else self.assign(value, expr)
                self.define(variable, ast.Tuple([expr], ast.Load()), value.node, "+")

        self._write_loop(loop, append)
        for variable, column in zip(names, producer.values, strict=True):
            for number, value in enumerate(column):
                if id(value) not in self.outer.expressions:
                    self.bind_name(value, parse_expression(f"{variable}[{number}]"))
        other = self.loop_kernel.loop
        last = len(other.inputs[0].values) - 1
        place = last - (other.step - other.first) if producer.backwards else other.step - other.first
        for variable, loop_input in zip(names, other.inputs, strict=True):
            text = f"{variable}[{index_text(sympy.expand(place), self.names, {})}]"
            self.bind_name(loop_input.variable, parse_expression(text))

    def _plural(self, wish: str) -> str:
        word = f"{wish}s"
        return f"all_{wish}" if wish.endswith("s") or _is_python_name(word) else word

    def _load_before_stores(self) -> dict[int, ast.expr]:
        """Load what the iterations take from memory before the first of them stores; return what stands for it in an
        iteration."""
        loop, loads = self.loop_kernel.loop, self.loop_kernel.loads
        names = [self.unique(self._plural(self._without_number(self.suggested_name(v)))) for v in loads]
        for variable in names:
            self.define(variable, "()")

        def append() -> None:
            for variable, value in zip(names, loads, strict=True):
                self.define(variable, ast.Tuple([self.ref(value)], ast.Load()), value.node, "+")

        if loads:
            self._write_loop(replace(loop, carried=()), append)
        place = index_text(loop.step - loop.first, self.names, {})
        return {id(v): parse_expression(f"{n}[{place}]") for n, v in zip(names, loads, strict=True)}

    def _write_iteration(self, ahead: Mapping[int, ast.expr]) -> None:
        self.inner.expressions.update(ahead)
        for loop_input in self.loop_kernel.loop.inputs:
            if self.uses[id(loop_input.variable)] > 1:
                self.assign(loop_input.variable, self.ref(loop_input.variable))
        for store in self.loop_kernel.body:
            self._store(store)

    def _next_state(self, value: Value, alone: bool) -> ast.expr:
        """Return the state for the next iteration. Where there are several, all are known before any is replaced."""
        if alone and self.uses[id(value)] == 1 and id(value) not in self.inner.expressions and self.is_in_loop(value):
            return self.expr(value)
        expr = self.ref(value)
        return expr if alone or isinstance(expr, (ast.Name, ast.Constant)) else self.assign(value, expr)

    def _loop_statement(self, loop: Loop) -> For:
        """Return the loop around the statements that are written inside."""
        body = tuple(self.inner.statements)
        step, first, end = self.names[loop.step], loop.first, loop.end
        bounds = f"{first}, {end}" if first else f"{end}"
        if end - first <= MAX_UNROLLED or self.loop_kernel.producer is not None:
            return For(step, parse_expression(f"tl.static_range({bounds})"), body)
        stages = "STAGES" if "STAGES" in dict(self.tile.configs[0].blocks) else PIPELINE_STAGES
        how = f"loop_unroll_factor={UNROLL_FACTOR}" if end - first >= MIN_PARTLY_UNROLLED else f"num_stages={stages}"
        steps = parse_expression(f"tl.range({first}, {end}, {how})")
        if not self._is_large():
            return For(step, steps, body)
        number = self.unique("number")
        return For(number, steps, (assign(step, f"tl.cast({number}, tl.int64)"), *body))

    def _begin_carried(self, carried: CarriedState) -> str:
        """Return the variable that is carried, as it is for the first iteration of the loop."""
        start, following = carried.start, carried.following
        variable = self.unique(self._without_number(self.suggested_name(following)))
        alone = self.uses[id(start)] == 1 and id(start) not in self.outer.expressions
        text = unparse(self.expr(start) if alone else self.ref(start))
        if self.tile_dims and self.dims_of(start.axes) != self.dims_of(following.axes):
            shape = self.tile_shape(following.axes)
            call = f"tl.full({shape}, {text}, {triton_type(start.dtype)})"
            text = call if isinstance(start, Constant) else f"tl.broadcast_to({text}, {shape})"
        self.define(variable, text, start.node)
        self.outer.expressions[id(carried.variable)] = name(variable)
        return variable


def _is_python_name(word: str) -> bool:
    return keyword.iskeyword(word) or hasattr(builtins, word)
