"""The checks of one run, and what they have told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from fx_lsp.model import FindingCode, Remark, Span
from fx_lsp.tracer.run.checks.copies import copies
from fx_lsp.tracer.run.checks.pairs import Columns
from fx_lsp.tracer.run.checks.precision import Precision
from fx_lsp.tracer.run.checks.reductions import SingleElements
from fx_lsp.tracer.run.checks.waits import waits
from fx_lsp.tracer.run.torch_calls import TorchCall

Check = Callable[[TorchCall], Iterator[Remark]]
"""Is called with every torch call of a run in turn, and tells what is wrong with it."""
_Key = tuple[FindingCode | None, Span | None]
MAX_FINDINGS = 200
"""How many findings of one run are kept."""


def _checks(columns: Columns) -> tuple[Check, ...]:
    return columns, Precision(), SingleElements(), waits, copies


@dataclass
class Findings:
    """Collects what checks tell of the expressions of one file, one finding of a kind for each.

    Each stands with whether it holds only for operands of the shapes that this run has.
    """

    file: str
    columns: Columns = field(default_factory=Columns)
    _told: dict[_Key, tuple[Remark, bool]] = field(default_factory=dict["_Key", "tuple[Remark, bool]"])

    def __post_init__(self) -> None:
        self._checks = _checks(self.columns)

    def follow(self, call: TorchCall) -> None:
        """Have each check see a call."""
        if call.chain:
            for check in self._checks:
                for remark in check(call):
                    self.tell(remark)

    def tell(self, remark: Remark, of_shapes: bool = False) -> None:
        """Keep a finding, unless it is about another file or was told already."""
        is_here = remark.span is not None and remark.span.file == self.file
        if is_here and len(self._told) < MAX_FINDINGS:
            self._told.setdefault((remark.code, remark.span), (remark, of_shapes))

    def all(self, of_shapes: bool) -> tuple[Remark, ...]:
        """Return the findings that hold only for such shapes, or the others; of what a check says in more words,
        PyTorch's own warning is left out."""
        own = {span for code, span in self._told if code != "pytorch-warning"}
        findings = (remark for remark, only_so in self._told.values() if only_so is of_shapes)
        return tuple(r for r in findings if r.code != "pytorch-warning" or r.span not in own)
