"""Check annotations with dimensions, as in jaxtyping, against a run.

`def f(x: Float[Tensor, "b t c"]) -> Float[Tensor, "b c"]` names the sizes of `x`; the result, and variables with such
an annotation, have to agree with them.
"""

from __future__ import annotations

import ast
import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import UnionType
from typing import Any

import torch

from fx_lsp.messages.assumptions import ANNOTATED_DTYPE, ANNOTATED_LENGTH, ANNOTATED_RANK, ANNOTATED_SIZES
from fx_lsp.model import InputSpec, Related, Remark, Span
from fx_lsp.specs import DTYPES, TensorSpec, parse_spec
from fx_lsp.syntax import FunctionNode, own_nodes
from fx_lsp.tracer.dimensions.sources import span_of
from fx_lsp.tracer.run.observation import Run
from fx_lsp.tracer.run.tensors import spec_of

_TOKEN = re.compile(r"(?P<marks>[#*?_]*)(?:\w+=)?(?P<size>.*)")
_NAME = r"(?:\d+|[A-Za-z]\d*|[A-Z][A-Z0-9_]*)"
_SHAPE_LIKE = re.compile(rf"\.\.\.|_|[*#]?{_NAME}(?:(?:[*+-]|//){_NAME})*")
_CALCULATED = (ast.Expression, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Name, ast.Constant, ast.Load)


@dataclass
class _Sizes:
    """Hold the sizes of names, each with the variable that fixes it; a name with a star has several sizes."""

    named: dict[str, tuple[tuple[int, ...], str]] = field(default_factory=dict[str, "tuple[tuple[int, ...], str]"])

    def disagreement(self, name: str, sizes: tuple[int, ...], variable: str) -> str:
        """Record `sizes` for a name; return a sentence if it already has others, else ""."""
        before, where = self.named.setdefault(name, (sizes, variable))
        return "" if before == sizes else f"{name} is {_sizes_text(before)} in {where}, but {_sizes_text(sizes)} here"


@dataclass(frozen=True)
class _Mismatch:
    """Hold the reason why a tensor does not fit an annotation; `of_sizes` is True if a size differs."""

    text: str
    of_sizes: bool = False


def annotation_remarks(
    function: FunctionNode | None, namespace: Mapping[str, Any], file: str, run: Run, inputs: tuple[InputSpec, ...]
) -> tuple[Remark, ...]:
    """Return remarks on results and variables of a function that do not fit their annotations in a run.

    If its inputs do not fit theirs, nothing is reported. Sizes that derive from a guessed number are not mistakes.
    """
    if function is None:
        return ()
    head = Span(file, function.lineno, function.col_offset, function.lineno, function.col_offset)
    specs = {(value.span, value.name): parse_spec(value.spec) for value in run.values}
    sizes = _Sizes()
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    for argument in arguments:
        kind, spec = _evaluated(argument.annotation, namespace), specs.get((head, argument.arg))
        if kind is not None and spec is not None and _mismatch(kind, spec, sizes, argument.arg) is not None:
            return ()
    annotated = {argument.arg for argument in arguments if _evaluated(argument.annotation, namespace) is not None}
    guessed = [item for item in inputs if item.guessed and item.name.split("[")[0] not in annotated]
    numbers = any(parse_spec(item.spec) is None for item in guessed)
    remarks: list[Remark] = []
    for place, annotation, value, name in _annotated_values(function, file, run, specs):
        kind = _evaluated(annotation, namespace)
        mismatch = None if kind is None else _mismatch(kind, value, sizes, name)
        if mismatch is not None and not (mismatch.of_sizes and numbers):
            related = Related(span_of(annotation, file), f"annotated as {ast.unparse(annotation)}")
            remarks.append(Remark(mismatch.text, place, "warning" if guessed else "error", (related,)))
    return tuple(remarks)


def _annotated_values(
    function: FunctionNode, file: str, run: Run, specs: Mapping[tuple[Span, str], TensorSpec | None]
) -> Iterator[tuple[Span, ast.expr, Any, str]]:
    """Yield each annotated variable, and the result: the expression, its annotation, its value and a name."""
    nodes = sorted((n for n in own_nodes(function) if isinstance(n, ast.stmt)), key=lambda n: (n.lineno, n.col_offset))
    for node in nodes:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            name = node.target.id
            yield span_of(node.value, file), node.annotation, specs.get((span_of(node, file), name)), name
    returned = [n for n in nodes if isinstance(n, ast.Return) and (span_of(n, file), "return") in specs]
    if function.returns is not None and len(returned) == 1 and returned[0].value is not None:
        yield span_of(returned[0].value, file), function.returns, run.result, "the result"


def _evaluated(annotation: ast.expr | None, namespace: Mapping[str, Any]) -> Any:
    """Return the value of an annotation with dimensions; None for any other."""
    kind: Any = None
    if annotation is not None:
        try:
            kind = eval(ast.unparse(annotation), dict(namespace))
            kind = eval(kind, dict(namespace)) if isinstance(kind, str) else kind
        except Exception:  # it is user code, and may contain unknown names
            return None
    return kind if _has_dimensions(kind) else None


def _has_dimensions(kind: Any) -> bool:
    return _dimensions(kind) is not None or any(map(_has_dimensions, typing.get_args(kind)))


def _dimensions(kind: Any) -> str | None:
    """Return the dimensions in `Float[Tensor, "b t"]`, or in `Annotated[Tensor, "b t"]` unless they are prose; else
    None.
    """
    dimensions = getattr(kind, "dim_str", None)
    if isinstance(dimensions, str):
        return dimensions
    if typing.get_origin(kind) is typing.Annotated:
        first, *rest = typing.get_args(kind)
        texts = [text for text in rest if isinstance(text, str)]
        is_tensor = isinstance(first, type) and issubclass(first, torch.Tensor)
        if is_tensor and texts and all(map(_SHAPE_LIKE.fullmatch, texts[0].split())):
            return texts[0]
    return None


def _mismatch(kind: Any, value: Any, sizes: _Sizes, name: str) -> _Mismatch | None:
    """Return why a value does not fit an annotation, or None. A union fits if any part does; an annotation without
    dimensions always fits.
    """
    dimensions, origin, parts = _dimensions(kind), typing.get_origin(kind), typing.get_args(kind)
    if dimensions is not None:
        spec = spec_of(value) if isinstance(value, torch.Tensor) else value
        return _of_tensor(kind, dimensions, spec, sizes, name) if isinstance(spec, TensorSpec) else None
    if origin in (typing.Union, UnionType):
        tried = [_mismatch(part, value, _Sizes(dict(sizes.named)), name) for part in parts if part is not type(None)]
        return tried[0] if tried and all(tried) and value is not None else None
    if origin in (tuple, list) and isinstance(value, (tuple, list)):
        kinds = parts if origin is tuple and parts[-1:] != (...,) else parts[:1] * len(value)
        if len(kinds) != len(value):
            return _Mismatch(ANNOTATED_LENGTH.message(name=name, length=len(value), annotated=len(kinds)))
        several = (_mismatch(k, v, sizes, f"{name}[{i}]") for i, (k, v) in enumerate(zip(kinds, value, strict=True)))
        return next((mismatch for mismatch in several if mismatch is not None), None)
    return None


def _of_tensor(kind: Any, dimensions: str, spec: TensorSpec, sizes: _Sizes, name: str) -> _Mismatch | None:
    dtypes: Any = getattr(kind, "dtypes", None)
    if isinstance(dtypes, (list, tuple)) and DTYPES.get(spec.dtype, spec.dtype) not in dtypes:
        expected = getattr(kind, "__name__", "").partition("[")[0] or " or ".join(map(str, typing.cast("Any", dtypes)))
        return _Mismatch(ANNOTATED_DTYPE.message(name=name, spec=spec, dtype=expected))
    spec = replace(spec, strides=None)
    numbers = tuple(size for size in spec.sizes if isinstance(size, int))
    if len(numbers) < len(spec.sizes):
        return None
    tokens = dimensions.split()
    several = [place for place, token in enumerate(tokens) if "..." in token or "*" in _marks(token)]
    missing = len(numbers) - len(tokens) + len(several)
    if missing < 0 or (missing > 0 and not several):
        rank, annotated = _counted(len(numbers)), _counted(len(tokens))
        return _Mismatch(
            ANNOTATED_RANK.message(name=name, spec=spec, dimensions=rank, annotation=dimensions, annotated=annotated)
        )
    for token, part in _aligned(tokens, several, numbers):
        reason = _disagreement(token, part, sizes, name)
        if reason:
            text = ANNOTATED_SIZES.message(name=name, spec=spec, annotation=dimensions, reason=reason)
            return _Mismatch(text, of_sizes=True)
    return None


def _aligned(tokens: list[str], several: list[int], numbers: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Pair each token with the sizes that it describes."""
    more, place = len(numbers) - len(tokens) + 1, 0
    for index, token in enumerate(tokens):
        width = more if index in several[:1] else 1
        yield token, numbers[place : place + width]
        place += width


def _disagreement(token: str, part: tuple[int, ...], sizes: _Sizes, variable: str) -> str:
    match = _TOKEN.fullmatch(token)
    marks, size = (match["marks"], match["size"]) if match is not None else ("", token)
    if "..." in token or "_" in marks or "?" in marks or not size or ("#" in marks and set(part) <= {1}):
        return ""
    if size.isdigit():
        return "" if part == (int(size),) else f"{_sizes_text(part)} is not {size}"
    if size.isidentifier():
        return sizes.disagreement(f"*{size}" if "*" in marks else size, part, variable)
    value = _calculated(size, sizes)
    return "" if value is None or part == (value,) else f"{size} is {value}, but {_sizes_text(part)} here"


def _calculated(text: str, sizes: _Sizes) -> int | None:
    """Return the value of `2*c` or `h//2`; None if a name in it has no size yet, and for anything else."""
    try:
        tree = ast.parse(text, mode="eval")
        if not all(isinstance(node, _CALCULATED) for node in ast.walk(tree)):
            return None
        numbers = {name: several[0] for name, (several, _) in sizes.named.items() if len(several) == 1}
        value = eval(compile(tree, "<size>", "eval"), {"__builtins__": {}}, numbers)
    except (SyntaxError, NameError, ZeroDivisionError, ValueError):
        return None
    return value if isinstance(value, int) else None


def _marks(token: str) -> str:
    match = _TOKEN.fullmatch(token)
    return match["marks"] if match is not None else ""


def _counted(dimensions: int) -> str:
    return f"{dimensions} dimension{'' if dimensions == 1 else 's'}"


def _sizes_text(sizes: tuple[int, ...]) -> str:
    return str(sizes[0]) if len(sizes) == 1 else str(sizes)
