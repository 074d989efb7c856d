"""Read, apply and write a baseline: the mistakes of a project that a check accepts."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from fx_lsp import files
from fx_lsp.commands.check.results import (
    FingerprintedMistake,
    Fingerprints,
    cause_of_comment,
    cause_of_file,
    path_below,
)
from fx_lsp.commands.check.survey import FileReport, TargetReport
from fx_lsp.errors import UsageError
from fx_lsp.features.wording.problems import reached_failure, reached_remark
from fx_lsp.model import Failure

_FORMAT, _VERSION = "fx-lsp baseline", 1
_FIELDS = ("file", "code", "message", "fingerprint")
_AGAIN = "remove it, and write it again with --write-baseline"


@dataclass
class Baseline:
    """Hold the mistakes that a check accepts, by their fingerprints, and which of them it has met.

    Paths are relative to the folder of `file`.
    """

    file: Path
    mistakes: Mapping[str, FingerprintedMistake] = field(default_factory=dict[str, FingerprintedMistake])
    met: set[str] = field(default_factory=set[str])

    def without_accepted(self, report: FileReport, fingerprints: Fingerprints) -> FileReport:
        """Return a report in which the mistakes of the baseline are accepted, and note these."""

        def is_accepted(cause: tuple[object, str]) -> bool:
            fingerprint = fingerprints[cause]
            if fingerprint not in self.mistakes:
                return False
            self.met.add(fingerprint)
            return True

        def of_target(target: TargetReport) -> TargetReport:
            outcome = target.outcome
            if isinstance(outcome, Failure):
                reached = reached_failure(target.target, outcome, outcome.severity)
                return replace(target, accepted=is_accepted(reached.cause))
            remarks = (r for r in outcome.remarks if not is_accepted(reached_remark(target.target, r).cause))
            return replace(target, outcome=replace(outcome, remarks=tuple(remarks)))

        comments = (c for c in report.comments if c.span is None or not is_accepted(cause_of_comment(c)))
        return replace(
            report,
            targets=tuple(of_target(target) for target in report.targets),
            comments=tuple(comments),
            accepted=report.failure is not None and is_accepted(cause_of_file(report)),
        )

    def fixed(self, checked: Iterable[str], codes: Collection[str]) -> int:
        """Return the number of its mistakes that no longer occur in the `checked` files, or whose file is gone.

        The files were checked as a whole, and these `codes` were reported.
        """
        base = self.file.parent
        whole = {path_below(file, base) for file in checked}
        others = (m for m in self.mistakes.values() if m.fingerprint not in self.met and m.code in codes)
        return sum(mistake.file in whole or not (base / mistake.file).exists() for mistake in others)


def read_baseline(path: str) -> Baseline:
    """Return the baseline in a file. Raises UsageError if there is none."""
    file = Path(path).resolve()
    try:
        entries = [*_entries(json.loads(files.read_text(file)), path)]
    except OSError as error:
        raise UsageError(f"cannot read the baseline {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not a baseline: it is not JSON ({error})") from error
    return Baseline(file, {mistake.fingerprint: mistake for mistake in entries})


def new_baseline(path: str) -> Baseline:
    """Return an empty baseline to write to a file, which is free or has a baseline. Raises UsageError otherwise."""
    file = Path(path).resolve()
    if file.exists():
        read_baseline(path)
    elif not file.parent.is_dir():
        raise UsageError(f"cannot write the baseline {path}: there is no directory {file.parent}")
    return Baseline(file)


def write_baseline(baseline: Baseline, fingerprints: Fingerprints) -> int:
    """Write the mistakes of a check to the baseline's file, and return their number. Raises UsageError."""
    entries = sorted(map(asdict, fingerprints.mistakes), key=lambda entry: [entry[name] for name in _FIELDS])
    document = {"format": _FORMAT, "version": _VERSION, "mistakes": entries}
    try:
        files.write(baseline.file, f"{json.dumps(document, indent=1)}\n")
    except OSError as error:
        raise UsageError(f"cannot write the baseline {baseline.file}: {error.strerror}") from error
    return len(entries)


def _entries(document: Any, path: str) -> Iterator[FingerprintedMistake]:
    """Yield the mistakes in the document of a baseline. Raises UsageError for another document."""
    fields = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
    if fields.get("format") != _FORMAT:
        raise UsageError(f"{path} is not a baseline: `fx-lsp check --write-baseline` did not write it")
    if fields.get("version") != _VERSION:
        raise UsageError(f"{path} is a baseline of another version of fx-lsp: {_AGAIN}")
    mistakes = fields.get("mistakes")
    for entry in cast("list[Any]", mistakes) if isinstance(mistakes, list) else [None]:
        values = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        texts = {name: values[name] for name in _FIELDS if isinstance(values.get(name), str)}
        if len(texts) != len(_FIELDS):
            raise UsageError(f"{path} is a damaged baseline: {_AGAIN}")
        yield FingerprintedMistake(**texts)
