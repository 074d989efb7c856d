"""Write values as expressions: decide which get a name, which are inlined, and the mask of each load."""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import sympy
import torch
from torch import fx

from fx_lsp.codegen.ir.index import ZERO, Index, count
from fx_lsp.codegen.ir.kernel import INDEX, KernelParameter, Naming, offset_type
from fx_lsp.codegen.ir.ops import triton_type
from fx_lsp.codegen.ir.statement import CodeComment, Evaluate, Statement, assign
from fx_lsp.codegen.ir.text import (
    LINE_WIDTH,
    fill_template,
    index_text,
    name,
    parse_expression,
    size_text,
    unparse,
)
from fx_lsp.codegen.ir.tile import Dim, Tile
from fx_lsp.codegen.ir.values import (
    AtomicAdd,
    Axes,
    Buffer,
    Comparison,
    Compute,
    Constant,
    Coordinate,
    Guard,
    IndexedStore,
    Load,
    Reduction,
    Scan,
    Store,
    Test,
    Value,
    Variable,
    compute_dtype,
    values_of,
)
from fx_lsp.codegen.triton.helpers import HELPERS, LIBRARY, calls_function
from fx_lsp.codegen.triton.masks import load_padding

MAX_EXPRESSION_LENGTH = 64
"""The length from which the parts of an expression get names."""


@dataclass
class Scope:
    """A block of statements in progress, and the names of the values computed in it."""

    statements: list[Statement] = field(default_factory=list[Statement])
    expressions: dict[int, ast.expr] = field(default_factory=dict[int, ast.expr])


@dataclass(frozen=True)
class TileStrategy:
    """The layout of tiles in one kind of kernel. Each function takes the writer first.

    `form` returns the expression of a value with a special form, or None. `index` returns an index as it is printed,
    `axis_names` the names of its axes, and `sizes` the names of numbers in it that are sizes. `masks` returns the
    conditions for elements along axes to exist. `loop_name` returns a name as a variable of a loop.
    """

    form: Callable[[KernelWriter, Value], ast.expr | None]
    index: Callable[[KernelWriter, Index], Index]
    axis_names: Callable[[KernelWriter, Index], Mapping[sympy.Symbol, str]]
    sizes: Callable[[KernelWriter, Index], Mapping[int, str]]
    masks: Callable[[KernelWriter, Axes], Sequence[str]]
    loop_name: Callable[[str], str] = str


@dataclass(frozen=True)
class Computation:
    """The stores of a kernel, the values that index symbols replace, and other values that the kernel needs."""

    stores: Sequence[Store] = ()
    indirect: Mapping[sympy.Symbol, Value] = field(default_factory=dict[sympy.Symbol, Value])
    others: Sequence[Value] = ()


def no_form(writer: KernelWriter, value: Value) -> None:
    """Return None: no value has a special form."""


class KernelWriter:
    """Write any kernel: its statements, names and expressions, with tiles laid out by a strategy.

    `iterated` are the ids of the values that change in each step of a loop; None means all that vary along the
    dimension `loop`. `wishes` are the names, by id, of values not named after their nodes.
    """

    def __init__(
        self, title: str, tile: Tile, computation: Computation, naming: Naming, strategy: TileStrategy
    ) -> None:
        self.title, self.tile, self.naming, self.strategy = title, tile, naming, strategy
        self.stores = computation.stores
        self.symbols = {id(v): s for s, v in computation.indirect.items()}
        self.loop = next((d for d in tile.dims if d.role == "loop"), None)
        self.iterated: frozenset[int] | None = None
        self.wishes: dict[int, str] = {}
        self.take([*(v for s in self.stores for v in s.values), *computation.others])
        self.tile_dims = [d for d in tile.dims if d.block > 1]
        self.loads = [v for v in self.values if isinstance(v, Load)]
        self.reserved: set[str] = self._names_in_use()
        self.names: dict[sympy.Symbol, str] = {}
        for dim in tile.dims:
            self.names[dim.whole] = dim.variable
            for axis in dim.axes:
                self.names[axis] = dim.variable if len(dim.axes) == 1 else self.unique(axis.name)
        self.reads: dict[str, Buffer] = {}
        self.writes: dict[str, Buffer] = {}
        self.adds: dict[str, None] = {}
        self.used_sizes: set[str] = set()
        self.printed_sizes: set[Index] = set()
        self.outer, self.inner = Scope(), Scope()
        self.in_loop = False
        self.padding = load_padding(self.values, self.masked_dims)
        self.said: set[str] = set()

    def take(self, roots: Sequence[Value]) -> None:
        """Set the values that the kernel writes, and count the uses of their inputs. A value used twice gets a name."""
        self.values = list(values_of(roots))
        self.uses = Counter(id(i) for v in self.values for i in v.inputs)
        self.uses.update(map(id, roots))

    # names

    def _names_in_use(self) -> set[str]:
        """Return the names that no variable may have: those of helpers, dimensions, pointers and sizes."""
        dims, accesses = self.tile.dims, (*self.loads, *self.stores)
        names = {"tl", "triton", "torch", "start", "mask", INDEX, LIBRARY, *HELPERS}
        names |= {f"{a.buffer.name}_ptr" for a in accesses}
        names |= {n for d in dims for n in (d.variable, d.size_name, d.block_name, f"{d.variable}_mask")}
        sizes = [size for access in accesses for size in access.buffer.shape] + [dim.size for dim in dims]
        return names | {symbol.name for size in sizes for symbol in size.free_symbols}

    def unique(self, wish: str) -> str:
        name, number = wish, 0
        while name in self.reserved:
            number += 1
            name = f"{wish}_{number}"
        self.reserved.add(name)
        return name

    # dimensions

    def dims_of(self, axes: Axes) -> list[Dim]:
        tile_axes = self._tile_axes(axes)
        return [d for d in self.tile.dims if tile_axes & set(d.axes)]

    def _tile_axes(self, axes: Axes) -> set[sympy.Basic]:
        merged = {s for a in axes for s in self.tile.index(a).free_symbols}
        return merged | {a for a in axes if a not in self.tile.merged}

    def masked_dims(self, axes: Axes) -> list[Dim]:
        return [d for d in self.dims_of(axes) if not self.is_even(d)]

    def is_even(self, dim: Dim) -> bool:
        if dim.block == 1:
            return True
        blocks = {dict(c.blocks).get(dim.block_name, dim.block) for c in self.tile.configs}
        return all(bool(sympy.Mod(dim.size, b) == 0) for b in blocks)

    @property
    def offset_type(self) -> str | None:
        """The type of offsets into the tensors of the kernel, None if 32 bits are enough."""
        return offset_type(v.buffer.shape for v in (*self.values, *self.stores) if isinstance(v, (Load, Store)))

    def is_in_loop(self, value: Value) -> bool:
        """Return True if a value changes in each step of the loop."""
        if self.iterated is not None:
            return id(value) in self.iterated
        return self.loop is not None and not self._tile_axes(value.axes).isdisjoint(self.loop.axes)

    # statements

    @property
    def scope(self) -> Scope:
        """The scope in progress: that of the loop, or the one around it."""
        return self.inner if self.in_loop else self.outer

    def emit(self, statement: Statement) -> None:
        """Write a statement, after a comment with the user's line that it is the first to come from."""
        scope, node = self.scope, statement.node
        source = self.naming.source(node) if node is not None else ""
        if source and source not in self.said:
            scope.statements.append(CodeComment(source, node))
            self.said.add(source)
        scope.statements.append(statement)

    def define(
        self, targets: str | Sequence[str], value: str | ast.expr, node: fx.Node | None = None, operator: str = ""
    ) -> None:
        """Write an assignment; with an operator, such as "+", an update."""
        self.emit(assign(targets, value, node, operator))

    def call(self, function: str, args: Sequence[str], node: fx.Node | None) -> None:
        """Write a call statement."""
        self.emit(Evaluate(parse_expression(f"{function}({', '.join(args)})"), node))

    def write_loop(self, body: Callable[[], None], around: Callable[[tuple[Statement, ...]], Statement]) -> None:
        """Write a loop. `body` writes its statements, and `around` returns the loop statement of them."""
        self.in_loop = True
        body()
        self.in_loop = False
        self.outer.statements.append(around(tuple(self.inner.statements)))
        self.inner = Scope()

    def split_axes(self, dim: Dim) -> None:
        if len(dim.axes) == 1:
            return
        sizes = list(dim.sizes)
        for i, axis in enumerate(dim.axes):
            behind = count(sizes[i + 1 :])
            text = dim.variable if behind == 1 else f"{dim.variable} // {self.bracketed(behind)}"
            if i:
                text = f"{text} % {self.bracketed(sizes[i])}"
            self.define(self.names[axis], text)

    def bracketed(self, size: Index) -> str:
        text = size_text(size)
        return text if size.is_Integer or size.is_Symbol else f"({text})"

    def over(self, value: Reduction | Scan) -> list[sympy.Symbol]:
        return [a for a in value.over if a not in self.tile.merged]

    # values

    def tile_shape(self, axes: Axes, also: Dim | None = None) -> str:
        dims = self.dims_of(axes)
        parts = [d.block_name if d in dims or d is also else "1" for d in self.tile_dims]
        return f"[{', '.join(parts)}]"

    def axis_number(self, dim: Dim) -> int:
        return self.tile_dims.index(dim)

    def ref(self, value: Value) -> ast.expr:
        """Return an expression for a value: its name, or its operation inlined."""
        for scope in (self.inner, self.outer):
            if id(value) in scope.expressions:
                return scope.expressions[id(value)]
        inside = self.in_loop and self.is_in_loop(value)
        outside, self.in_loop = self.in_loop, inside
        try:
            return self._expression_or_name(value)
        finally:
            self.in_loop = outside

    def _expression_or_name(self, value: Value) -> ast.expr:
        expr = self.expr(value)
        if isinstance(value, (Constant, Variable)) or id(value) in self.scope.expressions:
            return expr
        while isinstance(value, Compute) and len(unparse(expr)) > MAX_EXPRESSION_LENGTH:
            inlined = [a for a in value.args if not isinstance(a, Constant) and not isinstance(self.ref(a), ast.Name)]
            if not inlined:
                break
            longest = max(inlined, key=lambda a: len(unparse(self.ref(a))))
            outside, self.in_loop = self.in_loop, self.in_loop and self.is_in_loop(longest)
            self.assign(longest, self.expr(longest))
            self.in_loop = outside
            expr = self.expr(value)
        variable = self.naming.variable(value.node) if value.node is not None else None
        several = self.uses[id(value)] > 1
        if isinstance(value, (Coordinate, Test)):
            named = several and len(unparse(expr)) > 12
        elif isinstance(value, Load):
            named = True
        else:
            named = several or variable is not None
        if not named and len(unparse(expr)) <= MAX_EXPRESSION_LENGTH:
            return expr
        return self.assign(value, expr, None if isinstance(value, Load) else variable)

    def suggested_name(self, value: Value) -> str:
        """Return a suggested name for a value."""
        if id(value) in self.wishes:
            return self.wishes[id(value)]
        if isinstance(value, Load):
            return value.buffer.name
        unnamed = "place" if isinstance(value, Coordinate) else "value"
        return unnamed if value.node is None else self.naming.name(value.node)

    def assign(self, value: Value, expr: ast.expr, wish: str | None = None) -> ast.Name:
        """Bind a value to a variable, and return the variable."""
        wish = wish or self.suggested_name(value)
        variable = self.unique(self.strategy.loop_name(wish) if self.in_loop else wish)
        self.define(variable, expr, value.node)
        self.bind_name(value, name(variable))
        return name(variable)

    def bind_name(self, value: Value, expr: ast.expr) -> None:
        """Use `expr` for the value from here on."""
        self.scope.expressions[id(value)] = expr

    def expr(self, value: Value) -> ast.expr:
        form = self.strategy.form(self, value)
        if form is not None:
            return form
        if isinstance(value, Constant):
            number = _number(value.value)
            exact = value.dtype is not torch.float64 or _in_single_precision(value.value)
            return number if exact else fill_template("tl.full([], a, tl.float64)", {"a": number})
        if isinstance(value, Coordinate):
            text = self.index(value.index, value.indirect)
            shaped = any(d.block > 1 for d in self.dims_of(value.axes))
            wide = shaped and value.dtype is torch.int64
            return fill_template("(a).to(tl.int64)" if wide else "a", {"a": parse_expression(text)})
        if isinstance(value, Variable):
            return parse_expression(value.text)
        if isinstance(value, Test):
            return parse_expression(self.guard(value.guard, value.indirect))
        if isinstance(value, Load):
            return self._load(value)
        if isinstance(value, Compute):
            args = {letter: self.ref(a) for letter, a in zip("abcdefgh", value.args, strict=False)}
            if calls_function(value.op.text) or all(isinstance(a, Constant) for a in value.args):
                args = {
                    k: fill_template(
                        "tl.full([], a, t)", {"a": v, "t": parse_expression(triton_type(compute_dtype(x.dtype)))}
                    )
                    if isinstance(x, Constant)
                    else v
                    for (k, v), x in zip(args.items(), value.args, strict=True)
                }
            return fill_template(value.op.text, args)
        raise TypeError(f"{value} is no part of such a kernel")

    def index(self, index: Index, indirect: Sequence[Value]) -> str:
        """Return an index as text."""
        printed = self.strategy.index(self, index)
        self.printed_sizes.update(s for s in printed.free_symbols if s.is_positive)  # an axis may be 0
        names = dict(self.strategy.axis_names(self, printed))
        for value in indirect:
            names[self.symbols[id(value)]] = _operand_text(self.ref(value))
        return index_text(printed, names, self.strategy.sizes(self, printed))

    def guard(self, guard: Guard, indirect: Sequence[Value]) -> str:
        """Return the conditions of a guard as text."""
        parts = [self._condition(c, indirect) for c in guard]
        return parts[0] if len(parts) == 1 else " & ".join(f"({p})" for p in parts)

    def _condition(self, condition: Comparison, indirect: Sequence[Value]) -> str:
        gap = sympy.expand(condition.left - condition.right)
        left = right = ZERO
        for term in sympy.Add.make_args(gap):
            if term.is_Integer or term.could_extract_minus_sign():
                right -= term
            else:
                left += term
        sign = condition.sign
        if left == 0:
            left, right, sign = right, left, {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(sign, sign)
        return f"{self.index(left, indirect)} {sign} {self.index(right, indirect)}"

    def mask(self, axes: Axes, guard: Guard = (), indirect: Sequence[Value] = ()) -> str:
        """Return the mask of elements that vary over `axes`, as text, "" for no mask."""
        parts = list(self.strategy.masks(self, axes))
        if guard:
            text = self.guard(guard, indirect)
            parts.append(f"({text})" if parts and len(guard) == 1 else text)
        return " & ".join(parts)

    def pointers(self) -> list[KernelParameter]:
        """Return the pointer parameters of the kernel."""
        return [KernelParameter(f"{b}_ptr") for b in dict.fromkeys((*self.reads, *self.writes))]

    def pointer(self, buffer: Buffer, index: Index, indirect: Sequence[Value]) -> str:
        text = self.index(index, indirect)
        return f"{buffer.name}_ptr" if text == "0" else f"{buffer.name}_ptr + {text}"

    def _load(self, value: Load) -> ast.expr:
        self.reads[value.buffer.name] = value.buffer
        pointer, mask = (
            self.pointer(value.buffer, value.index, value.indirect),
            self.mask(value.axes, value.guard, value.indirect),
        )
        moving = self._moving(value.index, value.indirect)
        if mask and not any(d.block > 1 for d in self.dims_of(moving & value.axes)):
            pointer = f"tl.broadcast_to({pointer}, {self.tile_shape(value.axes)})"
        args, other = [pointer], self.padding.get(id(value))
        if mask:
            args += [f"mask={mask}", *([f"other={unparse(_number(other))}"] if other is not None else [])]
        if is_read_again(value, self.loads, moving, self.tile):
            args.append('eviction_policy="evict_last"')
        text = f"tl.load({', '.join(args)})"
        if value.buffer.dtype != value.dtype:
            text += f".to({triton_type(value.dtype)})"
        return parse_expression(text)

    def _moving(self, index: Index, indirect: Sequence[Value]) -> Axes:
        """Return the symbols that an index varies with, and the axes of its indirect values."""
        behind = {self.symbols[id(v)]: v.axes for v in indirect}
        symbols = set(index.free_symbols)
        return frozenset(symbols.union(*(a for s, a in behind.items() if s in index.free_symbols)))

    def store(self, store: Store) -> None:
        self.writes[store.buffer.name] = store.buffer
        if isinstance(store, IndexedStore):
            self._store_indexed(store)
            return
        value = unparse(self.ref(store.value))
        axes = self.axes_of(store)
        mask = self.mask(axes)
        pointer = self.pointer(store.buffer, store.index, ())
        args = [pointer, value, *([f"mask={mask}"] if mask else [])]
        length = len(f"tl.store({', '.join(args)})") + (8 if self.in_loop else 4)
        if length > LINE_WIDTH and not isinstance(store.value, Constant):
            expression = self.ref(store.value)
            if not isinstance(expression, ast.Name):
                args[1] = unparse(self.assign(store.value, expression))
        self.call("tl.store", args, store.node)

    def axes_of(self, store: Store) -> Axes:
        """Return the tile axes over which a store runs."""
        return frozenset(s for a in store.axes for s in self.tile.index(a).free_symbols)

    def _store_indexed(self, store: IndexedStore) -> None:
        """Write a store to indexed places, or an atomic addition. Every element of the tile is added separately."""
        axes, value = self.axes_of(store), self.ref(store.value)
        value = value if isinstance(value, (ast.Name, ast.Constant)) else self.assign(store.value, value)
        pointer, parts = self.pointer(store.buffer, store.index, store.indirect), [self.mask(axes)]
        if self.dims_of(axes) != self.dims_of(self._moving(store.index, store.indirect) & axes):
            pointer = f"tl.broadcast_to({pointer}, {self.tile_shape(axes)})"
        if store.where is not None:
            where = self.ref(store.where)
            parts.append(_operand_text(where) if parts[0] else unparse(where))
        mask = " & ".join(p for p in parts if p)
        args = [pointer, unparse(value), *([f"mask={mask}"] if mask else [])]
        if isinstance(store, AtomicAdd):
            self.adds[store.buffer.name] = None
            self.call("tl.atomic_add", [*args, 'sem="relaxed"'], store.node)
        else:
            self.call("tl.store", args, store.node)


def _number(value: bool | int | float) -> ast.expr:
    if isinstance(value, float) and not math.isfinite(value):
        text = "float('nan')" if math.isnan(value) else f"{'-' if value < 0 else ''}float('inf')"
        return parse_expression(text)
    return parse_expression(repr(value))


def _in_single_precision(value: bool | int | float) -> bool:
    return value != value or torch.tensor(value, dtype=torch.float32).item() == value


def _operand_text(expr: ast.expr) -> str:
    text = unparse(expr)
    return text if isinstance(expr, (ast.Name, ast.Constant, ast.Call)) else f"({text})"


def is_read_again(load: Load, loads: Iterable[Load], moving: Axes, tile: Tile) -> bool:
    """Return True if other programs read the elements of a load, too, or this program reads its neighbours.

    `loads` are those of the kernel, `moving` the axes that the address varies with. Operands of a product, which a
    program loops over, do not count: caching them would evict the rest.
    """
    along = {s for a in moving for s in tile.index(a).free_symbols}
    passed = [d for d in tile.dims if along & set(d.axes)]
    if not any(d.block > 1 for d in passed):
        return False
    spread = [d for d in tile.dims if d.role == "grid" and not _is_in_one_program(d, tile)]
    streams = any(d.role == "loop" for d in passed)
    shared = not streams and any(not along.issuperset(d.axes) for d in spread)
    return shared or any(_is_near(load, other, tile) for other in loads)


def _is_in_one_program(dim: Dim, tile: Tile) -> bool:
    """Return True if one program has all of a dimension for every block size."""
    blocks = (dict(c.blocks).get(dim.block_name, dim.block) for c in tile.configs)
    return bool(dim.size.is_Integer) and dim.size <= min(blocks, default=dim.block)


def _is_near(load: Load, other: Load, tile: Tile) -> bool:
    """Return True if a guarded load reads the elements of another load, less than a row apart."""
    if not load.guard or other.guard or other.buffer is not load.buffer or other.indirect or load.indirect:
        return False
    gap = sympy.expand(load.index - other.index)
    return bool(gap.is_Integer) and abs(gap) < tile.dims[-1].size
