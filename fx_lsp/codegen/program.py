"""A graph as a program: kernels, and calls that stay in ATen, in order."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from sympy import expand
from torch import fx

from fx_lsp.choices import Choices
from fx_lsp.codegen.calls import Unsupported, why_called
from fx_lsp.codegen.emit import kernel_text
from fx_lsp.codegen.index import Coords, Index, Space, contiguous_strides, count, expression, linear
from fx_lsp.codegen.kernel import Kernel, Naming
from fx_lsp.codegen.lowerings.sums import addition, is_sum, summed_shape
from fx_lsp.codegen.own import outputs_of, writer_of
from fx_lsp.codegen.pull import Builder, Cut, Domain, is_empty, shape_of
from fx_lsp.codegen.rolling import rolled
from fx_lsp.codegen.rounds import rounds_of
from fx_lsp.codegen.schedule import WHOLE, Group, Schedule, is_view, schedule
from fx_lsp.codegen.stepsums import is_whole
from fx_lsp.codegen.tiles import tile_of
from fx_lsp.codegen.values import Buffer, Store
from fx_lsp.codegen.views import views


@dataclass(frozen=True)
class Launch:
    """A kernel with the nodes that it reads and writes."""

    kernel: Kernel
    reads: tuple[fx.Node, ...]
    writes: tuple[fx.Node, ...]


@dataclass(frozen=True)
class Program:
    """What a graph does. `steps` are kernels and nodes that are called as they are.

    `results` are what it returns, None where a gradient is; `buffers` the tensors that it allocates or is given;
    `calls` say of the calls among the steps why they are none of kernels.
    """

    inputs: tuple[fx.Node, ...]
    steps: tuple[Launch | fx.Node, ...]
    results: tuple[fx.Node | None, ...]
    buffers: Mapping[fx.Node, Buffer]
    calls: tuple[Unsupported, ...] = ()


def program(graph: fx.Graph, title: str, naming: Naming, hints: Mapping[str, int], choices: Choices) -> Program:
    """The program of a graph; `title` begins the names of its kernels."""
    computed = {n for n in graph.nodes if n.op == "call_function" and n.target is not operator.getitem}
    cut = {n for n in computed if is_whole(n) or (choices.fuse == "no" and not is_view(n))}
    called = dict.fromkeys(computed if choices.engine == "inductor" else (), "")
    while True:
        try:
            made = _program(graph, title, naming, hints, cut, called)
        except Cut as found:
            if found.node in called:
                raise
            if found.node in cut:
                called[found.node] = found.why
            else:
                cut.add(found.node)
        else:
            steps = [s for s in made.steps if isinstance(s, fx.Node)]
            calls = (why_called(s, choices, called.get(s)) for s in steps)
            return replace(made, calls=tuple(c for c in calls if c is not None))


def _program(
    graph: fx.Graph,
    title: str,
    naming: Naming,
    hints: Mapping[str, int],
    cut: set[fx.Node],
    called: Collection[fx.Node],
) -> Program:
    plan = schedule(graph, cut, called)
    buffers = {n: buffer_of(n, naming.name(n)) for n in graph.nodes if n in plan.stored and _is_tensor(n)}
    steps: list[Launch | fx.Node] = []
    groups = [s for s in plan.steps if isinstance(s, Group)]
    taken: set[str] = set()
    for step in plan.steps:
        if isinstance(step, fx.Node):
            writer = writer_of(step)
            if writer is None:
                steps.append(step)
                continue
            outputs = outputs_of(step)
            kernels = writer(outputs, buffers, naming, title)
            if any(k.name in taken for k in kernels):
                more = naming.name(next(iter(outputs.values())))
                kernels = writer(outputs, buffers, naming, f"{title}_{more}")
            taken.update(k.name for k in kernels)
            steps.extend(launched(kernel, buffers) for kernel in kernels)
            continue
        wanted = [n for n in step.spans if n in plan.stored or n in plan.pieces]
        if wanted:
            name = f"{title}_{naming.name(wanted[0])}"
            name = title if len(groups) == 1 and title not in taken else name
            taken.add(name)
            steps.append(_launch(step, wanted, plan, name, buffers, naming, hints))
    output = next(n for n in reversed(graph.nodes) if n.op == "output")
    returned = output.args[0] if isinstance(output.args[0], (tuple, list)) else (output.args[0],)
    inputs = tuple(n for n in graph.nodes if n.op == "placeholder")
    results = tuple(r if isinstance(r, fx.Node) else None for r in returned)
    return Program(inputs, _without_idle(steps, results), results, buffers)


def _without_idle(steps: Sequence[Launch | fx.Node], results: Iterable[fx.Node | None]) -> tuple[Launch | fx.Node, ...]:
    """The steps without those that make tensors with no elements which nothing takes."""
    taken = {n for result in results if result is not None for n in views(result)}
    kept: list[Launch | fx.Node] = []
    for step in reversed(steps):
        if isinstance(step, fx.Node) and is_empty(step):
            if step in taken:
                kept.append(step)
            continue
        reads = step.reads if isinstance(step, Launch) else step.all_input_nodes
        taken.update(n for read in reads for n in views(read))
        kept.append(step)
    return tuple(reversed(kept))


def _launch(
    group: Group,
    wanted: list[fx.Node],
    plan: Schedule,
    name: str,
    buffers: Mapping[fx.Node, Buffer],
    naming: Naming,
    hints: Mapping[str, int],
) -> Launch:
    space = Space()
    axes = tuple(space.axis(f"i{n}", size) for n, size in enumerate(group.sizes))
    domain = Domain(axes, group.sizes)
    reduced = {m for m in group.reduces.values()}
    whole = all(
        (n := count(s for s, r in zip(group.sizes, mask, strict=True) if r)).is_Integer and n <= WHOLE
        for mask in reduced
    )
    builder = Builder(space, domain, {n: b for n, b in buffers.items() if n not in group.spans}, whole)
    stores: list[Store] = []
    for node in wanted:
        missing = frozenset(a for a, spans in zip(axes, group.spans[node], strict=True) if not spans)
        shape = summed_shape(node) if is_sum(node) else shape_of(node)
        coords = space.coordinates(domain.position(missing), shape)
        if is_sum(node):
            stores.append(addition(builder, node, coords, frozenset(axes) - missing, buffers[node]))
            continue
        value = builder.pull(node, coords)
        places = [(whole, _moved(coords, dim, start)) for whole, dim, start in plan.pieces.get(node, ())]
        for target, at in [(node, coords)] * (node in plan.stored) + places:
            buffer = buffers[target]
            stores.append(Store(buffer, expand(linear(at, buffer.strides)), value, node))
    rounds = rounds_of(stores)
    if rounds is not None:
        kernel = rolled(name, tile_of(domain, rounds.stores, hints), rounds, builder.indirect, naming)
    else:
        kernel = kernel_text(name, tile_of(domain, stores, hints), stores, builder.indirect, naming)
    return launched(kernel, buffers)


def launched(kernel: Kernel, buffers: Mapping[fx.Node, Buffer]) -> Launch:
    """A kernel with the nodes of its buffers."""
    by_name = {b.name: n for n, b in buffers.items()}
    return Launch(kernel, tuple(by_name[b.name] for b in kernel.reads), tuple(by_name[b.name] for b in kernel.writes))


def _moved(coords: Coords, dim: int, start: Index) -> Coords:
    return (*coords[:dim], coords[dim] + start, *coords[dim + 1 :])


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def buffer_of(node: fx.Node, name: str) -> Buffer:
    """A tensor as it lies in memory, or will where kernels make it."""
    value = node.meta["val"]
    shape = tuple(expression(s) for s in value.shape)
    strides: Coords = tuple(expression(s) for s in value.stride())
    made_here = node.op == "call_function" and node.target is not operator.getitem and not is_view(node)
    if made_here and any(stride == 0 and size != 1 for stride, size in zip(strides, shape, strict=True)):
        strides = contiguous_strides(shape)
    return Buffer(name, value.dtype, shape, strides)
