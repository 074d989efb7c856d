"""Compare fake tensors with real ones: run a graph once on the CPU, node by node, or only its custom operators."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_iter, tree_map_only

from fx_lsp.messages.analyses import FAKE_KERNEL_DIFFERS
from fx_lsp.model import Remark, Span
from fx_lsp.tracer.capture.graphs import Names, target_name, value_spec
from fx_lsp.tracer.capture.node_values import value_of
from fx_lsp.tracer.failures.exceptions import sentence
from fx_lsp.tracer.failures.fake_kernels import is_custom
from fx_lsp.tracer.program.effects import EffectBlocked, forbid_effects
from fx_lsp.tracer.program.time_limit import TimeUp, time_limit
from fx_lsp.tracer.run.tensors import short_name
from fx_lsp.tracer.run.values.symbols import size_hint
from fx_lsp.tracer.stages.ledger import page
from fx_lsp.tracer.stages.real_tensors import FILLS, MAX_BYTES, RANDOM, Fill, bytes_of, real_like

MAX_OPERAND_BYTES = 1 << 26
"""The most bytes of the operands of a custom operator that is run."""
SECONDS = 2.0
"""The time limit for the custom operators of one target, in seconds."""


def cross_reference(module: fx.GraphModule, names: Names) -> str:
    """Return a page that lists the differences between a graph's fake values and those of a run.

    The inputs are random: small integers, so that they are valid indices, and floats around zero.
    """
    needed = peak_bytes(module.graph)
    if needed > MAX_BYTES:
        text = f"Not run: its values need {needed / (1 << 30):.1f} GiB at once, more than the limit of 1 GiB."
        return page([text])
    run = _Run(module, names)
    for fill in FILLS:
        run = _Run(module, names)
        try:
            with _disable_current_modes(), forbid_effects(), torch.no_grad():
                torch.manual_seed(0)
                run.run(*(real_like(value_of(n), fill) for n in module.graph.nodes if n.op == "placeholder"))
        except (Exception, EffectBlocked) as error:
            run.error = error
        if run.error is None:
            break
    return page(_page(run))


def _page(run: _Run) -> list[str]:
    if run.rows:
        widths = [max(map(len, column)) for column in zip(_HEAD, *run.rows, strict=True)]
        table = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in (_HEAD, *run.rows)]
        lines = [f"{len(run.rows):,} of {run.values:,} values differ:", "", *table]
    else:
        lines = [f"Fake and real agree on all {run.nodes:,} nodes: shape, dtype and strides of {run.values:,} values."]
    if run.error is None or run.at is None:
        return lines
    called = f"{run.names[run.at]} = {target_name(run.at.target)}"
    if not run.rows:
        lines = [f"Before it, fake and real agree ({run.nodes:,} compared): shape, dtype and strides."]
    return [
        f"{called} runs on fake tensors, but raises on random real tensors:",
        f"  {sentence(run.error)}",
        "",
        *lines,
    ]


_HEAD = ("node", "operation", "fake", "real")


class _Run(fx.Interpreter):
    """Compare values during a run. `nodes` and `values` count the compared ones, `at` is the current node."""

    def __init__(self, module: fx.GraphModule, names: Names) -> None:
        super().__init__(module, garbage_collect_values=True)
        self.names = names
        self.rows: list[tuple[str, str, str, str]] = []
        self.nodes = self.values = 0
        self.at: fx.Node | None = None
        self.error: BaseException | None = None

    def run_node(self, n: fx.Node) -> Any:
        self.at = n
        result = super().run_node(n)
        if n.op.startswith("call_"):
            self._compare(n, value_of(n), result, self.names[n])
            self.nodes += 1
        return result

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = self.fetch_attr(target)
        if isinstance(value, FakeTensor):
            constant = getattr(value, "constant", None)
            return constant if constant is not None else real_like(value, RANDOM)
        return value

    def _compare(self, node: fx.Node, fake: Any, real: Any, name: str) -> None:
        if isinstance(fake, (list, tuple)) and isinstance(real, (list, tuple)):
            for i, (one, other) in enumerate(zip(fake, real, strict=False)):
                self._compare(node, one, other, f"{name}[{i}]")
            return
        if not isinstance(fake, torch.Tensor) and not isinstance(real, torch.Tensor):
            return
        self.values += 1
        one, other = _described(fake), _described(real)
        if one != other:
            self.rows.append((name, target_name(node.target), one, other))


def _described(value: Any) -> str:
    """Return the spec of a tensor with its strides, except those of dimensions of size 1, which do not matter."""
    if not isinstance(value, torch.Tensor):
        return "nothing" if value is None else type(value).__name__
    sizes = [size_hint(s) for s in value.shape]
    shown = f"{short_name(value.dtype)}[{', '.join(map(str, sizes))}]"
    if value.layout is not torch.strided:
        return f"{shown} {value.layout}"
    if 0 in sizes:
        return shown
    strides = ["_" if n == 1 else str(size_hint(s)) for n, s in zip(sizes, value.stride(), strict=True)]
    return f"{shown}({', '.join(strides)})"


def peak_bytes(graph: fx.Graph) -> int:
    """Return the peak bytes of the values during a run of the graph; views count as copies."""
    last: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        for used in (node, *node.all_input_nodes):
            last[used] = node
    freed: dict[fx.Node, list[fx.Node]] = {}
    for node, reader in last.items():
        freed.setdefault(reader, []).append(node)
    held = peak = 0
    for node in graph.nodes:
        held += bytes_of(value_of(node))
        peak = max(peak, held)
        held -= sum(bytes_of(value_of(n)) for n in freed.get(node, ()))
    return peak


def disagreements(graph: fx.Graph, names: Names) -> list[Remark]:
    """Return a remark on each custom operator of a graph whose fake kernel returns other tensors than the operator."""
    remarks: dict[str, Remark] = {}
    with suppress(TimeUp), time_limit(SECONDS):
        for node in graph.nodes:
            if not _runs_here(node.target) or node.target.name() in remarks:
                continue
            if (remark := _disagreement(node, next(iter(names.chain(node)), None))) is not None:
                remarks[node.target.name()] = remark
    return list(remarks.values())


def _runs_here(target: Any) -> bool:
    """Return True for a custom operator that has a CPU kernel, and writes to no operand."""
    if not isinstance(target, OpOverload) or not is_custom(target) or target._schema.is_mutable:
        return False
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return any(has_kernel(target.name(), key) for key in ("CPU", "CompositeExplicitAutograd"))


def _disagreement(node: fx.Node, span: Span | None) -> Remark | None:
    operands = [value_of(operand) for operand in node.all_input_nodes]
    if sum(map(bytes_of, operands)) > MAX_OPERAND_BYTES:
        return None
    fake = list(_specs(value_of(node)))
    real = next((specs for fill in FILLS if (specs := _real_specs(node, fill)) is not None), None)
    if real is None or real == fake:
        return None
    name = node.target.name()  # pyright: ignore[reportAttributeAccessIssue, reportFunctionMemberAccess]
    alike = [spec.partition("[")[2] for spec in fake] == [spec.partition("[")[2] for spec in real]
    rests_on = "dtypes" if alike else ""
    return FAKE_KERNEL_DIFFERS.remark(
        span, rests_on=rests_on, operator=name, fake=", ".join(fake), real=", ".join(real)
    )


def _real_specs(node: fx.Node, fill: Fill) -> list[str] | None:
    """Return the specs of an operator's results on the CPU; None if it raises."""
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
