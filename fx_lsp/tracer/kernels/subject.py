"""Describe the call of a generated file: the tensors among its inputs, and the structure of its results."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn

from fx_lsp.codegen.file.format import literal
from fx_lsp.codegen.file.functions import AcceptedInput
from fx_lsp.codegen.ir.index import expression
from fx_lsp.codegen.ir.text import index_text, size_text
from fx_lsp.tracer.capture.aot import Captured
from fx_lsp.tracer.compat import descriptor, sympy
from fx_lsp.tracer.kernels.signature import Signature, leaves
from fx_lsp.tracer.run.call import Call, FlatInput
from fx_lsp.tracer.run.state import held_tensors, surroundings
from fx_lsp.tracer.run.values.symbols import Symbols, expressions, renamed, size_hint, symbol_text
from fx_lsp.tracer.source.names import identifier


@dataclass(frozen=True)
class GraphInput:
    """Hold a tensor that a graph takes, with its expression.

    `outside` is its name in the user's file if the function reads it from there, "" for arguments and attributes of
    `self`.
    """

    expression: str
    item: FlatInput
    outside: str = ""


@dataclass(frozen=True)
class ForwardResults:
    """Hold the results of a forward graph, by use.

    `changed` are inputs, by number, whose new values are the first results; `positions` are the results that the user's
    function returns, in order, of `total` that are not saved for backward; `tangents` are the results whose gradients
    backward takes, in order, or None if unknown.
    """

    changed: tuple[int, ...]
    positions: tuple[int, ...]
    total: int
    tangents: tuple[int, ...] | None


def graph_inputs(call: Call, captured: Captured, graph: fx.Graph, parameters: Signature) -> list[GraphInput]:
    """Return the tensors that a graph takes, in order. Raises ValueError if they are not the user's own."""
    assert captured.names is not None
    arguments = [(path, value) for name, v in parameters.values for path, value in leaves(v, name)]
    paths = {id(value): path for path, value in reversed(arguments) if isinstance(value, torch.Tensor)}
    held = _held_names(call)
    modules = tuple(f"{prefix}." for prefix in call.modules if prefix)
    inputs: dict[int, GraphInput] = {}
    for item in captured.inputs:
        if item.kind == "input" and id(item.tensor) in paths:
            graph_input = GraphInput(paths[id(item.tensor)], item)
        elif item.name in held or item.name.startswith("self."):
            graph_input = GraphInput(_dotted(f"self.{item.name.removeprefix('self.')}"), item)
        elif item.name.startswith(modules):
            graph_input = GraphInput(_dotted(item.name), item)
        else:
            graph_input = GraphInput(identifier(item.name), item, item.name)
        inputs.setdefault(id(item.tensor), graph_input)
    in_order: list[GraphInput] = []
    for node in graph.nodes:
        if node.op != "placeholder" or not isinstance(node.meta.get("val"), torch.Tensor):
            continue
        item = captured.names.inputs.get(node.name)
        if item is None:
            raise ValueError("no kernels can be generated: it writes into one of two inputs that share their memory")
        in_order.append(inputs[id(item.tensor)])
    return in_order


def same_tensors(parameters: Signature) -> list[str]:
    """Return lines that reject different tensors where the trace had one tensor twice."""
    first: dict[int, str] = {}
    lines: list[str] = []
    for name, value in parameters.values:
        for path, leaf in leaves(value, name):
            if not isinstance(leaf, torch.Tensor):
                continue
            before = first.setdefault(id(leaf), path)
            if before != path:
                lines += [
                    f"if {path} is not {before}:",
                    f'    raise ValueError("{path} must be the same tensor as {before}")'.replace('["', "['").replace(
                        '"]', "']"
                    ),
                ]
    return lines


def _held_names(call: Call) -> set[str]:
    """Return the names of the tensors in the module of the called method."""
    module = call.modules.get("")
    if module is None:
        return set()
    inside = surroundings(len, call.touched, [module])
    return {held.name for held in (*held_tensors(module), *inside)}


def _dotted(name: str) -> str:
    """Return a path of attributes as an expression: `self.layers[0].weight` for `self.layers.0.weight`."""
    first, *parts = name.split(".")
    for part in parts:
        first += f"[{part}]" if part.isdigit() else f".{part}"
    return first


def results_of(captured: Captured, graph: fx.Graph) -> ForwardResults:
    """Return the description of a forward graph's results. Raises ValueError for features that a file does not
    support.
    """
    output = next(n for n in reversed(graph.nodes) if n.op == "output")
    total = len(output.args[0]) - len(captured.saved)  # pyright: ignore[reportArgumentType]
    described = descriptor(output)
    if described is None:
        if total != len(captured.outputs):
            raise ValueError(
                "no kernels can be generated: it writes into an input, or returns several views of a tensor, "
                "and this version of torch does not report which"
            )
        return ForwardResults((), tuple(range(total)), total, None)
    changed: list[int] = []
    positions: dict[int, int] = {}
    for position, item in enumerate(described[:total]):
        kind = type(item).__name__
        if kind == "InputMutationAOTOutput":
            changed.append(_index(item.mutated_input))
        elif kind == "PlainAOTOutput":
            positions[item.idx] = position
        elif kind == "MetadataMutationAOTOutput":
            raise ValueError("no kernels can be generated: it changes the shape of an input in place")
    tangents: tuple[int, ...] | None = None
    if captured.backward is not None:
        asked = [descriptor(n) for n in captured.backward.graph.nodes if n.op == "placeholder"]
        wanted = [d.output for d in asked if type(d).__name__ == "TangentAOTInput"]
        tangents = tuple(list(described[:total]).index(w) for w in wanted)
    return ForwardResults(tuple(changed), tuple(positions[i] for i in range(len(captured.outputs))), total, tangents)


def _index(item: Any) -> int:
    while not hasattr(item, "idx"):
        item = getattr(item, "base_of", None)
        if item is None:
            raise ValueError("no kernels can be generated: it writes into an input of an unknown kind")
    return item.idx


@dataclass
class ResultText:
    """Hold the result of a function as text, with the imports and class definitions that it needs."""

    text: str
    imports: tuple[str, ...] = ()
    definitions: tuple[str, ...] = ()


def size_texts(inputs: Sequence[GraphInput], graph: fx.Graph, positions: Sequence[int]) -> dict[Any, str]:
    """Return expressions for named sizes: of an argument, or of a result, `out[0].shape[1]`."""
    tensors = [(item.expression, item.item.tensor) for item in inputs]
    output: Any = next(n for n in reversed(graph.nodes) if n.op == "output").args[0]
    results = [(f"out[{p}]", output[p].meta.get("val")) for p in positions if isinstance(output[p], fx.Node)]
    tensors += [(text, value) for text, value in results if isinstance(value, torch.Tensor)]
    texts: dict[Any, str] = {}
    for text, tensor in tensors:
        for dim, size in enumerate(tensor.shape):
            texts.setdefault(expression(size), f"{text}.shape[{dim}]")
    return texts


def returned(result: Any, positions: Sequence[int], sizes: Mapping[Any, str]) -> ResultText:
    """Return the text of the user function's result: its containers around `out[0]`, `out[1]`, …, and other values."""
    writer = _ResultWriter(iter(positions), sizes)
    text = writer.text(result)
    return ResultText(text, tuple(writer.imports), tuple(writer.classes.values()))


@dataclass
class _ResultWriter:
    """Write a result; `positions` are those of its tensors in `out`, in order, `sizes` expressions for sizes."""

    positions: Iterator[int]
    sizes: Mapping[Any, str]
    imports: dict[str, None] = field(default_factory=dict[str, None])
    classes: dict[str, str] = field(default_factory=dict[str, str])

    def text(self, value: Any) -> str:
        """Return a value as text. Raises ValueError for one without text."""
        match value:
            case torch.Tensor():
                return f"out[{next(self.positions)}]"
            case tuple() if hasattr(value, "_fields"):
                return self._named_tuple(value)
            case list():
                return f"[{', '.join(map(self.text, value))}]"
            case tuple():
                return tuple_text([self.text(v) for v in value])
            case Mapping():
                return self._fields(dict(value), type(value) is dict)
            case _ if dataclasses.is_dataclass(value) and not isinstance(value, (type, nn.Module)):
                return self._fields({f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)}, False)
            case torch.SymInt() | torch.SymFloat():
                return self._size(value)
            case _:
                text = literal(value)
        if text is None:
            raise ValueError(f"no kernels can be generated: it returns an object of {type(value).__name__}")
        return text

    def _named_tuple(self, value: Any) -> str:
        """Return a named tuple as text; the file defines its class."""
        self.imports["from collections import namedtuple"] = None
        kind, names = type(value).__name__, ", ".join(f'"{name}"' for name in value._fields)
        self.classes[kind] = f'{kind} = namedtuple("{kind}", [{names}])'
        return f"{kind}({', '.join(f'{n}={self.text(v)}' for n, v in zip(value._fields, value, strict=True))})"

    def _fields(self, fields: Mapping[Any, Any], is_dict: bool) -> str:
        """Return an object with fields as a dictionary, or as a namespace if all of them are attributes."""
        parts = [(key, self.text(value)) for key, value in fields.items()]
        if is_dict or not all(isinstance(key, str) and key.isidentifier() for key in fields):
            return "{" + ", ".join(f"{literal(key) or repr(key)}: {part}" for key, part in parts) + "}"
        self.imports["from types import SimpleNamespace"] = None
        return f"SimpleNamespace({', '.join(f'{key}={part}' for key, part in parts)})"

    def _size(self, value: torch.SymInt | torch.SymFloat) -> str:
        size, text = expression(value), None
        with suppress(TypeError):
            text = index_text(size, self.sizes, {}) if size.free_symbols <= self.sizes.keys() else None
        if text is None:
            raise ValueError("no kernels can be generated: it returns a number that is not computed from sizes")
        return text


def accepted_inputs(inputs: Sequence[GraphInput], refused: bool) -> tuple[list[AcceptedInput], list[str]]:
    """Return the inputs that the kernels accept, and lines that reject a size that differs from its expression of
    other sizes; `refused`: no tensor may require a gradient.
    """
    accepted: list[AcceptedInput] = []
    conditions: list[str] = []
    sizes_by_symbol: dict[Any, str] = {}
    for item in inputs:
        tensor, text = item.item.tensor, item.expression
        sizes: list[str] = []
        for dim, size in enumerate(map(expression, tensor.shape)):
            sizes.append(str(size) if size.is_Integer else f'"{size.name}"' if size.is_Symbol else "None")
            if not size.is_Integer and not size.is_Symbol and size.free_symbols <= sizes_by_symbol.keys():
                symbols = {s: sympy.Symbol(sizes_by_symbol[s]) for s in size.free_symbols}
                shown = f"{text}.shape[{dim}] == {size_text(size.xreplace(symbols))}"
                conditions += _refusal(shown)
            if size.is_Symbol:
                sizes_by_symbol.setdefault(size, f"{text}.shape[{dim}]")
        strides = "None"
        if not tensor.is_contiguous():
            names = {symbol: f'"{symbol.name}"' for symbol in sizes_by_symbol}
            shown = [str(s) if s.is_Integer else names.get(s, "None") for s in map(expression, tensor.stride())]
            strides = tuple_text(shown)
        gradient = not ((refused or not tensor.requires_grad) and tensor.dtype.is_floating_point)
        name = text.replace('"', "'")
        accepted.append(AcceptedInput(name, str(tensor.dtype), tuple_text(sizes), strides, gradient))
    return accepted, conditions


def _refusal(condition: str) -> list[str]:
    """Return lines that reject sizes for which a condition is false."""
    return [f"if not ({condition}):", f"    raise ValueError({literal(f'the kernels are for {condition}')})"]


def size_checks(inputs: Sequence[GraphInput], symbols: Symbols | None) -> list[str]:
    """Return lines that reject open sizes for which the code does something else."""
    texts: dict[sympy.Symbol, str] = {}
    lines: list[str] = []
    for item in inputs if symbols is not None else ():
        for dim, size in enumerate(expressions(item.item.tensor.shape)):
            if size.is_Symbol:
                texts.setdefault(size, f"{item.expression}.shape[{dim}]")
    for condition in symbols.conditions() if symbols is not None else ():
        if condition.free_symbols <= texts.keys():
            lines += _refusal(symbol_text(renamed(condition, texts)))
    return lines


def hints_of(captured: Captured) -> dict[str, int]:
    """Return the named sizes, with the hint of each."""
    sizes = [s for item in captured.inputs for s in item.tensor.shape if isinstance(s, torch.SymInt)]
    return {expression(s).name: size_hint(s) for s in sizes if expression(s).is_Symbol}


def tuple_text(parts: Sequence[str]) -> str:
    """Return a tuple of expressions."""
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
