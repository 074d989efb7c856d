"""Estimate the memory of forward and backward, step by step, from specs and uses; explain why values are saved."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from fx_lsp.features.costs.operations import cost_of, cost_text
from fx_lsp.features.wording.text import count
from fx_lsp.model import Node, Saved, Span, Stage, Trace, WhySaved

_REASONS: Mapping[WhySaved, str] = {
    "policy": "the policy of the checkpoint saves it",
    "random": "PyTorch does not sample random values again",
    "product": "PyTorch does not recompute matrix products, convolutions and attention",
    "unlisted": "PyTorch does not recompute this operation",
    "reduction": "PyTorch does not recompute a result that is much smaller than its inputs",
    "cut": "PyTorch could recompute it; by its min-cut, saving moves fewer bytes",
}


def why_saved(saved: Saved, forward: Stage | None, others: Iterable[Saved]) -> str:
    """Return the partitioner's reason to save a value, and the cost of recomputing it from the `others` that are saved
    and the inputs; "" without a reason.
    """
    reason = _REASONS.get(saved.why, "")
    nodes = () if forward is None or not reason else recomputation(saved.name, forward, others)
    if not nodes:
        return reason
    costs = " · ".join(filter(None, [count("op", sum(node.computes for node in nodes)), cost_text(cost_of(nodes))]))
    return f"{reason}. To recompute it: {costs}"


def recomputation(name: str, forward: Stage, saved: Iterable[Saved]) -> tuple[Node, ...]:
    """Return the operations that compute a value from inputs and other saved values, in order."""
    nodes = {node.name: node for node in forward.nodes}
    available = {other.name for other in saved} - {name}
    wanted, pending = set[str](), [name]
    while pending:
        node = nodes.get(pending.pop())
        if node is not None and node.name not in wanted and node.name not in available and node.op != "placeholder":
            wanted.add(node.name)
            pending += node.inputs
    return tuple(node for node in forward.nodes if node.name in wanted)


_TENSOR = re.compile(r"\b(?P<kind>bf|[biufc])(?P<bits>\d+)\w*\[(?P<sizes>[^\]]*)\]")
# fmt: off
_VIEWS = frozenset({
    "_conj", "_neg_view", "_reshape_alias", "_unsafe_view", "alias", "as_strided", "chunk", "detach", "diagonal",
    "expand", "expand_as", "getitem", "imag", "lift_fresh", "movedim", "narrow", "permute", "real", "reshape",
    "select", "slice", "split", "split_with_sizes", "squeeze", "swapaxes", "swapdims", "t", "tensor_split",
    "transpose", "unbind", "unflatten", "unfold", "unsqueeze", "view", "view_as", "view_as_complex", "view_as_real",
})
# fmt: on


@lru_cache(maxsize=4096)
def bytes_of(spec: str | None) -> int | None:
    """Return the bytes of all tensors' elements in a spec, 0 without tensors; None if a size is not a number."""
    total = 0
    for tensor in _TENSOR.finditer(spec or ""):
        elements = 1
        for size in filter(None, (part.strip() for part in tensor["sizes"].split(","))):
            if not size.isdigit():
                return None
            elements *= int(size)
        total += elements * max(int(tensor["bits"]) // 8, 1)
    return total


def shares_storage(node: Node) -> bool:
    """Return True if the result of a node shares the memory of its first input: a view, or a write in place."""
    if not node.op.startswith("call_") or not node.inputs:
        return False
    name = node.target.removeprefix("aten.").partition(".")[0].rpartition(".")[2] if "aten." in node.target else ""
    name = name or node.target.rpartition(".")[2]
    return name in _VIEWS or (name.endswith("_") and not name.startswith("_"))


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
            root = node.inputs[0] if shares_storage(node) else node.name
            if root in owner:
                owner[node.name] = owner[root]
            elif root == node.name:
                owner[node.name] = node.name
    return owner
