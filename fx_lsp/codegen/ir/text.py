"""Print expressions as Python text without needless brackets. `file/format.py` breaks it over lines."""

from __future__ import annotations

import ast
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

import sympy

from fx_lsp.codegen.ir.index import FloorDiv, Index, Mod, TrueDiv


def fill_template(template: str, args: Mapping[str, ast.expr]) -> ast.expr:
    """Return a template of an expression with its names replaced by expressions."""
    return substitute(parse_expression(template), args)


def substitute(expression: ast.expr, args: Mapping[str, ast.expr]) -> ast.expr:
    """Return an expression with its names replaced by expressions."""
    return _TemplateFiller(args).visit(expression)


class _TemplateFiller(ast.NodeTransformer):
    def __init__(self, args: Mapping[str, ast.expr]) -> None:
        self._args = args

    def generic_visit(self, node: ast.AST) -> ast.AST:
        fields = {
            name: [self.visit(v) for v in value]
            if isinstance(value, list)
            else self.visit(value)
            if isinstance(value, ast.AST)
            else value
            for name, value in ast.iter_fields(node)
        }
        return type(node)(**fields)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._args.get(node.id, node)


@lru_cache(maxsize=2048)
def parse_expression(text: str) -> ast.expr:
    """Return the expression in a Python text."""
    return ast.parse(text, mode="eval").body


def name(text: str) -> ast.Name:
    """Return a name as an expression."""
    return ast.Name(text, ast.Load())


def unparse(node: ast.expr) -> str:
    """Return an expression as text, in the style of ruff."""
    text = ast.unparse(node)
    return _EXPONENT.sub("e", text if '"' in text else text.replace("'", '"'))


def ascii_identifier(identifier: str) -> str:
    """Return an identifier in ASCII, as operator schemas require: `alpha` for `α`, `cafe` for `café`."""
    letters = ""
    for letter in unicodedata.normalize("NFKD", identifier):
        if letter.isascii():
            letters += letter
        elif not unicodedata.combining(letter):
            letters += unicodedata.name(letter, "letter").rpartition(" ")[2].replace("-", "_").lower()
    return letters


_EXPONENT = re.compile(r"(?<=\d)e\+(?=\d)")


def index_text(index: Index, names: Mapping[sympy.Symbol, str], sizes: Mapping[int, str]) -> str:
    """Return an index as Python text.

    Coefficients that equal a size are written by its name, and so are offsets that are a multiple of a size.
    """
    return _sum_text(index, names, sizes, _multiple)


def _sum_text(
    index: Index,
    names: Mapping[sympy.Symbol, str],
    sizes: Mapping[int, str],
    number: Callable[[Index, Mapping[int, str]], str],
) -> str:
    terms = sorted(sympy.Add.make_args(index), key=lambda t: _order(t, list(names)))
    backwards = _descending(terms)
    if backwards is not None:
        counted, distance, last = backwards
        terms = [t for t in terms if t not in (-counted * distance, last * distance)]
        inside = f"({index_text(last - counted, names, {})})"
        rest = f"{_sum_text(sympy.Add(*terms), names, sizes, number)} + " if terms else ""
        return f"{rest}{inside} * {_product(distance, names, sizes)}"
    first = next((t for t in terms if not t.could_extract_minus_sign()), None)
    if first is not None and terms[0].could_extract_minus_sign():
        terms = [first, *(t for t in terms if t is not first)]
    parts: list[str] = []
    for term in terms:
        negative = bool(term.could_extract_minus_sign())
        term = -term if negative else term
        text = number(term, sizes) if term.is_Integer else _product(term, names, sizes)
        parts.append((" - " if negative else " + ") + text if parts else ("-" if negative else "") + text)
    return "".join(parts)


def _descending(terms: Sequence[Index]) -> tuple[Index, Index, Index] | None:
    """Return (counter, distance, last) of a term that counts down: of `7 * N - step * N`, `step`, `N` and 7."""
    for term in terms:
        factor, counted = term.as_coeff_Mul()
        if counted.is_Symbol and factor.is_Integer and factor < -1:
            last = next((t / -factor for t in terms if t.is_Integer and t > 0 and t % factor == 0), None)
            if last is not None:
                return counted, -factor, last
    return None


def size_text(size: Index) -> str:
    """Return a size as Python text."""
    return index_text(size, {}, {})


def _order(term: Index, axes: list[sympy.Symbol]) -> tuple[int, int]:
    positions = [axes.index(s) for s in term.free_symbols if s in axes]
    return (0, min(positions)) if positions else (1, 0)


def _product(term: Index, names: Mapping[sympy.Symbol, str], sizes: Mapping[int, str]) -> str:
    unknowns: list[str] = []
    numbers: list[str] = []
    for factor in sorted(sympy.Mul.make_args(term), key=lambda f: f.is_Symbol and f not in names):
        if isinstance(factor, sympy.Integer):
            numbers.append(_number(factor, sizes))
        elif isinstance(factor, sympy.Float):
            numbers.append(repr(float(factor)))
        elif isinstance(factor, (FloorDiv, Mod, TrueDiv)):
            sign = _OPERATORS[type(factor)]
            left, right = (_operand(a, names, sizes) for a in factor.args)
            text = f"{left} {sign} {right}"
            unknowns.append(text if factor is term else f"({text})")
        elif isinstance(factor, sympy.Symbol):
            unknowns.append(names.get(factor, factor.name))
        elif isinstance(factor, sympy.Pow):
            base, exponent = _operand(factor.base, names, sizes), factor.exp
            times = isinstance(exponent, sympy.Integer) and exponent.is_positive  # Triton has no integer powers
            unknowns.extend([base] * int(exponent) if times else [f"{base} ** {exponent}"])
        elif isinstance(factor, (sympy.Max, sympy.Min)):
            inside = ", ".join(_sum_text(a, names, sizes, _number) for a in factor.args)
            unknowns.append(f"{type(factor).__name__.lower()}({inside})")
        elif isinstance(factor, sympy.Add):
            unknowns.append(_operand(factor, names, sizes))
        else:
            raise TypeError(f"cannot write {factor} in Python")
    return " * ".join([*unknowns, *numbers]) or "1"


def multiple_of(index: Index, sizes: Iterable[int]) -> int | None:
    """Return the largest of the sizes of which the offset in an index is a proper multiple, or None."""
    offset = abs(int(index.as_coeff_Add()[0]))
    return max((s for s in sizes if s < offset and offset % s == 0), default=None)


def _number(number: Index, sizes: Mapping[int, str]) -> str:
    return sizes.get(int(number)) or str(number)


def _multiple(number: Index, sizes: Mapping[int, str]) -> str:
    size = None if int(number) in sizes else multiple_of(number, sizes)
    return f"{number // size} * {sizes[size]}" if size else _number(number, sizes)


_OPERATORS: Mapping[type, str] = {FloorDiv: "//", Mod: "%", TrueDiv: "/"}


def _operand(index: Index, names: Mapping[sympy.Symbol, str], sizes: Mapping[int, str]) -> str:
    text = _sum_text(index, names, sizes, _number)
    return text if index.is_Symbol or (index.is_Integer and index.is_nonnegative) else f"({text})"


LINE_WIDTH = 88
