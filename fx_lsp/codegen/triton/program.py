"""A graph as a program: kernels, and calls that stay in ATen, in order."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import sympy
import torch
from sympy import expand
from torch import fx

from fx_lsp.choices import Choices
from fx_lsp.codegen.graph.loops import is_whole
from fx_lsp.codegen.graph.query import buffer_of, is_empty, is_sum, is_view, shape_of, views
from fx_lsp.codegen.graph.scatter import summed_shape
from fx_lsp.codegen.graph.template_kernel import landing, outputs_of, writer_of
from fx_lsp.codegen.graph.unsupported import Unsupported, why_called
from fx_lsp.codegen.ir.index import Space, count
from fx_lsp.codegen.ir.kernel import Kernel, Launch, Naming
from fx_lsp.codegen.ir.tile import WHOLE
from fx_lsp.codegen.ir.values import Buffer, Reduction, Store, values_of
from fx_lsp.codegen.ir.write_target import Place
from fx_lsp.codegen.lower.builder import Builder, Cut, Domain
from fx_lsp.codegen.lower.indexing import addition
from fx_lsp.codegen.schedule.fusion import Group, Schedule, schedule
from fx_lsp.codegen.schedule.in_place import fits, overwriting
from fx_lsp.codegen.schedule.loop_detection import rounds_of
from fx_lsp.codegen.schedule.tiling import at_once, is_crossed, spread, tile_of, varying
from fx_lsp.codegen.triton.fusion_kernel import kernel_text
from fx_lsp.codegen.triton.loop import rolled


@dataclass(frozen=True)
class Program:
    """What a graph does. `steps` are kernels and nodes that are called as they are.

    `results` are what it returns, None where a gradient is; `buffers` the tensors that it allocates or is given;
    `calls` say of the calls among the steps why they are none of kernels; `overwritten` are inputs that have the values
    of some results afterwards, by those.
    """

    inputs: tuple[fx.Node, ...]
    steps: tuple[Launch | fx.Node, ...]
    results: tuple[fx.Node | None, ...]
    buffers: Mapping[fx.Node, Buffer]
    calls: tuple[Unsupported, ...] = ()
    overwritten: Mapping[fx.Node, fx.Node] = field(default_factory=dict[fx.Node, fx.Node])


def program(
    graph: fx.Graph,
    title: str,
    naming: Naming,
    hints: Mapping[str, int],
    choices: Choices,
    changed: Mapping[fx.Node, fx.Node] | None = None,
) -> Program:
    """The program of a graph; `title` begins the names of its kernels, `changed` are inputs that are to have the values
    of some results afterwards, by those."""
    computed = {n for n in graph.nodes if n.op == "call_function" and n.target is not operator.getitem}
    cut = {n for n in computed if is_whole(n) or (choices.fuse == "no" and not is_view(n))}
    called = dict.fromkeys(computed if choices.engine == "inductor" else (), "")
    while True:
        try:
            made = _program(graph, title, naming, hints, cut, called, changed or {})
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
    changed: Mapping[fx.Node, fx.Node],
) -> Program:
    plan = schedule(graph, cut, called)
    buffers = {n: buffer_of(n, naming.name(n)) for n in graph.nodes if n in plan.stored and _is_tensor(n)}
    steps: list[Launch | fx.Node] = []
    groups = [s for s in plan.steps if isinstance(s, Group)]
    taken: set[str] = set()
    fitting: dict[fx.Node, fx.Node] = {}
    for step in plan.steps:
        if isinstance(step, fx.Node):
            writer = writer_of(step)
            if writer is None:
                steps.append(step)
                continue
            places = {number: _place(result, plan, buffers) for number, result in outputs_of(step).items()}
            kernels = writer(places, buffers, naming, title)
            if any(k.name in taken for k in kernels):
                more = naming.name(next(iter(places.values())).node)
                kernels = writer(places, buffers, naming, f"{title}_{more}")
            taken.update(k.name for k in kernels)
            steps.extend(launched(kernel, buffers) for kernel in kernels)
            continue
        wanted = [n for n in step.spans if n in plan.stored or n in plan.pieces]
        if wanted:
            name = f"{title}_{naming.name(wanted[0])}"
            name = title if len(groups) == 1 and title not in taken else name
            taken.add(name)
            launch, over = _launch(step, wanted, plan, name, buffers, naming, hints, changed)
            steps.append(launch)
            fitting |= over
    output = next(n for n in reversed(graph.nodes) if n.op == "output")
    returned = output.args[0] if isinstance(output.args[0], (tuple, list)) else (output.args[0],)
    inputs = tuple(n for n in graph.nodes if n.op == "placeholder")
    results = tuple(r if isinstance(r, fx.Node) else None for r in returned)
    run, overwritten = overwriting(_without_idle(steps, results), fitting, results, buffers)
    return Program(inputs, run, results, buffers, overwritten=overwritten)


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
    changed: Mapping[fx.Node, fx.Node],
) -> tuple[Launch, dict[fx.Node, fx.Node]]:
    """The launch of a group, and the inputs among `changed` that it may overwrite."""
    builder, stores = _stores(group, wanted, plan, buffers, frozenset())
    reductions = [v for v in values_of(v for s in stores for v in s.values) if isinstance(v, Reduction)]
    idle = {a for v in reductions for a in v.over} - varying(stores)
    if idle:
        builder, stores = _stores(group, wanted, plan, buffers, frozenset(idle))
    rounds = rounds_of(stores)
    tile = tile_of(builder.domain, stores, hints)
    whole = at_once(tile) if rounds is not None or is_crossed(tile, stores) else None
    if rounds is not None and whole is not None:
        whole = spread(whole, rounds.held) if rounds.held else whole
        return launched(rolled(name, whole, rounds, builder.indirect, naming), buffers), {}
    tile = whole or tile
    kernel = kernel_text(name, tile, stores, builder.indirect, naming)
    pairs = [(new, old) for new, old in changed.items() if new in wanted and old in buffers]
    return launched(kernel, buffers), {n: o for n, o in pairs if fits(stores, tile, buffers[n], buffers[o])}


def _stores(
    group: Group,
    wanted: list[fx.Node],
    plan: Schedule,
    buffers: Mapping[fx.Node, Buffer],
    idle: frozenset[sympy.Symbol],
) -> tuple[Builder, list[Store]]:
    """What a group writes; its axes have the same symbols each time. Along the axes `idle` nothing varies."""
    space = Space()
    axes = tuple(space.axis(f"i{n}", size) for n, size in enumerate(group.sizes))
    domain = Domain(axes, group.sizes)
    reduced = {m for m in group.reduces.values()}
    whole = all(
        (n := count(s for s, r in zip(group.sizes, mask, strict=True) if r)).is_Integer and n <= WHOLE
        for mask in reduced
    )
    builder = Builder(space, domain, {n: b for n, b in buffers.items() if n not in group.spans}, whole, idle=idle)
    stores: list[Store] = []
    for node in wanted:
        missing = frozenset(a for a, spans in zip(axes, group.spans[node], strict=True) if not spans)
        shape = summed_shape(node) if is_sum(node) else shape_of(node)
        coords = space.coordinates(domain.position(missing), shape)
        if is_sum(node):
            stores.append(addition(builder, node, coords, frozenset(axes) - missing, buffers[node]))
            continue
        value = builder.pull(node, coords)
        targets = [(node, ())] * (node in plan.stored) + plan.pieces.get(node, [])
        for place in (Place(node, shape, buffers[target], steps) for target, steps in targets):
            stores.append(Store(place.buffer, expand(place.index(space, coords)), value, node))
    return builder, stores


def _place(result: fx.Node, plan: Schedule, buffers: Mapping[fx.Node, Buffer]) -> Place:
    """Where a result of a kernel of ours is written."""
    shape, steps = landing(result)
    target, further = plan.pieces[result][0] if result in plan.pieces else (result, ())
    return Place(result, shape, buffers[target], (*steps, *further))


def launched(kernel: Kernel, buffers: Mapping[fx.Node, Buffer]) -> Launch:
    """A kernel with the nodes of its buffers."""
    by_name = {b.name: n for n, b in buffers.items()}
    return Launch(kernel, tuple(by_name[b.name] for b in kernel.reads), tuple(by_name[b.name] for b in kernel.writes))


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)
