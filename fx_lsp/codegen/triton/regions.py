"""Let Inductor compile what some kernels compute: a function of the same operations replaces them."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import TypeAlias

import torch
from torch import fx

from fx_lsp.choices import REGION_SUFFIX
from fx_lsp.codegen.graph.query import view_chain
from fx_lsp.codegen.ir.index import expression
from fx_lsp.codegen.ir.kernel import Kernel, KernelLaunch
from fx_lsp.codegen.ir.lowerings import operation
from fx_lsp.codegen.ir.node_facts import NodeFacts, facts_of
from fx_lsp.codegen.ir.values import Buffer
from fx_lsp.codegen.schedule.estimate import COMPILED_CALL, MICROSECOND, gain, seconds, seconds_of_ideal

_HARMLESS = {"role", "iteration", "parts", "must_materialize"}
"""Facts of nodes that say nothing about what they compute."""

_SEEDED = "prims.inductor_"
"""The beginning of the names of operations on seeds of random numbers: kernels draw other numbers than Inductor."""


@dataclass(frozen=True)
class CompiledRegion:
    """Operations that Inductor compiles as the function `name`: it takes the tensors `reads` and returns `writes`.

    `replaces` are the kernels that it replaces, and `reasons` sentences that say why.
    """

    name: str
    nodes: tuple[fx.Node, ...]
    reads: tuple[fx.Node, ...]
    writes: tuple[fx.Node, ...]
    replaces: tuple[Kernel, ...]
    reasons: tuple[str, ...] = ()


Step: TypeAlias = "KernelLaunch | CompiledRegion | fx.Node"
"""A step of a program: a launch, a compiled function, or a call of an operation of PyTorch."""


def reads_of(step: Step) -> Sequence[fx.Node]:
    """Return the tensors that a step reads."""
    return step.all_input_nodes if isinstance(step, fx.Node) else step.reads


def writes_of(step: Step) -> Sequence[fx.Node]:
    """Return the tensors that a step computes."""
    return (step,) if isinstance(step, fx.Node) else step.writes


def compile_regions(
    steps: Sequence[Step],
    reason: Callable[[KernelLaunch], str | None],
    results: Iterable[fx.Node | None],
    buffers: Mapping[fx.Node, Buffer],
    joined: bool,
) -> tuple[Step, ...]:
    """Return the steps of a program in which compiled regions replace kernels; if `joined`, consecutive ones share one.

    `reason` returns why a kernel is replaced, None if it is not. A kernel stays if its operations are not PyTorch's, or
    if it writes to a tensor that exists already.
    """
    reasons = {place: reason(step) for place, step in enumerate(steps) if isinstance(step, KernelLaunch)}
    chosen = [place for place, why in reasons.items() if why is not None]
    bodies = {place: body for place in chosen if (body := _body(steps[place], steps, buffers)) is not None}
    needed = {n for r in results if r is not None for n in view_chain(r)}
    run: list[Step] = []
    names: Counter[str] = Counter()
    for mark, places in groupby(range(len(steps)), key=lambda place: (place in bodies, None if joined else place)):
        group = list(places)
        if not mark[0]:
            run += [steps[place] for place in group]
            continue
        later = needed | {n for s in steps[group[-1] + 1 :] for read in reads_of(s) for n in view_chain(read)}
        region = _region([steps[p] for p in group], [bodies[p] for p in group], later)
        names[region.name] += 1
        name = f"{region.name}_{names[region.name]}" if names[region.name] > 1 else region.name
        run.append(replace(region, name=name, reasons=tuple(dict.fromkeys(filter(None, map(reasons.get, group))))))
    return tuple(run)


def reason_for_inductor(kernel: Kernel) -> str | None:
    """Return why Inductor should replace a kernel by the estimates, None if it should not."""
    if kernel.work is None or gain(kernel.work) < COMPILED_CALL:
        return None
    ours, ideal = (each(kernel.work) / MICROSECOND for each in (seconds, seconds_of_ideal))
    return f"{kernel.name} would take {ours:.0f} µs instead of {ideal:.0f} µs, by an estimate for an H200"


def _region(
    launches: Sequence[Step], bodies: Sequence[Sequence[fx.Node]], later: Collection[fx.Node]
) -> CompiledRegion:
    """Return the region of consecutive launches; it returns the tensors that are needed `later`."""
    kernels = [step.kernel for step in launches if isinstance(step, KernelLaunch)]
    nodes = dict.fromkeys(n for body in bodies for n in body)
    order = {n: place for place, n in enumerate(next(iter(nodes)).graph.nodes)}
    reads = dict.fromkeys(i for n in nodes for i in n.all_input_nodes if i not in nodes and _is_tensor(i))
    writes = dict.fromkeys(n for step in launches for n in writes_of(step) if n in later)
    return CompiledRegion(
        f"{kernels[0].name}{REGION_SUFFIX}",
        tuple(sorted(nodes, key=order.__getitem__)),
        tuple(reads),
        tuple(writes),
        tuple(kernels),
    )


def _body(launch: Step, steps: Sequence[Step], buffers: Mapping[fx.Node, Buffer]) -> list[fx.Node] | None:
    """Return the operations that a kernel computes from tensors in memory, None if PyTorch cannot compute them."""
    assert isinstance(launch, KernelLaunch)
    kernel = launch.kernel
    writers = [node for step in steps for node in writes_of(step)]
    if kernel.overwrites or any(writers.count(n) > 1 or not _has_own_layout(n, buffers[n]) for n in launch.writes):
        return None
    nodes: dict[fx.Node, None] = {}
    stack = list(launch.writes)
    while stack:
        node = stack.pop()
        if node in nodes or (node in buffers and node not in launch.writes):
            continue
        if node.op != "call_function":
            if _is_tensor(node) and node.op != "placeholder":
                return None
            continue
        if not _is_torch(node):
            return None
        nodes[node] = None
        stack.extend(i for i in node.all_input_nodes if _is_tensor(i) or isinstance(i.meta.get("val"), (tuple, list)))
    return list(nodes)


def _is_torch(node: fx.Node) -> bool:
    """Return True if PyTorch computes a node as it stands in the graph."""
    is_operator = isinstance(node.target, torch._ops.OpOverload) and node.target.namespace in ("aten", "prims")
    facts, none = facts_of(node), NodeFacts()
    own = (f.name for f in fields(facts) if f.name not in _HARMLESS)
    plain = all(getattr(facts, name) == getattr(none, name) for name in own)
    return plain and (node.target is operator.getitem or (is_operator and not operation(node).startswith(_SEEDED)))


def _has_own_layout(node: fx.Node, buffer: Buffer) -> bool:
    """Return True if the memory of a tensor has the strides that PyTorch gives it."""
    value = node.meta["val"]
    return tuple(map(expression, value.stride())) == tuple(buffer.strides)


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)
