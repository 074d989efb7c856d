"""List what the step of a schedule computes, reads and writes."""

from __future__ import annotations

import operator

import torch
from torch import fx

from fx_lsp.codegen.graph.partial_writes import writes_in, written_operands
from fx_lsp.codegen.graph.query import is_view, view_chain
from fx_lsp.codegen.ir.node_facts import facts_of
from fx_lsp.codegen.schedule.fusion import FusionGroup, Schedule


def computed_by(schedule: Schedule, number: int) -> list[fx.Node]:
    """Return the operations of a step in the order of the graph; several steps may compute one. Views are left out."""
    step = schedule.steps[number]
    if isinstance(step, fx.Node):
        return [step]
    inside, _ = _inside(schedule, step)
    listed = {n for n in inside if n.target is not operator.getitem and _is_listed(n, n in step.spans)}
    return [n for n in next(iter(step.spans)).graph.nodes if n in listed]


def read_by(schedule: Schedule, number: int) -> set[fx.Node]:
    """Return the tensors in memory that a step reads, with those that they are views or parts of."""
    step = schedule.steps[number]
    direct = set(step.all_input_nodes) if isinstance(step, fx.Node) else _inside(schedule, step)[1]
    return {base for node in direct for base in _bases(node)}


def written_by(schedule: Schedule, number: int) -> set[fx.Node]:
    """Return the tensors that a step writes, also those that it writes a part of."""
    step = schedule.steps[number]
    if isinstance(step, fx.Node):
        wholes = (whole for user in step.users for whole, _ in schedule.concat_parts.get(user, ()))
        return {step, *wholes, *(whole for whole, _ in schedule.concat_parts.get(step, ()))}
    stored = schedule.stored_by(step)
    return {*stored, *(whole for n in stored for whole, _ in schedule.concat_parts.get(n, ()))}


def _inside(schedule: Schedule, group: FusionGroup) -> tuple[set[fx.Node], set[fx.Node]]:
    """Return the nodes that the kernel of a group computes, and those that it reads from memory."""
    inside: set[fx.Node] = set()
    outside: set[fx.Node] = set()
    pending = list(schedule.stored_by(group))
    while pending:
        node = pending.pop()
        if node in inside or node in outside:
            continue
        if node not in group.spans and (node in schedule.stored or node.op != "call_function" or _is_written(node)):
            outside.add(node)
            continue
        inside.add(node)
        pending += written_operands(node) if _is_written(node) else node.all_input_nodes
    return inside, outside


def _is_listed(node: fx.Node, is_anchor: bool) -> bool:
    value = node.meta.get("val")
    is_tensor = any(isinstance(v, torch.Tensor) for v in (value if isinstance(value, (tuple, list)) else [value]))
    return is_tensor and (is_anchor or not is_view(node))


def _is_written(node: fx.Node) -> bool:
    return facts_of(node).in_place is not None


def _bases(node: fx.Node) -> set[fx.Node]:
    """Return a node, the tensors that it is a view of, the calls that it is a result of, and the writes in it."""
    bases = set(view_chain(node))
    bases |= {n.args[0] for n in bases if n.target is operator.getitem and isinstance(n.args[0], fx.Node)}
    return bases | {write for n in bases if facts_of(n).in_place == "enclosing" for write in writes_in(n)}
