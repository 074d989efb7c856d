"""Lower ATen nodes to values: the element of a node at given coordinates, in terms of buffers in memory.

Everything between memory and the wanted element is inlined. Views only change coordinates. Element-wise operations keep
them. Reductions add the axes that they run over.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch import fx

from fx_lsp.codegen.graph.query import computes_nothing, constant_of, is_empty, shape_of
from fx_lsp.codegen.ir.index import Coords, Index, Space, contiguous_strides, expression, linear, rejoin_divisions
from fx_lsp.codegen.ir.lowerings import NotFusible, args_of, lowering_of
from fx_lsp.codegen.ir.node_facts import facts_of
from fx_lsp.codegen.ir.ops import WHERE, Op, Scalar, cast, op, triton_type
from fx_lsp.codegen.ir.values import (
    Axes,
    Buffer,
    Comparison,
    Compute,
    Constant,
    Coordinate,
    Guard,
    Load,
    Reduction,
    Scan,
    Test,
    Value,
    compute_dtype,
)

MAX_PLACES = 8
"""The largest number of coordinates of one kernel at which an operation is recomputed instead of stored."""


@dataclass(frozen=True)
class Domain:
    """The axes that a kernel runs over, outermost first. Together they number the elements of its largest tensors."""

    axes: tuple[sympy.Symbol, ...]
    sizes: Coords

    def position(self, without: Axes = frozenset()) -> Index:
        """Return the flat index of an element over the axes, except those in `without`."""
        remaining = [(a, s) for a, s in zip(self.axes, self.sizes, strict=True) if a not in without]
        return linear([a for a, _ in remaining], contiguous_strides([s for _, s in remaining]))


@dataclass
class Builder:
    """Build the values of one kernel. `buffers` are the nodes in memory; `bound` are nodes with a value given already.

    `whole` is True if all elements of a reduction are held at once. `invariant_axes` are axes along which nothing
    varies: a reduction along them repeats the same value.
    """

    space: Space
    domain: Domain
    buffers: Mapping[fx.Node, Buffer]
    whole: bool = True
    bound: Mapping[fx.Node, tuple[Coords, Value]] = field(default_factory=dict[fx.Node, tuple[Coords, Value]])
    indirect: dict[sympy.Symbol, Value] = field(default_factory=dict[sympy.Symbol, Value])
    invariant_axes: frozenset[sympy.Symbol] = frozenset()
    _values: dict[Any, Any] = field(default_factory=dict[Any, Any])
    _lowered: dict[Any, Value] = field(default_factory=dict[Any, Value])
    _place_counts: Counter[fx.Node] = field(default_factory=Counter[fx.Node])

    def lower(self, node: fx.Node, coords: Coords, guard: Guard = (), part: int = 0) -> Value:
        """Return the value of result number `part` of `node` at `coords`.

        Raises NotFusible if the node must be read from memory.
        """
        key = node, coords, guard, part
        if key not in self._lowered:
            self._lowered[key] = self._lower(node, coords, guard, part)
        return self._lowered[key]

    def _lower(self, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
        if node in self.bound:
            at, value = self.bound[node]
            if at != coords:
                raise NotFusible(node, "is needed at elements other than the current one")
            return value
        constant = constant_of(node)
        if constant is not None and constant.numel() == 1 and not constant.is_complex():
            return self.constant(constant.item(), compute_dtype(constant.dtype))
        if is_empty(node):
            return self.constant(0, compute_dtype(node.meta["val"].dtype))
        if node in self.buffers:
            return self.load(self.buffers[node], coords, guard, node)
        if facts_of(node).in_place:
            return self.lower(args_of(node)[0], coords, guard)
        lower = lowering_of(node)
        if lower is None:
            raise NotFusible(node, "has no lowering")
        if any(isinstance(a, fx.Node) for a in node.args) and not computes_nothing(node):
            self._place_counts[node] += 1
            if self._place_counts[node] > MAX_PLACES:
                raise NotFusible(node, f"is needed at more than {MAX_PLACES} places")
        return lower(self, node, coords, guard, part)

    def operand(self, argument: Any, coords: Coords, guard: Guard, dtype: torch.dtype) -> Value:
        """Return an argument of an element-wise operation, broadcast to `coords` and converted to `dtype`."""
        node = argument if isinstance(argument, fx.Node) else None
        value = argument if node is None else node.meta.get("val")
        if isinstance(value, (torch.SymInt, torch.SymFloat)):
            whole = torch.int64 if isinstance(value, torch.SymInt) else torch.float64
            return self.convert(self.coordinate(expression(value), node, whole), dtype)
        if not isinstance(argument, fx.Node):
            return self.constant(argument, dtype)
        shape = shape_of(argument)
        behind = coords[len(coords) - len(shape) :]
        at = tuple(sympy.Integer(0) if s == 1 else c for c, s in zip(behind, shape, strict=True))
        return self.convert(self.lower(argument, at, guard), dtype)

    def load(self, buffer: Buffer, coords: Coords, guard: Guard, node: fx.Node) -> Value:
        """Return the element of a buffer at `coords`."""
        index = rejoin_divisions(linear(coords, buffer.strides))
        if not index.free_symbols & self.indirect.keys():
            guard = tuple(c for c in guard if index.free_symbols & (c.left - c.right).free_symbols)
        free = index.free_symbols | {s for c in guard for e in (c.left, c.right) for s in e.free_symbols}
        key = Load, buffer, index, guard
        dtype = compute_dtype(buffer.dtype)
        return self._once(
            key, lambda: Load(dtype, node, self.axes_of(free), self.values_behind(free), buffer, index, guard)
        )

    def constant(self, value: Scalar, dtype: torch.dtype) -> Value:
        """Return a constant of a dtype."""
        if dtype is torch.bool:
            value = bool(value)
        elif dtype.is_floating_point:
            value = float(value)
        elif not isinstance(value, float) or math.isfinite(value):
            value = int(value)
        return self._once((Constant, repr(value), dtype), lambda: Constant(dtype, None, frozenset(), value))

    def coordinate(self, index: Index, node: fx.Node | None, dtype: torch.dtype = torch.int64) -> Value:
        """Return an index as a value."""
        if isinstance(index, sympy.Integer):
            return self.constant(int(index), dtype)
        free = index.free_symbols
        make = lambda: Coordinate(dtype, node, self.axes_of(free), self.values_behind(free), index)  # noqa: E731
        return self._once((Coordinate, index, dtype), make)

    def test(self, guard: Guard) -> Value:
        """Return the value of a guard: True if it holds."""
        free = {s for c in guard for e in (c.left, c.right) for s in e.free_symbols}
        return self._once(
            (Test, guard), lambda: Test(torch.bool, None, self.axes_of(free), self.values_behind(free), guard)
        )

    def compute(self, op: Op, args: tuple[Value, ...], dtype: torch.dtype, node: fx.Node | None) -> Value:
        """Return the expression `op` of `args`."""
        axes: Axes = frozenset[sympy.Symbol]().union(*(a.axes for a in args))
        key = Compute, op, tuple(map(id, args)), dtype
        return self._once(key, lambda: Compute(dtype, node, axes, op, args))

    def convert(self, value: Value, dtype: torch.dtype, node: fx.Node | None = None) -> Value:
        """Return a value converted to another dtype. Half precision is float32 while it is in registers."""
        dtype = compute_dtype(dtype)
        if value.dtype == dtype:
            return value
        if isinstance(value, Constant):
            return self.constant(value.value, dtype)
        if dtype is torch.bool:
            return self.compute(op("a != 0"), (value,), dtype, node)
        if isinstance(value, Coordinate) and not value.axes:  # a size of 1 is no tensor in a kernel
            return self.compute(op(f"tl.cast(a, {triton_type(dtype)})"), (value,), dtype, node)
        return self.compute(cast(dtype), (value,), dtype, node)

    def where(self, guard: Guard, value: Value, other: Value, node: fx.Node) -> Value:
        """Return `value` where the guard holds and `other` elsewhere."""
        if not guard:
            return value
        return self.compute(WHERE, (self.test(guard), value, other), value.dtype, node)

    def reduction(
        self, kind: str, args: tuple[Value, ...], over: tuple[sympy.Symbol, ...], node: fx.Node, part: int = 0
    ) -> Value:
        """Return result number `part` of a reduction of values over axes: a place, or of the dtype of the values."""
        dtype = torch.int64 if kind in ("argmax", "argmin") else args[0].dtype
        axes: Axes = frozenset[sympy.Symbol]().union(*(a.axes for a in args)) - frozenset(over)
        key = Reduction, kind, tuple(map(id, args)), over, part
        return self._once(key, lambda: Reduction(dtype, node, axes, kind, args, over, part))

    def scan(self, kind: str, arg: Value, over: tuple[sympy.Symbol, ...], node: fx.Node) -> Value:
        """Return the scan of a value along axes: its running result."""
        return self._once(
            (Scan, kind, id(arg), over), lambda: Scan(arg.dtype, node, arg.axes | set(over), kind, arg, over)
        )

    def index_symbol(self, value: Value, size: Index) -> sympy.Symbol:
        """Return a symbol for a value that is used as an index in [0, size)."""
        key = "index", id(value)
        if key not in self._values:
            symbol = self.space.axis("index", size)
            self.indirect[symbol] = value
            self._values[key] = symbol
        return self._values[key]

    def refine_guard(self, guard: Guard, left: Index, sign: Any, right: Index) -> Guard | None:
        """Return a guard with one more condition, unless that always holds. Returns None if it never holds."""
        bounds = self.space.bounds(left - right)
        if bounds is not None:
            low, high = bounds
            holds = {">=": low.is_nonnegative, "<": high.is_negative, "==": low == high == 0}[sign]
            never = {">=": high.is_negative, "<": low.is_nonnegative, "==": low.is_positive or high.is_negative}[sign]
            if holds or never:
                return guard if holds else None
        condition = Comparison(left, sign, right)
        return guard if condition in guard else (*guard, condition)

    def axes_of(self, free: Any) -> Axes:
        """Return the axes of the kernel that symbols depend on."""
        axes: set[sympy.Symbol] = set()
        for symbol in free:
            if symbol in self.indirect:
                axes |= self.indirect[symbol].axes
            elif symbol in self.space.sizes:
                axes.add(symbol)
        return frozenset(axes)

    def values_behind(self, free: Any) -> tuple[Value, ...]:
        """Return the values that index symbols replace, in the order of the symbols' names."""
        return tuple(self.indirect[s] for s in sorted(free, key=lambda s: s.name) if s in self.indirect)

    def _once(self, key: Any, make: Any) -> Any:
        if key not in self._values:
            self._values[key] = make()
        return self._values[key]
