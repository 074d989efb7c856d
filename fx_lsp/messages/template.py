"""Fill the texts of failures and remarks with the values of their fields."""

from __future__ import annotations

from dataclasses import dataclass

from fx_lsp.model import Failure, FailureKind, Severity, Span


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
