"""Custom operators whose fake kernel says something else than what they give, each run once on real tensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_iter, tree_map_only

from fx_lsp.model import Remark
from fx_lsp.tracer.capture.graphs import Names, value_of, value_spec
from fx_lsp.tracer.failures.fake_kernels import is_custom
from fx_lsp.tracer.program.effects import EffectBlocked, forbid_effects
from fx_lsp.tracer.program.time_limit import TimeUp, time_limit
from fx_lsp.tracer.stages.real_tensors import FILLS, Fill, bytes_of, real_like

MAX_BYTES = 1 << 26
"""An operator with larger operands is not run."""
SECONDS = 2.0
"""How long the operators of one target may run."""


def disagreements(graph: fx.Graph, names: Names) -> list[Remark]:
    """Return what is wrong with the fake kernels of the operators in a graph, once for each operator."""
    remarks: dict[str, Remark] = {}
    with suppress(TimeUp), time_limit(SECONDS):
        for node in graph.nodes:
            if not _runs_here(node.target) or node.target.name() in remarks:
                continue
            if (said := _disagreement(node)) is not None:
                chain = names.chain(node)
                remarks[node.target.name()] = Remark(said, chain[0] if chain else None, "warning")
    return list(remarks.values())


def _runs_here(target: Any) -> bool:
    """Return True for an operator of somebody's own that has a kernel for the CPU, and writes to no operand."""
    if not isinstance(target, OpOverload) or not is_custom(target) or target._schema.is_mutable:
        return False
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return any(has_kernel(target.name(), key) for key in ("CPU", "CompositeExplicitAutograd"))


def _disagreement(node: fx.Node) -> str | None:
    operands = [value_of(operand) for operand in node.all_input_nodes]
    if sum(map(bytes_of, operands)) > MAX_BYTES:
        return None
    fake = list(_specs(value_of(node)))
    real = next((specs for fill in FILLS if (specs := _ran(node, fill)) is not None), None)
    if real is None or real == fake:
        return None
    name = node.target.name()  # pyright: ignore[reportAttributeAccessIssue, reportFunctionMemberAccess]
    return f"the fake kernel of `{name}` gives {', '.join(fake)}, the operator itself {', '.join(real)}"


def _ran(node: fx.Node, fill: Fill) -> list[str] | None:
    """Return the specs of what an operator gives, run on the CPU; None where it raises."""
    try:
        with _disable_current_modes(), forbid_effects(), torch.no_grad():
            args, kwargs = tree_map_only(fx.Node, lambda n: real_like(value_of(n), fill), (node.args, node.kwargs))
            kwargs = tree_map_only(torch.device, lambda device: torch.device("cpu"), kwargs)
            return list(_specs(node.target(*args, **kwargs)))  # pyright: ignore[reportCallIssue]
    except (Exception, EffectBlocked):
        return None


def _specs(value: Any) -> Iterator[str]:
    for tensor in tree_iter(value):
        if isinstance(tensor, torch.Tensor):
            yield str(value_spec(tensor)).partition("@")[0]
