"""Compute the fingerprint of a mistake: its identity, which stays the same if the mistake moves to another line."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from fx_lsp.commands.check.survey import FileReport, reached_by
from fx_lsp.commands.places import line_text
from fx_lsp.features.wording.problems import Cause
from fx_lsp.model import Failure, Span

_CHANGING = re.compile(r"\bline \d+|\b0x[0-9a-f]+")
"""Parts of a message that change although the mistake does not: lines and addresses."""


@dataclass(frozen=True)
class FingerprintedMistake:
    """Hold a mistake in the words of a report: `file` is the path of the checked file that first reached it."""

    code: str
    file: str
    message: str
    fingerprint: str


class Fingerprints:
    """Hold the fingerprints of the mistakes in files that are added one after another.

    A fingerprint depends on the code, the path below `base`, the message and the text of the line. Mistakes that are
    equal in all of these differ by their number.
    """

    def __init__(self, base: Path) -> None:
        self.base = base
        self._by_cause: dict[Cause, FingerprintedMistake] = {}
        self._times = Counter[tuple[str, ...]]()

    @property
    def mistakes(self) -> Collection[FingerprintedMistake]:
        """Return all mistakes so far."""
        return self._by_cause.values()

    def add(self, report: FileReport) -> None:
        """Add the mistakes of a file."""
        path = path_below(report.file, self.base)

        def add(cause: Cause, code: str, span: Span, message: str) -> None:
            if cause not in self._by_cause:
                fingerprint = self._fingerprint(code, span, message)
                self._by_cause[cause] = FingerprintedMistake(code, path, message, fingerprint)

        if report.failure is not None:
            start = report.failure.span or Span(report.file, 1, 0, 1, 0)
            add(cause_of_file(report), report.failure.kind, start, report.failure.message)
        for target in report.targets:
            for one in reached_by(target):
                add(one.cause, one.code, one.span or one.target.name_span, one.message)
        for comment in report.comments:
            if comment.span is not None:
                add(cause_of_comment(comment), comment.kind, comment.span, comment.message)

    def __getitem__(self, cause: Cause) -> str:
        """Return the fingerprint of a mistake of an added file."""
        return self._by_cause[cause].fingerprint

    def _fingerprint(self, code: str, span: Span, message: str) -> str:
        text = line_text(span.file, span.line).strip()
        identity = (code, path_below(span.file, self.base), _CHANGING.sub("", message), text)
        self._times[identity] += 1
        data = "\0".join([*identity, str(self._times[identity])]).encode("utf-8", "surrogatepass")
        return hashlib.sha256(data).hexdigest()[:40]


def cause_of_file(report: FileReport) -> Cause:
    """Return the identity of a file's own failure within a check."""
    return report.file, "the file"


def cause_of_comment(comment: Failure) -> Cause:
    """Return the identity of a mistake in a comment within a check."""
    return comment.span, f"comment: {comment.message}"


def path_below(file: str, base: Path) -> str:
    """Return the path of a file, relative to `base` if it is below."""
    path = Path(file)
    return path.relative_to(base).as_posix() if path.is_relative_to(base) else path.as_posix()
