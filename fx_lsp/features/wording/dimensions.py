"""Show sizes by their names in the code: `f32[B, T, 3*C]` for `f32[4, 8, 192]`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, TypeAlias

from fx_lsp.model import InputSpec, NamedSizes, Node, ObservedValue, Span, Trace

SizeStyle = Literal["names", "numbers", "both"]
"""The display style of sizes that have names in the code: `f32[B, T]`, `f32[4, 8]`, `f32[B=4, T=8]`."""
STYLES: tuple[SizeStyle, ...] = ("names", "numbers", "both")
_TENSOR = re.compile(r"(?P<dtype>\b(?:bf|[biufc])\d+\w*)\[(?P<sizes>[^\[\]]*)\](?P<strides>\([^()]*\))?")

_Names: TypeAlias = "Mapping[tuple[int, ...], tuple[str, ...]]"


class SizeNames:
    """Format the sizes of a trace by name, in the given `style`. `strides` sets whether strides are shown; without it,
    they are shown if the sizes of a tensor are numbers.
    """

    def __init__(self, trace: Trace, style: SizeStyle, strides: bool | None = None) -> None:
        self._style: SizeStyle = style
        self._strides = strides
        self._values: dict[tuple[Span, str], dict[tuple[int, ...], tuple[str, ...]]] = {}
        self._operations: dict[Span, dict[tuple[int, ...], tuple[str, ...]]] = {}
        self._inputs: dict[str, dict[tuple[int, ...], tuple[str, ...]]] = {}
        self._fixed = {(named.span, named.name, named.sizes): named for named in trace.named if any(named.fixed)}
        for named in trace.named if style != "numbers" else ():
            self._note(named)

    def _note(self, named: NamedSizes) -> None:
        if named.span is None:
            self._inputs.setdefault(named.name, {})[named.sizes] = named.names
        elif named.kind == "operation":
            self._operations.setdefault(named.span, {})[named.sizes] = named.names
        else:
            self._values.setdefault((named.span, named.name), {})[named.sizes] = named.names

    def of_value(self, value: ObservedValue) -> str:
        """Return the spec of a value."""
        return self._written(value.spec, self._values.get((value.span, value.name), {}))

    def dimension(self, value: ObservedValue, dim: int) -> str:
        """Return the name of one dimension of a tensor, counted from the front or from the back; "" without a name."""
        tensor = _TENSOR.fullmatch(value.spec)
        sizes = _numbers(tensor["sizes"]) if tensor is not None else ()
        names = self._values.get((value.span, value.name), {}).get(sizes) or ()
        return names[dim] if -len(names) <= dim < len(names) else ""

    def fixed(self, spec: str, span: Span | None, name: str) -> list[tuple[int, str, Span]]:
        """Return the sizes of a value, or without a span of an input, that an expression fixes: the number, its name in
        the code or "", and the expression.
        """
        tensor = _TENSOR.fullmatch(spec)
        named = self._fixed.get((span, name, _numbers(tensor["sizes"]) if tensor is not None else ()))
        rows = zip(named.sizes, named.names, named.fixed, strict=True) if named is not None else ()
        return [(size, name, by) for size, name, by in rows if by is not None]

    def of_node(self, node: Node) -> str | None:
        """Return the spec of a node of a graph: of an input, or of an operation by its source expression."""
        span = node.span
        named = self._inputs.get(node.name) if node.op == "placeholder" else None
        if named is None:
            named = self._operations.get(span, {}) if span is not None else {}
        return None if node.spec is None else self._written(node.spec, named)

    def renamed(self, node: Node) -> Node:
        """Return a node with named sizes in its spec."""
        spec = self.of_node(node)
        return node if spec == node.spec else replace(node, spec=spec)

    def of_input(self, item: InputSpec) -> str:
        """Return the spec of an input."""
        return self._written(item.spec, self._inputs.get(item.name, {}))

    def of_output(self, spec: str) -> str:
        """Return the spec of a result of the target. Its sizes are named if all returned tensors with these sizes agree
        on the names.
        """
        returned = [named for (_, name), named in self._values.items() if name == "return"]
        agreed: dict[tuple[int, ...], tuple[str, ...]] = {}
        for sizes, names in (entry for named in returned for entry in named.items()):
            others = agreed.setdefault(sizes, names)
            agreed[sizes] = tuple(a if a == b else "" for a, b in zip(others, names, strict=True))
        return self._written(spec, agreed)

    def legend(self) -> str:
        """Return the values of the names in inputs: "B = 4, T = 8"; "" without names."""
        numbers: dict[str, set[int]] = {}
        for sizes, names in (entry for named in self._inputs.values() for entry in named.items()):
            for name, size in zip(names, sizes, strict=True):
                if name.isidentifier():
                    numbers.setdefault(name, set()).add(size)
        return ", ".join(f"{name} = {' or '.join(map(str, sorted(sizes)))}" for name, sizes in numbers.items())

    def _written(self, spec: str, named: _Names) -> str:
        plain = not named and self._strides is None
        return spec if plain else _TENSOR.sub(lambda tensor: self._tensor(tensor, named), spec)

    def _tensor(self, tensor: re.Match[str], named: _Names) -> str:
        sizes = _numbers(tensor["sizes"])
        names = named.get(sizes)
        both = self._style == "both"
        with_strides = (names is None or both) if self._strides is None else self._strides
        strides = (tensor["strides"] or "") if with_strides else ""
        if names is None:
            return f"{tensor['dtype']}[{tensor['sizes']}]{strides}"
        pairs = zip(names, sizes, strict=True)
        written = [f"{name}={size}" if name and both else name or str(size) for name, size in pairs]
        return f"{tensor['dtype']}[{', '.join(written)}]{strides}"


def _numbers(sizes: str) -> tuple[int, ...]:
    """Return sizes as integers; () unless all are numbers."""
    parts = sizes.split(", ")
    return tuple(map(int, parts)) if all(part.isdigit() for part in parts) else ()
