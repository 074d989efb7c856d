"""Estimate the memory of forward and backward, step by step, from specs and uses."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from fx_lsp.features.costs.sizes import bytes_of, shares_storage
from fx_lsp.model import Node, Saved, Span, Stage, Trace


@dataclass(frozen=True)
class MemoryStep:
    """Hold the bytes of live activations at the moment when an operation has its result and still its inputs.

    `kept` are those saved for backward. Parameters and inputs are not counted, gradients are.
    """

    stage: str
    name: str
    spec: str
    span: Span | None
    live: int
    kept: int
    made: int


@dataclass(frozen=True)
class SavedLifetime:
    """Hold a value saved for backward, with its lifetime: the indices of the steps of its computation and its
    last use.
    """

    saved: Saved
    made: int | None
    last: int | None


@dataclass(frozen=True)
class Memory:
    """Hold the steps of a target; `peak` is the index of a step. `unknown` counts values without a numeric size."""

    steps: tuple[MemoryStep, ...]
    kept: tuple[SavedLifetime, ...]
    peak: int | None
    unknown: int


def memory(trace: Trace, forward: Stage, backward: Stage | None) -> Memory:
    """Return the memory of a target over forward and backward; saved values are sorted by size, the largest first."""
    saved = {s.name: s for s in trace.saved}
    own = {name for name, s in saved.items() if s.kind == "activation"}
    sizes = _sizes(forward, saved) | ({} if backward is None else _sizes(backward, saved))
    steps = list(_walk(forward, sizes, own, {}))
    step_of = {step.name: i for i, step in enumerate(steps)}
    last_uses: dict[str, int] = {}
    if backward is not None:
        alive = {n.name: sizes[n.name] for n in backward.nodes if n.op == "placeholder" and n.name in own}
        last_uses = _last_uses(backward, saved, len(steps))
        steps += _walk(backward, sizes, own, alive)
    peak = max(range(len(steps)), key=lambda i: steps[i].live, default=None)
    ranked = sorted(trace.saved, key=lambda s: -s.bytes)
    unknown = sum(1 for stage in (forward, backward) if stage for n in stage.nodes if bytes_of(n.spec) is None)
    lifetimes = tuple(SavedLifetime(s, step_of.get(s.name), last_uses.get(s.name)) for s in ranked)
    return Memory(tuple(steps), lifetimes, peak, unknown)


def _last_uses(backward: Stage, saved: Collection[str], first_step: int) -> dict[str, int]:
    """Return the step of the last use of each saved value in backward, whose first step is `first_step`."""
    uses = [node for node in backward.nodes if node.op.startswith("call_")]
    return {name: step for step, node in enumerate(uses, start=first_step) for name in node.inputs if name in saved}


def _sizes(stage: Stage, saved: Mapping[str, Saved]) -> dict[str, int]:
    return {n.name: saved[n.name].bytes if n.name in saved else bytes_of(n.spec) or 0 for n in stage.nodes}


def _walk(stage: Stage, sizes: Mapping[str, int], kept: set[str], alive: dict[str, int]) -> Iterator[MemoryStep]:
    """Yield the steps of a stage. `alive` are the values at its start, with their bytes."""
    owner = _owners(stage, alive)
    alive = {owner.get(name, name): size for name, size in alive.items()}
    kept = {owner.get(name, name) for name in kept}
    ends = _ends(stage, owner, kept)
    live, held = sum(alive.values()), sum(size for name, size in alive.items() if name in kept)
    for i, node in enumerate(stage.nodes):
        if not node.op.startswith("call_"):
            continue
        fresh = sizes[node.name] if owner.get(node.name) == node.name else None
        if fresh is not None:
            alive[node.name] = fresh
            live += fresh
            held += fresh if node.name in kept else 0
        yield MemoryStep(stage.name, node.name, node.spec or "", node.span, live, held, fresh or 0)
        for name in {owner.get(n, n) for n in (node.name, *node.inputs)}:
            if name in alive and ends.get(name, i) <= i:
                size = alive.pop(name)
                live -= size
                held -= size if name in kept else 0


def _ends(stage: Stage, owner: Mapping[str, str], kept: Collection[str]) -> dict[str, int]:
    """Return the index in a stage of the last read of each memory.

    Returned values live beyond the last index. So do saved values, except in backward.
    """
    ends = {owner.get(name, name): i for i, node in enumerate(stage.nodes) for name in node.inputs}
    returned = [name for node in stage.nodes if node.op == "output" for name in node.inputs]
    stays = {owner.get(name, name) for name in returned} | (set(kept) if stage.name != "backward" else set[str]())
    return ends | dict.fromkeys(stays, len(stage.nodes))


def _owners(stage: Stage, begin: Mapping[str, int]) -> dict[str, str]:
    """Return for each value the first value that has its memory. Parameters and inputs have none, because they are not
    activations.
    """
    owner: dict[str, str] = {name: name for name in begin}
    for node in stage.nodes:
        if node.op.startswith("call_"):
            root = _source(node) if shares_storage(node) else node.name
            if root in owner:
                owner[node.name] = owner[root]
            elif root == node.name:
                owner[node.name] = node.name
    return owner


def _source(node: Node) -> str:
    return node.inputs[0]
