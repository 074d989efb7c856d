"""Parse shapes in docstrings, annotations and error messages: `(B, 3, H, W)`, `BxCxHxW`, `"b t d"`."""

from __future__ import annotations

import re
from collections.abc import MutableMapping, Sequence, Set
from typing import TypeAlias

from fx_lsp.tracer.inputs.plan.plans import fresh_sizes

Shape: TypeAlias = tuple[int | str, ...]
"""Dimensions by size or name, `...` for any number of them. Equal names are equal sizes."""

_LISTED = re.compile(r"[(\[]([^()\[\]]*)[)\]]")
_CROSSED = re.compile(r"(?<![\w*])((?:[A-Z]\w*?|\d+|\*)(?:\s?[x×]\s?(?:[A-Z]\w*?|\d+)){1,5})(?![\w])")
_DIMENSION = re.compile(r"[A-Za-z]\w*|\d+")
_QUOTED = re.compile(r"""^(['"])([A-Z]\w?|\d+|\*|\.\.\.)\1$""")
_CALCULATED = re.compile(r"[\w\s+*/-]+")
# fmt: off
_NOT_A_DIMENSION = frozenset({
    "a", "an", "and", "any", "bool", "callable", "default", "deprecated", "dict", "exclusive", "false", "float",
    "floats", "for", "if", "in", "inclusive", "int", "ints", "is", "list", "max", "mean", "min", "none", "of",
    "optional", "or", "required", "see", "std", "str", "string", "sum", "tensor", "tensors", "the", "torch",
    "true", "tuple", "with",
})
# fmt: on


def shapes_in(text: str) -> list[Shape]:
    """Return the shapes that a text mentions, in order, including concrete ones (`torch.Size([4, 8])`)."""
    text = re.sub(r":math:|`|\$|\\(?:times|text|mathrm|ldots|dots)", " ", text.replace("\\times", " x "))
    shapes: list[tuple[int, Shape]] = []
    for match in _LISTED.finditer(text):
        shape = (int(match[1]),) if match[0][0] == "[" and match[1].strip().isdigit() else _listed(match[1])
        if shape is not None:
            shapes.append((match.start(), shape))
        shapes += [(match.start() + start, crossed) for start, crossed in _crossed(match[1])]
    outside = _LISTED.sub(lambda match: " " * len(match[0]), text)
    shapes += _crossed(outside)
    return [shape for _, shape in sorted(shapes, key=lambda item: item[0])]


def _crossed(text: str) -> list[tuple[int, Shape]]:
    """Yield shapes such as `BxCxHxW`; two numbers alone (`2x2`) are an extent, not a shape."""
    parts = [(match.start(), re.split(r"\s?[x×]\s?", match[1])) for match in _CROSSED.finditer(text)]
    return [
        (start, tuple(map(_dimension, dimensions)))
        for start, dimensions in parts
        if len(dimensions) > 2 or not all(p.isdigit() for p in dimensions)
    ]


def _listed(text: str) -> Shape | None:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) < 2:
        return None
    if parts[-1] == "":
        parts.pop()
    dimensions: list[int | str] = []
    for part in parts:
        part = _QUOTED.sub(r"\2", part.removesuffix(" or 1"))
        if part in ("*", "...", "…"):
            dimensions.append("...")
        elif _DIMENSION.fullmatch(part) and part.lower() not in _NOT_A_DIMENSION:
            dimensions.append(_dimension(part))
        elif _CALCULATED.fullmatch(part) and re.search(r"[+*/-]", part) and not part.startswith("-"):
            dimensions.append(re.sub(r"\s", "", part))
        else:
            return None
    return tuple(dimensions) if dimensions.count("...") <= 1 and 0 not in dimensions else None


def _dimension(text: str) -> int | str:
    return int(text) if text.isdigit() else "..." if text == "*" else text


def words(text: str) -> Shape:
    """Return a shape written as words, as in jaxtyping and einops: `"b t 3"`, `"*batch h w"`, `"... c"`."""
    return tuple("..." if w == "..." or w.startswith("*") else _dimension(w) for w in text.replace("#", "").split())


def sizes_of(shape: Shape, named: MutableMapping[str, int], used_sizes: Set[int]) -> tuple[int, ...]:
    """Return sizes for a shape: those of names in `named`, and fresh ones for new names, which are added there.

    `...` becomes one dimension in front of others, none behind them.
    """
    dimensions: Sequence[int | str] = shape if shape[:1] == ("...",) else [d for d in shape if d != "..."]
    fresh = fresh_sizes(len(dimensions), set(used_sizes) | set(named.values()))
    sizes: list[int] = []
    for dimension, size in zip(dimensions, fresh, strict=True):
        sizes.append(dimension if isinstance(dimension, int) else named.setdefault(dimension, size))
    return tuple(sizes)


def parameter_shape(docstring: str, name: str) -> Shape | None:
    """Return the shape of a parameter in a docstring, in Google's, NumPy's or Sphinx' style, or anywhere in a sentence:
    `query: (batch, width)`. None without one.
    """
    lines = docstring.splitlines()
    start = re.compile(rf"^(\s*)(?::param\s+(?:\w+\s+)?|[-*]\s+)?[`*]*{re.escape(name)}[`*]*\s*(?=[:(\s-]|$)(.*)")
    for number, line in enumerate(lines):
        match = start.match(line)
        if match is None or not re.match(r"\s*(\(|:|--?\s|$)", match[2]):
            continue
        indent = len(match[1])
        entry = [match[2]]
        for following in lines[number + 1 :]:
            if following.strip() and len(following) - len(following.lstrip()) <= indent:
                break
            entry.append(following)
        shapes = shapes_in("\n".join(entry))
        if shapes:
            return shapes[0]
    inline = re.search(rf"(?<![\w.]){re.escape(name)}[`*]*\s*:\s*(?=[(\[])", docstring)
    rest = docstring[inline.end() :].partition("\n")[0] if inline is not None else ""
    return next(iter(shapes_in(rest)), None)
