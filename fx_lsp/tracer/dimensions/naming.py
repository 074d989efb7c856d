"""Find the sizes of a trace that have names in the code.

A target runs once on symbols, while its variables are observed. A variable whose value is a symbol, or computed from
symbols, names it in that run of its function and in its callees. So sizes have equal names because they are the same
variable, and never because their numbers are equal.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

from fx_lsp.model import NamedSizes, Span
from fx_lsp.tracer.compat import FakeTensorMode, FloorDiv, sympy
from fx_lsp.tracer.dimensions.sources import Place, named_shapes, reads_sizes
from fx_lsp.tracer.dimensions.symbolic import Sizes, sizes_of
from fx_lsp.tracer.dimensions.watch import FunctionRun, SymbolicRun, observed
from fx_lsp.tracer.inputs.outcome import Prepared
from fx_lsp.tracer.inputs.plan.dims import Shape
from fx_lsp.tracer.inputs.solve.path_conditions import Condition
from fx_lsp.tracer.run.observation import Statements
from fx_lsp.tracer.run.values.symbols import symbol_text
from fx_lsp.tracer.source.provenance import Sources

MAX_CALLS = 500
"""The most torch calls of a target that runs on symbols."""
ENOUGH = 0.8
"""The share of the torch calls of a run after which a run on symbols that ended early counts as complete."""
MAX_TEXT = 24
"""The most characters in the name of a size."""
MAX_TERM = 8
"""The largest summand in the name of a size: `T + 1`, not `192 - 2*n`."""


def finder_of_names(
    prepared: Prepared, tree: ast.Module, reached: str, sources: Sources, mode: FakeTensorMode
) -> Callable[[], tuple[NamedSizes, ...]] | None:
    """Return a function that finds the names of sizes of a call that has run; None if the code has none.

    `reached` is the text of the file with all lines blank that the call does not reach.
    """
    lines, calls = reached.splitlines(), prepared.run.calls
    shapes = named_shapes(tree, sources.file, lines)
    if calls > MAX_CALLS or not (shapes or reads_sizes(tree, lines)):
        return None

    def find() -> tuple[NamedSizes, ...]:
        statements = Statements(tree, sources.file)
        attempts = (observed(prepared.call, statements, sources, mode, numbers) for numbers in (True, False))
        best = max(_until_complete(attempts, calls), key=lambda attempt: attempt.calls)
        return tuple(_Resolution(best, shapes).named())

    return find


def _until_complete(attempts: Iterator[SymbolicRun], calls: int) -> Iterator[SymbolicRun]:
    for attempt in attempts:
        yield attempt
        if attempt.calls >= ENOUGH * calls:
            return


class _Resolution:
    """Resolve the names of sizes from a run on symbols and from written shapes."""

    def __init__(self, run: SymbolicRun, shapes: Mapping[Place, Shape]) -> None:
        self._run, self._symbols, self._shapes = run, run.symbols, shapes
        self._names: dict[FunctionRun, dict[Any, str]] = {}
        self._bound: dict[FunctionRun, dict[str, Any]] = {}
        self._texts: dict[FunctionRun | None, dict[Any, str]] = {}

    def named(self) -> Iterator[NamedSizes]:
        """Yield the sizes of all observed values with a name, unless two runs disagree on it, and fixed ones."""
        merged: dict[tuple[Any, ...], list[set[str]]] = {}
        fixed: dict[tuple[Any, ...], tuple[Span | None, ...]] = {}

        def add(kind: str, span: Span | None, name: str, sizes: Sizes, texts: list[str]) -> None:
            numbers = tuple(number for size in sizes if (number := self._number(size)) is not None)
            if len(numbers) < len(sizes):
                return
            several = merged.setdefault((kind, span, name, numbers), [set() for _ in sizes])
            fixed.setdefault((kind, span, name, numbers), tuple(map(self._fixed.get, sizes)))
            for names, text in zip(several, texts, strict=True):
                names.add(text)

        for scope in self._run.scopes:
            for place, sizes in scope.seen():
                add("value", *place, sizes, self._value(scope, place, sizes))
            for span, sizes in scope.operations:
                add("operation", span, "", sizes, [self._text(scope, size) for size in sizes])
        for path, sizes in self._symbols.inputs.items() if self._run.scopes else ():
            add("input", None, path, sizes, [self._text(self._run.scopes[0], size) for size in sizes])
        for (kind, span, name, numbers), texts in merged.items():
            names = tuple(next(iter(names)) if len(names) == 1 else "" for names in texts)
            by = fixed[kind, span, name, numbers]
            if any(names) or any(by):
                yield NamedSizes(kind, span, name, numbers, names, by if any(by) else ())

    def _value(self, scope: FunctionRun, place: Place, sizes: Sizes) -> list[str]:
        """Return the names of the sizes of a value: those written at its place, else those of the function.

        Written names do not count if the function uses them for other sizes.
        """
        written = self._written(scope, place, sizes)
        self._names_in(scope)
        bound = self._bound[scope]
        if not all(self._is_same(bound.get(name, size), size) for name, size in zip(written, sizes, strict=True)):
            written = [""] * len(sizes)
        return [name or self._text(scope, size) for name, size in zip(written, sizes, strict=True)]

    def _written(self, scope: FunctionRun, place: Place, sizes: Sizes) -> list[str]:
        """Return the written names for a value; empty ones if they do not fit it, or the function's variables."""
        shape = _expanded(self._shapes.get(place, ()), len(sizes))
        numbers = [self._number(size) for size in sizes]
        by_name = {name: self._number(size) for name, size in scope.variables.items() if size is not None}
        for size, number in zip(shape, numbers, strict=False):
            if (size if isinstance(size, int) else by_name.setdefault(size, number) if size else number) != number:
                return [""] * len(sizes)
        return ["" if isinstance(size, int) else size for size in shape] or [""] * len(sizes)

    def _is_same(self, size: Any, other: Any) -> bool:
        """Return True for two sizes that are the same, or that operations found equal."""
        return size == other or other in self._equal.get(size, ())

    def _number(self, size: Any) -> int | None:
        """Return the size in the observed run; None if it follows from the value of a tensor."""
        values = self._symbols.conditions.values
        return int(size.xreplace(values)) if size.free_symbols <= values.keys() else None

    def _names_in(self, scope: FunctionRun) -> dict[Any, str]:
        """Return the names of sizes in a run of a function: its variables, then written names, then its
        callers' names.
        """
        if scope in self._names:
            return self._names[scope]
        names: dict[Any, str] = {}
        for name, size in scope.variables.items():
            if size is not None and not size.is_Integer and not name.startswith("_"):
                names.setdefault(size, name)
        bound = {**scope.variables}
        for place, sizes in scope.seen():
            written = self._written(scope, place, sizes)
            pairs = [(name, size) for name, size in zip(written, sizes, strict=True) if name.isidentifier()]
            if all(bound.get(name, size) == size for name, size in pairs):
                bound |= {name: size for name, size in pairs if name not in bound}
                for name, size in pairs:
                    if not size.is_Integer:
                        names.setdefault(size, name)
        around = self._symbols.attributes if scope.outer is None else self._names_in(scope.outer)
        for size, name in around.items():
            if name not in bound and name not in names.values():
                names.setdefault(size, name)
        self._names[scope], self._bound[scope] = names, bound
        return names

    @cached_property
    def _equal(self) -> dict[sympy.Symbol, set[sympy.Symbol]]:
        """Return the sizes of other inputs that operations found equal to each size of an input."""
        paths = self._symbols.paths
        classes: dict[sympy.Symbol, set[sympy.Symbol]] = {}
        for condition in self._symbols.conditions.conditions:
            sides = _equal_symbols(condition) if condition.held else ()
            if sides and all(side in paths for side in sides) and paths[sides[0]] != paths[sides[1]]:
                both = set().union(*(classes.get(side, {side}) for side in sides))
                classes.update(dict.fromkeys(both, both))
        return classes

    @cached_property
    def _fixed(self) -> dict[sympy.Symbol, Span]:
        """Return the expressions whose operations need sizes of inputs to be the numbers of other tensors in them."""
        fixed: dict[sympy.Symbol, Span] = {}
        for condition in self._symbols.conditions.conditions:
            sides: tuple[Any, ...] = condition.expression.args if isinstance(condition.expression, sympy.Eq) else ()
            for size, number in (sides, sides[::-1]) if sides and condition.held and condition.chain else ():
                others = (other for tensor in condition.operands for other in sizes_of(tensor))
                if size in self._symbols.paths and number.is_Integer and number in others:
                    fixed.setdefault(size, condition.chain[0])
        return fixed

    @cached_property
    def _requested(self) -> dict[Any, Any]:
        """Return the requested sizes of computed results, unless they are numbers of the model."""
        pairs = (pair for scope in self._run.scopes for pair in scope.requested)
        return {size: asked for size, asked in pairs if size != asked and size.args and asked.free_symbols}

    def _text(self, scope: FunctionRun, size: Any) -> str:
        """Return the name of a size in a run of a function; "" without one."""
        texts = self._texts.setdefault(scope, {})
        if size not in texts:
            texts[size] = "" if size.is_Integer else self._composed(scope, size)
        return texts[size]

    def _composed(self, scope: FunctionRun, size: Any) -> str:
        names = self._names_in(scope)
        if size in names:
            return names[size]
        asked = self._requested.get(size)
        if asked in names:
            return names[asked]
        size = size if asked is None else asked
        symbols: dict[Any, Any] = {s: sympy.Symbol(name, integer=True, positive=True) for s, name in names.items()}
        for symbol in size.free_symbols - symbols.keys():
            equal = next((s for s in symbols if s in self._equal.get(symbol, ())), None)
            if equal is not None:
                symbols[symbol] = symbols[equal]
        expression = size.xreplace(symbols)
        if not expression.free_symbols <= set(symbols.values()) or not _is_plain(expression):
            return ""
        order = {symbols[s]: place for place, s in enumerate(symbols)}
        factors: list[Any] = sorted(sympy.Mul.make_args(expression), key=lambda factor: order.get(factor, -1))
        several = len(factors) > 1 and all(factor in order or factor.is_Integer for factor in factors)
        text = "*".join(map(str, factors)) if several else symbol_text(expression).replace(" ", "")
        return text if len(text) <= MAX_TEXT else ""


def _equal_symbols(condition: Condition) -> tuple[sympy.Symbol, ...]:
    """Return the two symbols of an equality, alone or as the only difference of two products; else ()."""
    equality: Any = condition.expression
    if equality.func is not sympy.Eq:
        return ()
    sides: list[list[Any]] = [list(sympy.Mul.make_args(side)) for side in equality.args]
    for factor in list(sides[0]):
        if factor in sides[1]:
            sides[0].remove(factor)
            sides[1].remove(factor)
    rest = tuple(factor for side in sides for factor in side)
    return rest if len(rest) == 2 == len(sides[0]) + 1 and all(map(_is_symbol, rest)) else ()


def _is_symbol(expression: Any) -> bool:
    return isinstance(expression, sympy.Symbol)


def _is_plain(expression: Any) -> bool:
    """Return True for a readable size: sums, products and quotients without large summands."""
    parts = list(sympy.preorder_traversal(expression))
    plain = (sympy.Add, sympy.Mul, sympy.Pow, sympy.Symbol, sympy.Integer, FloorDiv)
    summands = [term for part in parts if isinstance(part, sympy.Add) for term in part.args]
    dividends = [part.args[0] for part in parts if isinstance(part, FloorDiv)]
    large = any(term.is_Integer and abs(int(term)) > MAX_TERM for term in summands)
    return all(isinstance(part, plain) for part in parts) and not large and not any(d.is_Integer for d in dividends)


def _expanded(shape: Shape, rank: int) -> Shape:
    """Return a shape with "" for each dimension of `...`; () if it has another rank."""
    if "..." not in shape:
        return shape if len(shape) == rank else ()
    place, more = shape.index("..."), rank - len(shape) + 1
    return (*shape[:place], *[""] * more, *shape[place + 1 :]) if more >= 0 else ()
