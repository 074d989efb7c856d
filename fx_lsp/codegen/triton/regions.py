"""Let Inductor compile what some kernels and calls compute: a function of the same operations replaces them."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import TypeAlias

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from fx_lsp.choices import REGION_SUFFIX
from fx_lsp.codegen.graph.query import symbolic_shape, view_chain
from fx_lsp.codegen.ir.index import count, expression, size_hint
from fx_lsp.codegen.ir.kernel import Kernel, KernelLaunch, KernelWork
from fx_lsp.codegen.ir.lowerings import operation
from fx_lsp.codegen.ir.node_facts import NodeFacts, facts_of
from fx_lsp.codegen.ir.values import Buffer
from fx_lsp.codegen.schedule.estimate import Way, faster, ideal, region

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


def outputs_of_step(step: Step) -> list[fx.Node]:
    """Return the tensors that a step computes, and the parts of a tuple of them."""
    return [n for node in writes_of(step) for n in (node, *(u for u in node.users if u.target is operator.getitem))]


def writes_of(step: Step) -> Sequence[fx.Node]:
    """Return the tensors that a step computes."""
    return (step,) if isinstance(step, fx.Node) else step.writes


@dataclass(frozen=True)
class RegionCandidate:
    """A step that Inductor may replace: the `name` of its region, and a sentence that says why, "" for a choice."""

    name: str
    reason: str


def with_neighbours(steps: Sequence[Step], candidates: Mapping[int, RegionCandidate]) -> dict[int, RegionCandidate]:
    """Return the candidates with the kernels beside calls among them that share a tensor with these: in one region, the
    tensor need not be in memory. A kernel that computes in order, or from a template, stays.
    """
    joined = dict(candidates)
    for place in (place for place in candidates if isinstance(steps[place], fx.Node)):
        for first, second in ((place - 1, place), (place, place + 1)):
            beside = first + second - place
            launch = steps[beside] if beside in range(len(steps)) else None
            work = launch.kernel.work if isinstance(launch, KernelLaunch) else None
            if isinstance(launch, KernelLaunch) and work is not None and not work.sequential:
                read = {n for tensor in reads_of(steps[second]) for n in view_chain(tensor)}
                if not read.isdisjoint(outputs_of_step(steps[first])):
                    joined.setdefault(beside, RegionCandidate(launch.kernel.name, ""))
    return joined


def compile_regions(
    steps: Sequence[Step],
    candidates: Mapping[int, RegionCandidate],
    results: Iterable[fx.Node | None],
    buffers: Mapping[fx.Node, Buffer],
    joined: bool,
) -> tuple[Step, ...]:
    """Return the steps of a program in which compiled regions replace others; if `joined`, consecutive ones share one.

    `candidates` are by the index of their step. A kernel stays if its operations are not PyTorch's, or if it writes
    to a tensor that exists already.
    """
    bodies = {place: body for place in candidates if (body := _body(steps[place], steps, buffers)) is not None}
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
        first = candidates[group[0]].name
        names[first] += 1
        name = f"{first}{REGION_SUFFIX}" + (f"_{names[first]}" if names[first] > 1 else "")
        reasons = dict.fromkeys(candidates[place].reason for place in group)
        run.append(replace(region, name=name, reasons=tuple(filter(None, reasons))))
    return tuple(run)


def reason_for_inductor(step: KernelLaunch | fx.Node, hints: Mapping[str, int]) -> str | None:
    """Return why Inductor should replace a kernel, or a call of an operation, by an estimate; None if it should not.

    What a call moves is within kernels, if Inductor computes it together with the operations beside it.
    """
    if isinstance(step, KernelLaunch):
        work = step.kernel.work
        why = faster(Way((work,)), region(ideal(work))) if work is not None else None
        return why and f"{step.kernel.name} {why}"
    tensors = [t for n in (step, *step.all_input_nodes) for t in tree_leaves(n.meta.get("val"))]
    sizes = (size_hint(count(symbolic_shape(t)), hints) * t.itemsize for t in tensors if isinstance(t, torch.Tensor))
    return faster(Way((KernelWork(moved=sum(sizes)),)), region())


def _region(steps: Sequence[Step], bodies: Sequence[Sequence[fx.Node]], later: Collection[fx.Node]) -> CompiledRegion:
    """Return the region of consecutive steps, without a name; it returns the tensors that are needed `later`."""
    nodes = dict.fromkeys(n for body in bodies for n in body)
    order = {n: place for place, n in enumerate(next(iter(nodes)).graph.nodes)}
    reads = dict.fromkeys(i for n in nodes for i in n.all_input_nodes if i not in nodes and _is_tensor(i))
    written = (n for step, body in zip(steps, bodies, strict=True) for n in (*writes_of(step), *body))
    writes = dict.fromkeys(n for n in written if n in later and _is_tensor(n))
    kernels = tuple(step.kernel for step in steps if isinstance(step, KernelLaunch))
    return CompiledRegion("", tuple(sorted(nodes, key=order.__getitem__)), tuple(reads), tuple(writes), kernels)


def _body(step: Step, steps: Sequence[Step], buffers: Mapping[fx.Node, Buffer]) -> list[fx.Node] | None:
    """Return the operations that a step computes from tensors in memory, None if PyTorch cannot compute them."""
    if isinstance(step, fx.Node):
        return outputs_of_step(step)
    assert isinstance(step, KernelLaunch)
    writers = [node for other in steps for node in writes_of(other)]
    if step.kernel.overwrites or any(writers.count(n) > 1 or not _has_own_layout(n, buffers[n]) for n in step.writes):
        return None
    nodes: dict[fx.Node, None] = {}
    stack = list(step.writes)
    while stack:
        node = stack.pop()
        if node in nodes or (node in buffers and node not in step.writes):
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
