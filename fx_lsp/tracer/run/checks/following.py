"""Run the checks of one run, and collect their findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from fx_lsp.model import FindingCode, Remark, Span
from fx_lsp.tracer.run.checks.copies import copies
from fx_lsp.tracer.run.checks.formulas import operators_without_formula
from fx_lsp.tracer.run.checks.pairs import Columns
from fx_lsp.tracer.run.checks.precision import Precision
from fx_lsp.tracer.run.checks.reductions import SingleElements
from fx_lsp.tracer.run.checks.waits import waits
from fx_lsp.tracer.run.torch_calls import TorchCall

Check = Callable[[TorchCall], Iterator[Remark]]
"""Called with every torch call of a run in order; yields remarks on it."""
_Key = tuple[FindingCode | None, Span | None]
MAX_FINDINGS = 200
"""The most findings of one run."""


def _checks(columns: Columns) -> tuple[Check, ...]:
    return columns, Precision(), SingleElements(), waits, copies, operators_without_formula


@dataclass
class Findings:
    """Collect the findings of checks on the expressions of one file, one of each kind per expression.

    Each is stored with whether it only holds for the operand shapes of this run.
    """

    file: str
    columns: Columns = field(default_factory=Columns)
    _told: dict[_Key, tuple[Remark, bool]] = field(default_factory=dict["_Key", "tuple[Remark, bool]"])

    def __post_init__(self) -> None:
        self._checks = _checks(self.columns)

    def follow(self, call: TorchCall) -> None:
        """Pass a call to each check."""
        if call.chain:
            for check in self._checks:
                for remark in check(call):
                    self.tell(remark)

    def tell(self, remark: Remark, of_shapes: bool = False) -> None:
        """Store a finding, unless it is about another file or a duplicate."""
        is_here = remark.span is not None and remark.span.file == self.file
        if is_here and len(self._told) < MAX_FINDINGS:
            self._told.setdefault((remark.code, remark.span), (remark, of_shapes))

    def all(self, of_shapes: bool) -> tuple[Remark, ...]:
        """Return the findings that only hold for the shapes of the run, or the others. PyTorch's own warning is left
        out if a check explains the same expression.
        """
        own = {span for code, span in self._told if code != "pytorch-warning"}
        findings = (remark for remark, only_so in self._told.values() if only_so is of_shapes)
        return tuple(r for r in findings if r.code != "pytorch-warning" or r.span not in own)
