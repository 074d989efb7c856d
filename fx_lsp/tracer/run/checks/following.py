"""Run the checks of one run, and collect their findings."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import torch

from fx_lsp.model import FindingCode, Remark, Span
from fx_lsp.tracer.run.checks.formulas import operators_without_formula
from fx_lsp.tracer.run.checks.losses import Losses
from fx_lsp.tracer.run.checks.new_layers import NewLayers
from fx_lsp.tracer.run.checks.pairs import Columns
from fx_lsp.tracer.run.checks.precision import Precision, copies
from fx_lsp.tracer.run.checks.reductions import SingleElements
from fx_lsp.tracer.run.checks.training import Training
from fx_lsp.tracer.run.checks.waits import waits
from fx_lsp.tracer.run.torch_calls import TorchCall
from fx_lsp.tracer.source.provenance import Sources

Check = Callable[[TorchCall], Iterator[Remark]]
"""Called with every torch call of a run in order; yields remarks on it."""
_Key = tuple[FindingCode | None, Span | None]
MAX_FINDINGS = 200
"""The most findings of one run."""


@dataclass
class Findings:
    """Collect the findings of checks on the expressions of the target's file, one of each kind per expression.

    Each is stored with whether it only holds for the operand shapes of this run.
    """

    sources: Sources
    stop: CodeType
    columns: Columns = field(default_factory=Columns)
    _told: dict[_Key, tuple[Remark, bool]] = field(default_factory=dict["_Key", "tuple[Remark, bool]"])

    def __post_init__(self) -> None:
        self._training, self._new_layers = Training(self.sources, self.stop), NewLayers(self.sources)
        followed = self.columns, self._training, self._new_layers
        self._checks: tuple[Check, ...] = (
            *followed,
            Precision(),
            SingleElements(),
            Losses(),
            waits,
            copies,
            operators_without_formula,
        )

    @contextmanager
    def watching(self) -> Generator[None, None, None]:
        """Inside, what a program makes and trains is noted."""
        with self._training.watching(), self._new_layers.watching():
            yield

    def end(self, result: Any) -> None:
        """Store the findings that only the end of a run, which returned `result`, decides."""
        with torch._C.DisableTorchFunction():
            for remark in (*self._training.remarks(), *self._new_layers.remarks(result)):
                self.tell(remark)

    def follow(self, call: TorchCall) -> None:
        """Pass a call to each check."""
        if call.chain:
            for check in self._checks:
                for remark in check(call):
                    self.tell(remark)

    def tell(self, remark: Remark, of_shapes: bool = False) -> None:
        """Store a finding, unless it is about another file or a duplicate."""
        is_here = remark.span is not None and remark.span.file == self.sources.file
        if is_here and len(self._told) < MAX_FINDINGS:
            self._told.setdefault((remark.code, remark.span), (remark, of_shapes))

    def all(self, of_shapes: bool) -> tuple[Remark, ...]:
        """Return the findings that only hold for the shapes of the run, or the others. PyTorch's own warning is left
        out if a check explains the same expression.
        """
        own = {span for code, span in self._told if code != "pytorch-warning"}
        findings = (remark for remark, only_so in self._told.values() if only_so is of_shapes)
        return tuple(r for r in findings if r.code != "pytorch-warning" or r.span not in own)
