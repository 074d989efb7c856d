"""Fill the texts of failures and remarks with the values of their fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fx_lsp.model import Failure, FailureKind, FindingCode, ProblemSeverity, Related, Remark, Severity, Span


@dataclass(frozen=True)
class FailureTemplate:
    """Describe one reason why a target cannot be traced. `text` and `hint` have their fields in braces: `{name}`.

    `severity` applies unless the place that reports the failure has evidence for another.
    """

    kind: FailureKind
    text: str
    hint: str = ""
    severity: Severity = "information"

    def message(self, **fields: object) -> str:
        """Return the text with the values of its fields."""
        return self.text.format(**fields)

    def failure(
        self, span: Span | None = None, *, severity: Severity | None = None, hint: str | None = None, **fields: object
    ) -> Failure:
        """Return the failure at a place; `hint` replaces the template's, for a fix that depends on the code."""
        fix = self.hint.format(**fields) if hint is None else hint
        return Failure(self.kind, self.message(**fields), span, fix, severity or self.severity)


@dataclass(frozen=True)
class RemarkTemplate:
    """Describe one remark on code. `code` is None for requirements and assumptions of a trace; `text` has its fields in
    braces.

    `severity` and `rests_on` apply unless the place that reports the remark has evidence for others.
    """

    code: FindingCode | None
    text: str
    severity: ProblemSeverity = "information"
    rests_on: Literal["", "dtypes", "inputs"] = ""

    def message(self, **fields: object) -> str:
        """Return the text with the values of its fields."""
        return self.text.format(**fields)

    def remark(
        self,
        span: Span | None,
        *,
        severity: ProblemSeverity | None = None,
        related: tuple[Related, ...] = (),
        page: str = "",
        rests_on: Literal["", "dtypes", "inputs"] | None = None,
        **fields: object,
    ) -> Remark:
        """Return the remark at a place."""
        depends_on = self.rests_on if rests_on is None else rests_on
        message = self.message(**fields)
        return Remark(message, span, severity or self.severity, related, self.code, page, depends_on)
