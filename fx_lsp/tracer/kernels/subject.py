"""What a generated file is made for: the tensors that the user's function is given, and how its results are put
together."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from fx_lsp.codegen.file.format import literal
from fx_lsp.codegen.ir.index import expression
from fx_lsp.codegen.ir.text import index_text, size_text
from fx_lsp.tracer.capture.aot import Captured
from fx_lsp.tracer.compat import descriptor, sympy
from fx_lsp.tracer.kernels.signature import Signature, leaves
from fx_lsp.tracer.run.call import Call, FlatInput
from fx_lsp.tracer.run.state import held_tensors, surroundings
from fx_lsp.tracer.source.names import identifier


@dataclass(frozen=True)
class Given:
    """A tensor that a graph takes: the expression for it, and whether it comes from outside of the arguments.

    `outside` is what it is called where the user's function finds it, "" for arguments and what `self` holds.
    """

    expression: str
    item: FlatInput
    outside: str = ""


@dataclass(frozen=True)
class Results:
    """What becomes of the results of a forward graph.

    `changed` are inputs, by number, that the first results are new values of; `positions` the results that the user's
    function returns, in order, of `total` that are not kept for backward; `tangents` the results whose gradients
    backward takes, in order, or None where that is not known.
    """

    changed: tuple[int, ...]
    positions: tuple[int, ...]
    total: int
    tangents: tuple[int, ...] | None


def given_tensors(call: Call, captured: Captured, graph: fx.Graph, found: Signature) -> list[Given]:
    """The tensors that a graph takes, in order. Raises ValueError where they are not the user's own."""
    assert captured.names is not None
    arguments = [(path, value) for name, v in found.values for path, value in leaves(v, name)]
    own = _own(call)
    expressions: dict[int, Given] = {}
    by_id = {id(value): path for path, value in reversed(arguments) if isinstance(value, torch.Tensor)}
    modules = tuple(f"{prefix}." for prefix in call.modules if prefix)
    for item in captured.inputs:
        if item.kind == "input" and id(item.tensor) in by_id:
            made = Given(by_id[id(item.tensor)], item)
        elif item.name in own or item.name.startswith("self."):
            made = Given(_dotted(f"self.{item.name.removeprefix('self.')}"), item)
        elif item.name.startswith(modules):
            made = Given(_dotted(item.name), item)
        else:
            made = Given(identifier(item.name), item, item.name)
        expressions.setdefault(id(item.tensor), made)
    listed: list[Given] = []
    for node in graph.nodes:
        if node.op != "placeholder" or not isinstance(node.meta.get("val"), torch.Tensor):
            continue
        item = captured.names.inputs.get(node.name)
        if item is None:
            raise ValueError("no kernels can be generated: it writes into one of two inputs that share their memory")
        listed.append(expressions[id(item.tensor)])
    return listed


def same_tensors(found: Signature) -> list[str]:
    """Lines that refuse different tensors where the trace was given one tensor twice."""
    first: dict[int, str] = {}
    lines: list[str] = []
    for name, value in found.values:
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


def _own(call: Call) -> set[str]:
    """The names of the tensors that the module holds whose method is called."""
    module = call.modules.get("")
    if module is None:
        return set()
    inside = surroundings(len, call.touched, [module])
    return {held.name for held in (*held_tensors(module), *inside)}


def _dotted(name: str) -> str:
    """A path of attributes as an expression: `self.layers.0.weight` gives `self.layers[0].weight`."""
    first, *parts = name.split(".")
    for part in parts:
        first += f"[{part}]" if part.isdigit() else f".{part}"
    return first


def results_of(captured: Captured, graph: fx.Graph) -> Results:
    """What the results of a forward graph are. Raises ValueError where the function does what a file cannot do."""
    output = next(n for n in reversed(graph.nodes) if n.op == "output")
    total = len(output.args[0]) - len(captured.saved)  # pyright: ignore[reportArgumentType]
    described = descriptor(output)
    if described is None:
        if total != len(captured.outputs):
            raise ValueError(
                "no kernels can be generated: it writes into an input, or returns several views of a tensor, "
                "and this torch does not say which"
            )
        return Results((), tuple(range(total)), total, None)
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
    return Results(tuple(changed), tuple(positions[i] for i in range(len(captured.outputs))), total, tangents)


def _index(item: Any) -> int:
    while not hasattr(item, "idx"):
        item = getattr(item, "base_of", None)
        if item is None:
            raise ValueError("no kernels can be generated: it writes into an input of an unknown kind")
    return item.idx


@dataclass
class Returned:
    """What a function returns, as text, with what the file needs for that: imports, and classes that it defines."""

    text: str
    imports: tuple[str, ...] = ()
    definitions: tuple[str, ...] = ()


def size_texts(given: Sequence[Given], graph: fx.Graph, positions: Sequence[int]) -> dict[Any, str]:
    """How the user's function writes a size that has a name: by an argument that has it, or by a result, `out[0]`."""
    tensors = [(item.expression, item.item.tensor) for item in given]
    output: Any = next(n for n in reversed(graph.nodes) if n.op == "output").args[0]
    made = [(f"out[{p}]", output[p].meta.get("val")) for p in positions if isinstance(output[p], fx.Node)]
    tensors += [(text, value) for text, value in made if isinstance(value, torch.Tensor)]
    found: dict[Any, str] = {}
    for text, tensor in tensors:
        for dim, size in enumerate(tensor.shape):
            found.setdefault(expression(size), f"{text}.shape[{dim}]")
    return found


def returned(result: Any, positions: Sequence[int], sizes: Mapping[Any, str]) -> Returned:
    """What the user's function returns, of `out[0]`, `out[1]`, …: the same containers, and what else is in them."""
    imports: dict[str, None] = {}
    classes: dict[str, str] = {}
    text = _rebuilt(result, iter(positions), imports, classes, sizes)
    return Returned(text, tuple(imports), tuple(classes.values()))


def _rebuilt(
    value: Any, supply: Iterator[int], imports: dict[str, None], classes: dict[str, str], sizes: Mapping[Any, str]
) -> str:
    if isinstance(value, torch.Tensor):
        return f"out[{next(supply)}]"
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        imports["from collections import namedtuple"] = None
        kind, names = type(value).__name__, ", ".join(f'"{f}"' for f in value._fields)  # pyright: ignore
        classes[kind] = f'{kind} = namedtuple("{kind}", [{names}])'
        parts = [_rebuilt(v, supply, imports, classes, sizes) for v in value]
        return f"{kind}({', '.join(f'{n}={p}' for n, p in zip(value._fields, parts, strict=True))})"  # pyright: ignore
    if isinstance(value, (list, tuple)):
        parts = [_rebuilt(v, supply, imports, classes, sizes) for v in value]
        if isinstance(value, list):
            return f"[{', '.join(parts)}]"
        return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
    fields: Mapping[Any, Any] | None = None
    if isinstance(value, Mapping):
        fields = dict(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, (type, nn.Module)):
        fields = {f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)}
    if fields is not None:
        parts = [(k, _rebuilt(v, supply, imports, classes, sizes)) for k, v in fields.items()]
        plain = type(value) is dict or not all(isinstance(k, str) and k.isidentifier() for k in fields)
        if plain:
            return "{" + ", ".join(f"{literal(k) or repr(k)}: {p}" for k, p in parts) + "}"
        imports["from types import SimpleNamespace"] = None
        return f"SimpleNamespace({', '.join(f'{k}={p}' for k, p in parts)})"
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        size = expression(value)
        try:
            known = size.free_symbols <= sizes.keys()
            text = index_text(size, sizes, {}) if known else None
        except TypeError:
            text = None
        if text is None:
            raise ValueError("no kernels can be generated: it returns a number that no tensor's size tells")
        return text
    text = literal(value)
    if text is None:
        raise ValueError(f"no kernels can be generated: it returns an object of {type(value).__name__}")
    return text


def tensor_checks(given: Sequence[Given], refused: bool) -> list[str]:
    """Lines that refuse tensors that the kernels are not made for; `refused`: none of them may need a gradient."""
    lines: list[str] = []
    known: dict[Any, str] = {}
    for number, found in enumerate(given):
        tensor, text = found.item.tensor, found.expression
        sizes: list[str] = []
        for dim, size in enumerate(tensor.shape):
            size = expression(size)
            if size.is_Integer:
                sizes.append(str(size))
            elif size.free_symbols <= known.keys():
                sizes.append(size_text(size.xreplace({s: sympy.Symbol(known[s]) for s in size.free_symbols})))
            else:
                sizes.append("None")
                if size.is_Symbol:
                    known[size] = f"{text}.shape[{dim}]"
        options: list[str] = []
        if not tensor.is_contiguous():
            strides = [expression(s) for s in tensor.stride()]
            shown = [str(s) if s.is_Integer and z != "1" else "None" for s, z in zip(strides, sizes, strict=True)]
            options.append(f"strides={_tuple(shown)}")
        if number:
            options.append(f"device={given[0].expression}.device")
        if (refused or not tensor.requires_grad) and tensor.dtype.is_floating_point:
            options.append("gradient=False")
        name = text.replace('"', "'")
        lines.append(
            f"check({', '.join([text, f'{chr(34)}{name}{chr(34)}', str(tensor.dtype), _tuple(sizes), *options])})"
        )
    return lines


def _tuple(parts: Sequence[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
