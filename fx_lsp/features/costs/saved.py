"""Explain why a value is saved for backward, and what it would cost to recompute it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fx_lsp.features.costs.operations import cost_of, cost_text
from fx_lsp.features.wording.text import count
from fx_lsp.model import Node, Saved, Stage, WhySaved

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
