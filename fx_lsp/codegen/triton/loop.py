"""Write a kernel that loops over iterations."""

from __future__ import annotations

import ast
import builtins
import keyword
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import sympy
from torch import fx

from fx_lsp.codegen.ir.kernel import Kernel, Naming
from fx_lsp.codegen.ir.loop import CarriedState, Loop, LoopKernel, ProducerLoop
from fx_lsp.codegen.ir.ops import triton_type
from fx_lsp.codegen.ir.statement import For, Statement, assign
from fx_lsp.codegen.ir.text import index_text, name, parse_expression, unparse
from fx_lsp.codegen.ir.tile import Tile
from fx_lsp.codegen.ir.values import Constant, Value
from fx_lsp.codegen.schedule.tiling import with_stages
from fx_lsp.codegen.triton.expressions import Computation, KernelWriter
from fx_lsp.codegen.triton.fusion_kernel import ELEMENTS, finished_kernel, pipeline_stages, write_header

MAX_UNROLLED = 8
"""The largest number of iterations that Triton unrolls at compile time."""

MIN_PARTLY_UNROLLED = 33
"""The least number of iterations for partial unrolling. With fewer, loads are pipelined instead."""

UNROLL_FACTOR = 4
"""The number of iterations unrolled together in a long loop."""


def write_loop_kernel(
    title: str, tile: Tile, loop_kernel: LoopKernel, indirect: Mapping[sympy.Symbol, Value], naming: Naming
) -> Kernel:
    """Return the kernel that loops over iterations."""
    if (
        loop_kernel.producer is None
        and len(tile.configs) > 1
        and MAX_UNROLLED < loop_kernel.loop.end - loop_kernel.loop.first < MIN_PARTLY_UNROLLED
    ):
        tile = with_stages(tile)
    loops = [*([loop_kernel.producer.loop] if loop_kernel.producer else []), loop_kernel.loop]
    others = [v for loop in loops for c in loop.carried for v in (c.start, c.following)]
    others += loop_kernel.producer.loop.body if loop_kernel.producer else ()
    writer = KernelWriter(title, tile, Computation(loop_kernel.stores, indirect, others), naming, ITERATIONS)
    step = writer.unique("step")
    writer.names.update({loop.step: step for loop in loops})
    writer.iterated = frozenset[int]().union(*(loop.inside for loop in loops))
    write_header(writer)
    if loop_kernel.producer is not None:
        _write_producer(writer, loop_kernel.producer, loop_kernel.loop)
    for store in loop_kernel.before:
        writer.store(store)
    is_static = loop_kernel.producer is not None
    ahead = _load_before_stores(writer, loop_kernel) if is_static else {}
    _write_loop(writer, loop_kernel.loop, is_static, lambda: _write_iteration(writer, loop_kernel, ahead))
    for store in loop_kernel.after:
        writer.store(store)
    return finished_kernel(writer)


def _without_number(wish: str) -> str:
    """Return a name without its number, because a body needs none. Names of Python itself keep it."""
    word = wish
    while (parts := word.rpartition("_"))[2].isdigit():
        word = parts[0]
    return wish if _is_python_name(word) else word


ITERATIONS = replace(ELEMENTS, loop_name=_without_number)
"""Tiles of elements in a loop whose body is written once."""


def _write_loop(writer: KernelWriter, loop: Loop, is_static: bool, body: Callable[[], None]) -> None:
    """Write a loop. Triton unrolls a static one at compile time."""
    variables = [_begin_carried(writer, carried) for carried in loop.carried]

    def write_step() -> None:
        body()
        following = [_next_state(writer, c.following, len(variables) == 1) for c in loop.carried]
        nodes = [c.following.node for c in loop.carried]
        _update_variables(writer, list(zip(variables, following, nodes, strict=True)))

    writer.write_loop(write_step, partial(_loop_statement, writer, loop, is_static))
    for carried, variable in zip(loop.carried, variables, strict=True):
        if carried.last is not None:
            writer.bind_name(carried.last, name(variable))


def _update_variables(writer: KernelWriter, updates: list[tuple[str, ast.expr, fx.Node | None]]) -> None:
    """Assign new values to variables, each only after all other assignments that read its old value."""
    while updates:
        values = [value.id if isinstance(value, ast.Name) else "" for _, value, _ in updates]
        free = [n for n, (variable, *_) in enumerate(updates) if variable not in values[:n] + values[n + 1 :]]
        place = free[0] if free else 0
        variable, value, node = updates.pop(place)
        if not free:
            updates.append((variable, name(writer.unique(values[place])), node))
            variable = unparse(updates[-1][1])
        writer.define(variable, value, node)


# the inputs of the iterations


def _write_producer(writer: KernelWriter, producer: ProducerLoop, other: Loop) -> None:
    """Write the loop that saves in each of its iterations the inputs of one iteration of the other loop."""
    loop, names = producer.loop, list[str]()
    for column, value in zip(producer.values, loop.body, strict=True):
        first = [writer.ref(v) for v in column[: loop.first]]
        names.append(writer.unique(_plural(_without_number(writer.suggested_name(value)))))
        writer.define(names[-1], ast.Tuple(first, ast.Load()))

    def append() -> None:
        for variable, value in zip(names, loop.body, strict=True):
            expr = writer.ref(value)
            expr = expr if isinstance(expr, ast.Name) else writer.assign(value, expr)
            writer.define(variable, ast.Tuple([expr], ast.Load()), value.node, "+")

    _write_loop(writer, loop, True, append)
    for variable, column in zip(names, producer.values, strict=True):
        for number, value in enumerate(column):
            if id(value) not in writer.outer.expressions:
                writer.bind_name(value, parse_expression(f"{variable}[{number}]"))
    last = len(other.inputs[0].values) - 1
    place = last - (other.step - other.first) if producer.backwards else other.step - other.first
    for variable, loop_input in zip(names, other.inputs, strict=True):
        text = f"{variable}[{index_text(sympy.expand(place), writer.names, {})}]"
        writer.bind_name(loop_input.variable, parse_expression(text))


def _plural(wish: str) -> str:
    word = f"{wish}s"
    return f"all_{wish}" if wish.endswith("s") or _is_python_name(word) else word


def _load_before_stores(writer: KernelWriter, loop_kernel: LoopKernel) -> dict[int, ast.expr]:
    """Load the memory inputs of all iterations before the first store. Return their expressions in an iteration."""
    loop, loads = loop_kernel.loop, loop_kernel.loads
    names = [writer.unique(_plural(_without_number(writer.suggested_name(v)))) for v in loads]
    for variable in names:
        writer.define(variable, "()")

    def append() -> None:
        for variable, value in zip(names, loads, strict=True):
            writer.define(variable, ast.Tuple([writer.ref(value)], ast.Load()), value.node, "+")

    if loads:
        _write_loop(writer, replace(loop, carried=()), True, append)
    place = index_text(loop.step - loop.first, writer.names, {})
    return {id(v): parse_expression(f"{n}[{place}]") for n, v in zip(names, loads, strict=True)}


def _write_iteration(writer: KernelWriter, loop_kernel: LoopKernel, ahead: Mapping[int, ast.expr]) -> None:
    writer.inner.expressions.update(ahead)
    for loop_input in loop_kernel.loop.inputs:
        if writer.uses[id(loop_input.variable)] > 1:
            writer.assign(loop_input.variable, writer.ref(loop_input.variable))
    for store in loop_kernel.body:
        writer.store(store)


def _next_state(writer: KernelWriter, value: Value, alone: bool) -> ast.expr:
    """Return the state for the next iteration. If there are several, all are computed before any is replaced."""
    if alone and writer.uses[id(value)] == 1 and id(value) not in writer.inner.expressions and writer.is_in_loop(value):
        return writer.expr(value)
    expr = writer.ref(value)
    return expr if alone or isinstance(expr, (ast.Name, ast.Constant)) else writer.assign(value, expr)


def _loop_statement(writer: KernelWriter, loop: Loop, is_static: bool, body: tuple[Statement, ...]) -> For:
    """Return the loop around the statements of its body."""
    step, first, end = writer.names[loop.step], loop.first, loop.end
    bounds = f"{first}, {end}" if first else f"{end}"
    if end - first <= MAX_UNROLLED or is_static:
        return For(step, parse_expression(f"tl.static_range({bounds})"), body)
    stages = "STAGES" if "STAGES" in dict(writer.tile.configs[0].blocks) else pipeline_stages(writer)
    how = f"loop_unroll_factor={UNROLL_FACTOR}" if end - first >= MIN_PARTLY_UNROLLED else f"num_stages={stages}"
    steps = parse_expression(f"tl.range({first}, {end}, {how})")
    if writer.offset_type is None:
        return For(step, steps, body)
    number = writer.unique("number")
    return For(number, steps, (assign(step, f"tl.cast({number}, {writer.offset_type})"), *body))


def _begin_carried(writer: KernelWriter, carried: CarriedState) -> str:
    """Return the carried variable, set to its value for the first iteration."""
    start, following = carried.start, carried.following
    variable = writer.unique(_without_number(writer.suggested_name(following)))
    alone = writer.uses[id(start)] == 1 and id(start) not in writer.outer.expressions
    text = unparse(writer.expr(start) if alone else writer.ref(start))
    if writer.tile_dims and writer.dims_of(start.axes) != writer.dims_of(following.axes):
        shape = writer.tile_shape(following.axes)
        call = f"tl.full({shape}, {text}, {triton_type(start.dtype)})"
        text = call if isinstance(start, Constant) else f"tl.broadcast_to({text}, {shape})"
    writer.define(variable, text, start.node)
    writer.outer.expressions[id(carried.variable)] = name(variable)
    return variable


def _is_python_name(word: str) -> bool:
    return keyword.iskeyword(word) or hasattr(builtins, word)
