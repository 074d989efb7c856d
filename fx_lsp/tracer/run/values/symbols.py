"""Create symbols for sizes and numbers: for the dynamic dimensions of a comment, and for data-dependent values."""

from __future__ import annotations

import ast
import linecache
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch

from fx_lsp.messages.assumptions import (
    BECOMES,
    CHECKS,
    EQUALS,
    NEEDS_NUMBER,
    ONLY_WHEN,
    ONLY_WORKS_WITH_SIZE,
    VALID_WHEN,
)
from fx_lsp.model import Remark, Span
from fx_lsp.tracer.compat import DATA_DEPENDENT, ConstantSource, DimDynamic, ShapeEnv, StrPrinter, SymbolPrinter, sympy
from fx_lsp.tracer.run.call import RUN_CODE
from fx_lsp.tracer.run.values.decisions import Decisions, current_decisions
from fx_lsp.tracer.source.expressions import expression, shown_text, verb_of
from fx_lsp.tracer.source.names import Assigned, identifier
from fx_lsp.tracer.source.provenance import Chain, Sources


@dataclass
class Guard:
    """Hold a condition on named sizes that has to hold for the trace to be valid.

    `chain` is the place of its evaluation, `number` is True if the code needed a plain number there; `fixed` are the
    symbols that it replaced, and their replacements.
    """

    condition: sympy.Basic
    chain: Chain
    number: bool
    fixed: dict[sympy.Symbol, sympy.Basic] = field(default_factory=dict[sympy.Symbol, sympy.Basic])


class Symbols(ShapeEnv):
    """Hold the symbols of one trace, under the user's names, and the requirements of the code on them.

    `lines` and `assigned` (the variable of each assigned expression) are those of the target's file. With `unbacked`
    there are also symbols for data-dependent numbers and sizes. Symbols are at least 2; `not_one` are conditions that
    the code itself asks for, and that a size of 1 would change.
    """

    def __init__(self, sources: Sources, lines: list[str], assigned: Mapping[Span, Assigned], unbacked: bool) -> None:
        super().__init__(allow_scalar_outputs=unbacked, allow_dynamic_output_shape_ops=unbacked)
        self.sources, self.lines, self.assigned = sources, lines, assigned
        self.names_values = unbacked
        self.named: dict[sympy.Symbol, str] = {}
        self.hints: dict[str, int] = {}
        self.guards_seen: list[Guard] = []
        self.not_one: list[sympy.Basic] = []
        self._checks = Decisions(sources, lines, only_checks=True)
        self._checked: set[sympy.Basic] = set()
        self._made: dict[sympy.Symbol, str] = {}
        self._demanded: dict[Chain, tuple[str, int]] = {}
        self._names: dict[tuple[Chain, int], str] = {}
        self._run: FrameType | None = None
        self._counting: object = None
        self._counts: dict[object, torch.SymInt] = {}
        self._occurrences: Counter[Chain] = Counter()

    def sizes(self, hints: Mapping[str, int]) -> dict[str, Any]:
        """Return a symbolic size for each name, with its hint as the number if one is needed."""
        symbolic: dict[str, Any] = {}
        self.hints.update(hints)
        for name, hint in hints.items():
            source = ConstantSource(name)
            symbol = self.create_symbol(hint, source, DimDynamic.DYNAMIC)
            assert isinstance(symbol, sympy.Symbol)
            self.named[symbol] = name
            symbolic[name] = self.create_symintnode(symbol, hint=hint, source=source)
        return symbolic

    def text(self, value: sympy.Basic) -> str:
        """Return an expression in the user's names: `2*B`, `B*T`, `B // 2`, `B % 8 == 0`."""
        return symbol_text(self.plain(value))

    def plain(self, value: sympy.Basic) -> sympy.Basic:
        """Return an expression with the user's names for its symbols, as positive sizes."""
        return renamed(value, {s: self._name(s) for s in value.free_symbols if isinstance(s, sympy.Symbol)})

    def _name(self, symbol: sympy.Symbol) -> str:
        return self.named.get(symbol) or self._made.get(symbol) or str(symbol)

    def value_of(self, name: str) -> str:
        """Return the value of a named size after the trace: itself, a number, or another name."""
        symbol = next(s for s, n in self.named.items() if n == name)
        return self.text(self.replace(symbol))

    def counted(self) -> str:
        """Return the numbers of named sizes where numbers are needed: "B as 16, T as 24"; "" if none is left."""
        return ", ".join(f"{name} as {hint}" for name, hint in self.hints.items() if self.value_of(name) == name)

    @contextmanager
    def counting(self, key: object) -> Generator[None, None, None]:
        """Reuse inside the data-dependent size that this run created for the same `key` before."""
        before, self._counting = self._counting, key
        try:
            yield
        finally:
            self._counting = before

    def create_unbacked_symint(self, *args: Any, **kwargs: Any) -> torch.SymInt:
        run = _run_around(sys._getframe(1))
        if run is None or self._counting is None:
            return self._called(super().create_unbacked_symint(*args, **kwargs))
        if run is not self._run:
            self._counts.clear()
        if self._counting not in self._counts:
            self._counts[self._counting] = self._called(super().create_unbacked_symint(*args, **kwargs))
        return self._counts[self._counting]

    def create_unbacked_symfloat(self, *args: Any, **kwargs: Any) -> torch.SymFloat:
        return self._called(super().create_unbacked_symfloat(*args, **kwargs))

    def create_unbacked_symbool(self, *args: Any, **kwargs: Any) -> torch.SymBool:
        return self._called(super().create_unbacked_symbool(*args, **kwargs))

    @property
    def has_unknown(self) -> bool:
        """Return True if the code created data-dependent numbers or sizes, not only to check them."""
        return bool(self._made.keys() - self._checked)

    def evaluate_expr(self, orig_expr: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            result = super().evaluate_expr(orig_expr, *args, **kwargs)
            if _is_users_question(sys._getframe(1)):
                self._note_one(orig_expr, result)
            return result
        except DATA_DEPENDENT:
            passes = (current_decisions() or self._checks).outcome(sys._getframe(1))
            if passes is None:
                raise
            self._checked |= orig_expr.free_symbols
            return sympy.true if passes else sympy.false

    def _note_one(self, asked: Any, result: Any) -> None:
        """Record a condition that the code asks for, if a size of 1 would change the answer: symbols are larger."""
        for symbol in asked.free_symbols & self.named.keys() if isinstance(asked, sympy.Basic) else ():
            if asked.xreplace({symbol: sympy.Integer(1)}) == sympy.Not(result):
                self.not_one.append(asked if result else sympy.Not(asked))

    def conditions(self) -> Iterator[sympy.Basic]:
        """Yield the conditions that sizes must meet, in the user's names, without those that replace a symbol."""
        guards = [guard.condition for guard in self.guards_seen if not guard.fixed]
        yield from dict.fromkeys(self.plain(self.replace(condition)) for condition in (*guards, *self.not_one))

    def _called(self, number: Any) -> Any:
        """Name a number after the place where the code creates it.

        AOTAutograd runs the code several times: numbers at the same place of each run have the same name.
        """
        frame = sys._getframe(2)
        chain = self.sources.chain(frame, RUN_CODE)
        run = _run_around(frame)
        if run is not self._run:
            self._run = run
            self._occurrences.clear()
        for symbol in number.node.expr.free_symbols:
            place = chain, self._occurrences[chain]
            if place not in self._names:
                wish = wished_name(chain, self.assigned, self._expression(chain))
                names_in_use = {*self.hints, *self._names.values()}
                others = (f"{wish}_{n}" for n in range(1, len(names_in_use) + 1))
                self._names[place] = (
                    wish if wish not in names_in_use else next(n for n in others if n not in names_in_use)
                )
            self._made[symbol] = self._names[place]
            self._occurrences[chain] += 1
        return number

    def _log_guard(self, prefix: str, g: Any, forcing_spec: bool) -> None:
        super()._log_guard(prefix, g, forcing_spec)
        if g.free_symbols and g.free_symbols <= self.named.keys():
            frame, number = sys._getframe(1), False
            chain = self.sources.chain(frame, RUN_CODE)
            while frame is not None and not number and frame.f_code is not RUN_CODE:
                number, frame = frame.f_code.co_name == "guard_int", frame.f_back
            self.guards_seen.append(Guard(g, chain, number))

    def _set_replacement(self, a: sympy.Symbol, tgt: sympy.Expr, msg: str) -> None:
        is_least = tgt.is_Integer and self.bound_sympy(a).lower == tgt
        super()._set_replacement(a, tgt, msg)
        if a in self._made and tgt.is_Integer and not is_least:
            self._demanded.setdefault(self.sources.chain(sys._getframe(1), RUN_CODE), (self._made[a], int(tgt)))
        if self.guards_seen and a in self.named and all(a not in guard.fixed for guard in self.guards_seen):
            self.guards_seen[-1].fixed[a] = tgt

    def remarks(self) -> tuple[Remark, ...]:
        """Return remarks on the replacements of named sizes, and on the assumptions of the trace, each in its place."""
        remarks: dict[Remark, None] = {}
        for guard in self.guards_seen:
            span = guard.chain[0] if guard.chain else None
            place = "here" if span is not None else "in the backward pass"
            node = self._expression(guard.chain)
            why = _reason(guard, node)
            reason = f": {why}" if why else ""
            plain = node if not why else None
            if not guard.fixed:
                condition = self.text(guard.condition)
                remark = _only_when(plain, span, condition) or VALID_WHEN.remark(
                    span, condition=condition, reason=reason
                )
                remarks[remark] = None
            for symbol, target in guard.fixed.items():
                name, value = self.named[symbol], self.text(target)
                remark = _only_when(plain, span, f"{name} == {value}") or (
                    BECOMES.remark(span, name=name, number=value, place=place, reason=reason)
                    if target.is_Integer
                    else EQUALS.remark(span, name=name, size=value, place=place, reason=reason)
                )
                remarks[remark] = None
        return (*remarks, *self._checks.remarks(), *self._demands())

    def _demands(self) -> Iterator[Remark]:
        """Yield remarks where a data-dependent size has to be a number that no data gives, except the least
        possible.
        """
        for chain, (name, size) in self._demanded.items():
            node = self._expression(chain)
            if node is not None and "_check" not in ast.unparse(node):
                yield ONLY_WORKS_WITH_SIZE.remark(chain[0], code=shown_text(node), dimension=name, size=size)

    def _expression(self, chain: Chain) -> ast.expr | None:
        if not chain:
            return None
        lines = self.lines if chain[0].file == self.sources.file else linecache.getlines(chain[0].file)
        return expression(chain[0], list(map(str.rstrip, lines)))


def _is_users_question(frame: FrameType | None) -> bool:
    """Return True if Python code outside of torch and fx-lsp asks whether a condition on sizes holds; `frame` is inside
    of the question.
    """
    asked = False
    while frame is not None and (module := frame.f_globals.get("__name__", "")) in _ASKING:
        asked |= module == "torch" and frame.f_code.co_name == "__bool__"
        frame = frame.f_back
    package = frame.f_globals.get("__name__", "").partition(".")[0] if frame is not None else ""
    return asked and package not in ("torch", "fx_lsp")


_ASKING = frozenset(
    {
        "torch",
        "torch.fx.experimental.recording",
        "torch.fx.experimental.sym_node",
        "torch.fx.experimental.symbolic_shapes",
        __name__,
    }
)
"""The modules that a question about a symbol passes through."""


def _run_around(frame: FrameType | None) -> FrameType | None:
    """Return the frame of the target's run around a frame, or None."""
    while frame is not None and frame.f_code is not RUN_CODE:
        frame = frame.f_back
    return frame


def _only_when(node: ast.expr | None, span: Span | None, condition: str) -> Remark | None:
    """Return the remark that an expression only works on a condition; None without an expression."""
    if node is None:
        return None
    return ONLY_WHEN.remark(span, code=shown_text(node), verb=verb_of(node), condition=condition)


def _reason(guard: Guard, node: ast.expr | None) -> str:
    """Return why a guard holds, if the expression that asks for it checks it or needs a number."""
    if node is None:
        return ""
    shown = shown_text(node)
    if guard.number:
        return NEEDS_NUMBER.format(code=shown)
    if isinstance(node, (ast.Compare, ast.BoolOp, ast.UnaryOp)):
        return CHECKS.format(code=shown)
    return ""


def wished_name(chain: Chain, assigned: Mapping[Span, Assigned], node: ast.expr | None) -> str:
    """Return a name for a data-dependent number: the variable that it is bound to, or the function that returns it."""
    called = ""
    if isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if called in ("item", "tolist"):
        return identifier(next((v for span in chain if isinstance(v := assigned.get(span), str)), "item"))
    if isinstance(node, ast.Subscript):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        bounds = [p.upper for p in parts if isinstance(p, ast.Slice)]
        return next((b.id for b in bounds if isinstance(b, ast.Name)), "num_sliced" if any(bounds) else "num_nonzero")
    return identifier(f"num_{called}" if called else "number")


def renamed(value: sympy.Basic, names: Mapping[sympy.Symbol, str]) -> sympy.Basic:
    """Return an expression with other names for its symbols."""
    return value.xreplace({s: sympy.Symbol(name, integer=True, positive=True) for s, name in names.items()})


def symbol_text(value: sympy.Basic) -> str:
    """Return an expression of symbols as Python source."""
    return _Printer().doprint(value)


class _Printer(SymbolPrinter):
    """Print as Python, without unnecessary brackets."""

    def _print_Relational(self, expr: Any) -> str:
        return f"{self._print(expr.lhs)} {expr.rel_op} {self._print(expr.rhs)}"

    def _print_Add(self, expr: Any, order: str | None = None) -> str:
        return StrPrinter._print_Add(self, expr, order)

    def _print_Float(self, expr: Any) -> str:
        return repr(float(expr))


def scalar_text(value: Any) -> str | None:
    """Return a symbolic number in the user's names; None for anything else."""
    if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return None
    symbols = value.node.shape_env
    return symbols.text(value.node.expr) if isinstance(symbols, Symbols) else str(value)


def expressions(sizes: Sequence[Any]) -> list[Any]:
    """Return sizes or strides in a form that can be compared without guards."""
    return [_expression_of(s) if isinstance(s, torch.SymInt) else sympy.Integer(s) for s in sizes]


def _expression_of(size: torch.SymInt) -> sympy.Basic:
    symbols = size.node.shape_env
    return symbols.plain(size.node.expr) if isinstance(symbols, Symbols) else size.node.expr


def with_sizes(tensor: torch.Tensor, size: Callable[[int], int | torch.SymInt]) -> torch.Tensor:
    """Return a new tensor like this one, with `size(dim)` as its sizes; the same one if it is not dense."""
    is_plain = tensor.layout is torch.strided and all(type(n) is int for n in (*tensor.shape, *tensor.stride()))
    order = sorted(range(tensor.dim()), key=lambda dim: -tensor.stride(dim)) if is_plain else []
    if not order or not tensor.permute(order).is_contiguous():
        return tensor
    dense = torch.empty([size(dim) for dim in order], dtype=tensor.dtype, device=tensor.device)
    back = sorted(range(len(order)), key=order.__getitem__)
    return dense.permute(back).detach().requires_grad_(tensor.requires_grad)


def size_hint(size: Any) -> int:
    """Return a size as a number: the hint of a named one, and 0 for a data-dependent one."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    return int(size.node.hint or 0) if size.node.has_hint() else 0
