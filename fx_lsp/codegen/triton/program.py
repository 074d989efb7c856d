"""Compile a graph to a program: kernels and calls of ATen, in order."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import sympy
import torch
from sympy import expand
from torch import fx

from fx_lsp.choices import ALL_KERNELS, AUTO, EACH_KERNEL, NO_KERNELS, Choices
from fx_lsp.codegen.graph.partial_writes import INDEXED_WRITES, mark_partial_writes, written_operands
from fx_lsp.codegen.graph.query import buffer_of, is_empty, is_view, shape_of, view_chain
from fx_lsp.codegen.graph.scatter import scatter_shape
from fx_lsp.codegen.graph.templates.template_kernel import output_layout, outputs_of
from fx_lsp.codegen.graph.unsupported import Unsupported, unsupported_reason
from fx_lsp.codegen.ir.index import Space, count
from fx_lsp.codegen.ir.kernel import Kernel, KernelLaunch, Naming
from fx_lsp.codegen.ir.lowerings import NotFusible, operation
from fx_lsp.codegen.ir.node_facts import facts_of
from fx_lsp.codegen.ir.template import (
    AttentionForward,
    AttentionGradients,
    AttentionScoreSum,
    MatmulTemplate,
    Template,
    TemplateCall,
)
from fx_lsp.codegen.ir.tile import MAX_ROW_ELEMENTS, Tile
from fx_lsp.codegen.ir.values import Buffer, Reduction, Store, values_of
from fx_lsp.codegen.ir.write_target import WriteTarget
from fx_lsp.codegen.lower.builder import Builder, Domain
from fx_lsp.codegen.lower.indexing import atomic_add, write_in_place
from fx_lsp.codegen.schedule.estimate import work_of
from fx_lsp.codegen.schedule.fusion import FusionGroup, Schedule, build_schedule
from fx_lsp.codegen.schedule.in_place import can_overwrite, overwrite_inputs, reads_what_it_overwrites
from fx_lsp.codegen.schedule.loop_detection import detect_loop
from fx_lsp.codegen.schedule.tiling import crosses_reductions, tile_of, varying_axes, with_warps_for, without_loop
from fx_lsp.codegen.triton.dot import write_matmul_template
from fx_lsp.codegen.triton.flash_attention import (
    write_attention_forward,
    write_attention_gradients,
    write_attention_score_sum,
)
from fx_lsp.codegen.triton.fusion_kernel import write_fusion_kernel
from fx_lsp.codegen.triton.loop import write_loop_kernel
from fx_lsp.codegen.triton.regions import (
    RegionCandidate,
    Step,
    compile_regions,
    reason_for_inductor,
    with_neighbours,
)
from fx_lsp.codegen.triton.sharing import share_kernels


@dataclass(frozen=True)
class Program:
    """A graph as kernels and calls. `steps` are kernel launches, regions that Inductor compiles, and fallback nodes.

    `results` are the returned nodes, None for a missing gradient. `buffers` are the tensors that it allocates or is
    given. `calls` are the reasons why steps fall back to PyTorch. `overwritten` maps results to overwritten inputs.
    `schedule` has the groups of the kernels (None for the program of a region), and `kernel_names` the names of these,
    by the index of the step there.
    """

    inputs: tuple[fx.Node, ...]
    steps: tuple[Step, ...]
    results: tuple[fx.Node | None, ...]
    buffers: Mapping[fx.Node, Buffer]
    calls: tuple[Unsupported, ...] = ()
    overwritten: Mapping[fx.Node, fx.Node] = field(default_factory=dict[fx.Node, fx.Node])
    schedule: Schedule | None = None
    kernel_names: Mapping[int, str] = field(default_factory=dict[int, str])


@dataclass(frozen=True)
class ProgramSpec:
    """A graph to compile: `title` is the prefix of its kernel names, and `hints` are values of its symbolic sizes.

    `changed` maps results to the inputs that take their values. `generates` returns True for an operation that Inductor
    computes in kernels.
    """

    graph: fx.Graph
    title: str
    naming: Naming
    hints: Mapping[str, int]
    changed: Mapping[fx.Node, fx.Node] = field(default_factory=dict[fx.Node, fx.Node])
    generates: Callable[[fx.Node], bool] = lambda node: False


@dataclass
class _Limits:
    """Nodes of a graph that kernels do not fuse (`cut`), that PyTorch computes (`called`), and that are not written in
    place (`copied`). The first two have a reason each.
    """

    cut: dict[fx.Node, str]
    called: dict[fx.Node, str]
    copied: set[fx.Node]

    @classmethod
    def chosen(cls, graph: fx.Graph, choices: Choices) -> _Limits:
        """Return the limits that the user chose."""
        operations = (n for n in graph.nodes if n.op == "call_function" and n.target is not operator.getitem)
        computed = {n for n in operations if not isinstance(n.meta.get("val"), (torch.SymInt, torch.SymFloat))}
        cut = dict.fromkeys((n for n in computed if facts_of(n).must_materialize), "is read by a split reduction")
        if choices.fuse == "no":
            cut |= dict.fromkeys((n for n in computed if not is_view(n)), "is not fused by the option `fuse`")
        return cls(
            cut,
            dict.fromkeys(computed if choices.engine != "fx-lsp" else (), ""),
            {n for n in computed if choices.deterministic == "yes" and operation(n) in INDEXED_WRITES},
        )

    def add(self, error: NotFusible) -> None:
        """Record that a kernel cannot contain a node. Raises the error if PyTorch computes the node already."""
        node = error.node
        if facts_of(node).in_place:
            self.copied.add(node)
        elif node in self.called:
            raise error
        elif node in self.cut:
            self.called[node] = error.why
        else:
            self.cut[node] = error.why


def build_program(spec: ProgramSpec, choices: Choices) -> Program:
    """Return the program of a graph."""
    limits = _Limits.chosen(spec.graph, choices)
    while True:
        if choices.engine == "fx-lsp":
            mark_partial_writes(spec.graph, spec.changed, limits.copied)
        try:
            program = _program(spec, choices, limits.cut, limits.called)
        except NotFusible as error:
            limits.add(error)
            continue
        steps = [s for s in program.steps if isinstance(s, fx.Node)]
        calls = (unsupported_reason(s, choices, limits.called.get(s)) for s in steps)
        program = replace(program, calls=tuple(c for c in calls if c is not None))
        return program if choices.inductor == NO_KERNELS else _with_regions(program, spec, choices)


def _with_regions(program: Program, spec: ProgramSpec, choices: Choices) -> Program:
    """Return a program in which Inductor replaces the chosen kernels, and calls that it has kernels for."""
    calls = {call.node: call for call in program.calls if not call.chosen}
    names, is_automatic = choices.inductor.split(","), choices.inductor == AUTO
    is_chosen = choices.inductor in (ALL_KERNELS, EACH_KERNEL)

    def candidate(step: Step) -> RegionCandidate | None:
        """Return the candidate of a step, None if it stays."""
        if isinstance(step, fx.Node):
            is_slow = is_chosen or (is_automatic and reason_for_inductor(step, spec.hints) is not None)
            if step not in calls or not is_slow or not spec.generates(step):
                return None
            return RegionCandidate(f"{spec.title}_{spec.naming.name(step)}", calls[step].region_reason)
        assert isinstance(step, KernelLaunch)
        reason = reason_for_inductor(step, spec.hints) if is_automatic else None
        reason = "" if is_chosen or step.kernel.name in names else reason
        return None if reason is None else RegionCandidate(step.kernel.name, reason)

    candidates = {place: each for place, step in enumerate(program.steps) if (each := candidate(step)) is not None}
    if is_automatic:
        candidates = with_neighbours(program.steps, candidates)
    joined = choices.inductor != EACH_KERNEL
    steps = compile_regions(program.steps, candidates, program.results, program.buffers, joined)
    return replace(program, steps=steps, calls=tuple(call for call in program.calls if call.node in steps))


def _program(spec: ProgramSpec, choices: Choices, cut: Mapping[fx.Node, str], called: Collection[fx.Node]) -> Program:
    graph, title, naming = spec.graph, spec.title, spec.naming
    plan = build_schedule(graph, cut, called)
    buffers = {n: buffer_of(n, naming.name(n)) for n in graph.nodes if n in plan.stored and _is_tensor(n)}
    steps: list[KernelLaunch | fx.Node] = []
    groups = [s for s in plan.steps if isinstance(s, FusionGroup)]
    kernel_names: set[str] = set()
    overwritable: dict[fx.Node, fx.Node] = {}
    aliases: dict[fx.Node, Buffer] = {}
    launching: list[int] = []
    for number, step in enumerate(plan.steps):
        if isinstance(step, fx.Node):
            template = facts_of(step).template
            if template is None:
                steps.append(step)
                continue
            targets = {output: _write_target(result, plan, buffers) for output, result in outputs_of(step).items()}
            if targets:
                aliases |= {n: _aliasing_buffer(n, naming) for n in step.all_input_nodes if _is_in_place(n)}
                memory = {**buffers, **aliases}
                call = TemplateCall(step, targets, memory, naming, title, choices)
                kernel = _template_kernel(template, call, kernel_names)
                kernel_names.add(kernel.name)
                steps.append(launch_of(kernel, memory))
                launching.append(number)
            continue
        stored = plan.stored_by(step)
        if stored:
            name = f"{title}_{naming.name(stored[0])}"
            name = title if len(groups) == 1 and title not in kernel_names else name
            kernel_names.add(name)
            launch, over = _launch(spec, name, step, plan, buffers)
            steps.append(launch)
            launching.append(number)
            overwritable |= over
    inputs, results = _signature(graph)
    run, overwritten = overwrite_inputs(_without_unused_empties(steps, results), overwritable, results, buffers)
    overwritten |= {new: old for new, old in spec.changed.items() if old in view_chain(new)}
    run = share_kernels(run)
    names = (step.kernel.name for step in run if isinstance(step, KernelLaunch))
    by_step = dict(zip(launching, names, strict=True))
    memory = {**buffers, **aliases}
    return Program(inputs, run, results, memory, (), overwritten, plan, by_step)


def _is_in_place(node: Any) -> bool:
    return isinstance(node, fx.Node) and facts_of(node).in_place is not None


def _aliasing_buffer(node: Any, naming: Naming) -> Buffer:
    """Return the memory of a write in place, which is that of its first argument, under its own name."""
    base = node.args[0]
    while _is_in_place(base):
        base = base.args[0]
    return buffer_of(base, naming.name(node))


def _signature(graph: fx.Graph) -> tuple[tuple[fx.Node, ...], tuple[fx.Node | None, ...]]:
    """Return the inputs and the results of a graph."""
    output = next(n for n in reversed(graph.nodes) if n.op == "output")
    returned = output.args[0] if isinstance(output.args[0], (tuple, list)) else (output.args[0],)
    inputs = tuple(n for n in graph.nodes if n.op == "placeholder")
    return inputs, tuple(r if isinstance(r, fx.Node) else None for r in returned)


def _template_kernel(template: Template, call: TemplateCall, kernel_names: Collection[str]) -> Kernel:
    """Return the kernel of a template node under an unused name."""
    kernel = _write_template(template, call)
    if kernel.name not in kernel_names:
        return kernel
    first = next(iter(call.targets.values())).node
    return _write_template(template, replace(call, title=f"{call.title}_{call.naming.name(first)}"))


def _write_template(template: Template, call: TemplateCall) -> Kernel:
    match template:
        case MatmulTemplate():
            return write_matmul_template(template, call)
        case AttentionForward():
            return write_attention_forward(template, call)
        case AttentionGradients():
            return write_attention_gradients(template, call)
        case AttentionScoreSum():
            return write_attention_score_sum(template, call)


def _without_unused_empties(
    steps: Sequence[KernelLaunch | fx.Node], results: Iterable[fx.Node | None]
) -> tuple[KernelLaunch | fx.Node, ...]:
    """Return the steps without those that make empty tensors that nothing uses."""
    used = {n for result in results if result is not None for n in view_chain(result)}
    steps_needed: list[KernelLaunch | fx.Node] = []
    for step in reversed(steps):
        if isinstance(step, fx.Node) and is_empty(step):
            if step in used:
                steps_needed.append(step)
            continue
        reads = step.reads if isinstance(step, KernelLaunch) else step.all_input_nodes
        used.update(n for read in reads for n in view_chain(read))
        steps_needed.append(step)
    return tuple(reversed(steps_needed))


def _launch(
    spec: ProgramSpec, name: str, group: FusionGroup, plan: Schedule, buffers: Mapping[fx.Node, Buffer]
) -> tuple[KernelLaunch, dict[fx.Node, fx.Node]]:
    """Return the launch of a group, and the inputs among the changed ones that it overwrites."""
    builder, stores = _stores(group, plan, buffers, frozenset())
    reductions = [v for v in values_of(v for s in stores for v in s.values) if isinstance(v, Reduction)]
    idle = {a for v in reductions for a in v.over} - varying_axes(stores)
    if idle:
        builder, stores = _stores(group, plan, buffers, frozenset(idle))
    loop_kernel = detect_loop(stores)
    tile = tile_of(builder.domain, stores, spec.hints, iterates=loop_kernel is not None)
    overwrites = _overwritten(stores, tile, buffers)
    whole = without_loop(tile) if loop_kernel is not None or crosses_reductions(tile, stores) else None
    if loop_kernel is not None and whole is not None:
        whole = with_warps_for(whole, loop_kernel.live_values) if loop_kernel.live_values else whole
        kernel = write_loop_kernel(name, whole, loop_kernel, builder.indirect, spec.naming)
        work = replace(work_of(stores, whole, builder.space.sizes, spec.hints), sequential=True)
        return launch_of(replace(kernel, overwrites=overwrites, work=work), buffers), {}
    tile = whole or tile
    kernel = write_fusion_kernel(name, tile, stores, builder.indirect, spec.naming)
    work = work_of(stores, tile, builder.space.sizes, spec.hints)
    kernel = replace(kernel, overwrites=overwrites, work=work)
    stored = plan.stored_by(group)
    pairs = [(new, old) for new, old in spec.changed.items() if new in stored and {new, old} <= buffers.keys()]
    return launch_of(kernel, buffers), {n: o for n, o in pairs if can_overwrite(stores, tile, buffers[n], buffers[o])}


def _overwritten(stores: Sequence[Store], tile: Tile, buffers: Mapping[fx.Node, Buffer]) -> tuple[str, ...]:
    """Return the names of the tensors that a kernel reads and writes into.

    Raises NotFusible if a value for such a write has to be stored before, or for the write itself.
    """
    names: list[str] = []
    for store in (s for s in stores if facts_of(s.node).in_place):
        reads = reads_what_it_overwrites(stores, tile, store)
        if reads is None:
            computed = [n for n in written_operands(store.node) if n not in buffers and _is_tensor(n)]
            raise NotFusible((*computed, store.node)[0], "reads elements that its kernel overwrites")
        names += [store.buffer.name] * reads
    return tuple(names)


def _stores(
    group: FusionGroup, plan: Schedule, buffers: Mapping[fx.Node, Buffer], idle: frozenset[sympy.Symbol]
) -> tuple[Builder, list[Store]]:
    """Return the builder and the stores of a group. The symbols of its axes are the same in every call.

    Nothing varies along the axes `idle`.
    """
    space = Space()
    axes = tuple(space.axis(f"i{n}", size) for n, size in enumerate(group.sizes))
    domain = Domain(axes, group.sizes)
    reduced = {m for m in group.reduces.values()}
    whole = all(
        (n := count(s for s, r in zip(group.sizes, mask, strict=True) if r)).is_Integer and n <= MAX_ROW_ELEMENTS
        for mask in reduced
    )
    builder = Builder(
        space, domain, {n: b for n, b in buffers.items() if n not in group.spans}, whole, invariant_axes=idle
    )
    stores: list[Store] = []
    for node in plan.stored_by(group):
        missing = frozenset(a for a, spans in zip(axes, group.spans[node], strict=True) if not spans)
        indexed = facts_of(node).scatter_sum or facts_of(node).in_place
        coords = space.coordinates(domain.position(missing), scatter_shape(node) if indexed else shape_of(node))
        if facts_of(node).in_place:
            stores.append(write_in_place(builder, node, coords, frozenset(axes) - missing))
            continue
        if facts_of(node).scatter_sum:
            stores.append(atomic_add(builder, node, coords, frozenset(axes) - missing, buffers[node]))
            continue
        value = builder.lower(node, coords)
        targets = [(node, ())] * (node in plan.stored) + plan.concat_parts.get(node, [])
        for place in (WriteTarget(node, shape_of(node), buffers[target], steps) for target, steps in targets):
            stores.append(Store(place.buffer, expand(place.index(space, coords)), value, node))
    return builder, stores


def _write_target(result: fx.Node, plan: Schedule, buffers: Mapping[fx.Node, Buffer]) -> WriteTarget:
    """Return the place that a result of a template kernel is written to."""
    shape, steps = output_layout(result)
    target, further = plan.concat_parts[result][0] if result in plan.concat_parts else (result, ())
    return WriteTarget(result, shape, buffers[target], (*steps, *further))


def launch_of(kernel: Kernel, buffers: Mapping[fx.Node, Buffer]) -> KernelLaunch:
    """Return the launch of a kernel with the nodes of its buffers."""
    by_name = {b.name: n for n, b in buffers.items()}
    return KernelLaunch(
        kernel, tuple(by_name[b.name] for b in kernel.reads), tuple(by_name[b.name] for b in kernel.writes)
    )


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)
