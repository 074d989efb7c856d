"""Edit files of kernels that a user keeps: their lenses, the results of their checks, and changes to the open text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from fx_lsp.features.lenses import Lens
from fx_lsp.features.source.pin import TextChange
from fx_lsp.features.wording.problems import Problem
from fx_lsp.features.wording.text import count, one_line
from fx_lsp.model import Span

_TOP = Span("", 1, 0, 1, 0)
_SAYS = {
    "current": " · up to date",
    "changed": " · the function has changed since then: update",
    "gone": ", which no longer exists",
}


MAX_TITLE = 80
"""The most characters of an error in the title of a lens."""
_RESULT = "  off by "
"""The text between the name of a result and the numbers of its comparison."""


@dataclass(frozen=True)
class KernelCheck:
    """Hold the check of kernels of a function in the file `source`: their `text` has no errors of an earlier check at
    its top.

    `output` is None until the check has ended.
    """

    source: str
    text: str
    output: str | None = None
    wrong: bool = False


def save_lens(name: str, checked: str) -> Lens:
    """Return the lens over the kernels of the target `name` that saves them as a file; `checked` is from
    `check_title`.
    """
    return Lens(_TOP, f"save as a file{checked}", "write kernel", name)


def written_lens(title: str, name: str, standing: str, checked: str) -> Lens:
    """Return the lens over a file of kernels of the target `name`, displayed as `title`: whether it is up to date.

    `standing` is "current", "changed" or "gone"; another one has no text. `checked` is from `check_title`.
    """
    return Lens(_TOP, f"kernels of {title}{_SAYS.get(standing, '')}{checked}", "write kernel", name)


def conflicts_lens(title: str, name: str, conflicts: int) -> Lens:
    """Return the lens over a file of kernels with conflicts."""
    return Lens(_TOP, f"kernels of {title} · {count('conflict', conflicts)} to resolve", "write kernel", name)


def check_title(check: KernelCheck | None, text: str) -> str:
    """Return the end of a lens over kernels: the result of their check, if there is one. `text` is their present
    text.
    """
    if check is None:
        return ""
    if check.output is None:
        return " · checking…"
    errors, last = _errors(check), (check.output.splitlines() or [""])[-1]
    before = "" if check.text == text else ", before the last edit"
    if errors:
        more = f" and {len(errors) - 1} more" if len(errors) > 1 else ""
        return f" · wrong: {one_line(errors[0].partition(_RESULT)[0], MAX_TITLE)}{more}{before}"
    return f" · {one_line(last, MAX_TITLE) if last.startswith('not ') else 'compared with the original: right'}{before}"


def check_problems(check: KernelCheck | None, text: str, above: int = 0) -> tuple[Problem, ...]:
    """Return the errors that a check found, at their lines of the present text of the kernels, with `above` lines at
    its top.

    A kernel that is named has its errors at its definition; a wrong result is at the function.
    """
    if check is None or not check.wrong:
        return ()
    spans = {match[1]: _span(text, match) for match in re.finditer(r"^(?:def|class) (\w+)", text, re.MULTILINE)}
    described = re.search(r'^"""(\w+)', text, re.MULTILINE)
    function = spans.get(described[1] if described else "", _TOP)
    by_span: dict[Span, list[str]] = {}
    for error in _errors(check):
        named = () if _RESULT in error else (span for name, span in spans.items() if name in re.findall(r"\w+", error))
        line = re.match(r"line (\d+) ", error)
        span = Span("", int(line[1]), 0, int(line[1]), 0) if line else next(iter(named), function)
        by_span.setdefault(span, []).append(" ".join(error.split()))
    return tuple(
        Problem(_below(span, above), "error", "\n".join(["These kernels failed their check:", *errors]), "kernel")
        for span, errors in by_span.items()
    )


def _errors(check: KernelCheck) -> list[str]:
    """Return the errors of a check, or the last line of an exception that ended it."""
    if not check.wrong or check.output is None:
        return []
    lines = [line for line in check.output.splitlines() if line.strip()]
    return [line.removeprefix("wrong  ") for line in lines if line.startswith("wrong  ")] or lines[-1:] or ["it failed"]


def _below(span: Span, lines: int) -> Span:
    """Return a place in a text with that many more lines at its top."""
    return replace(span, line=span.line + lines, end_line=span.end_line + lines)


def _span(text: str, match: re.Match[str]) -> Span:
    """Return the place of a defined name."""
    line, start = text.count("\n", 0, match.start()) + 1, match.start(1) - match.start()
    return Span("", line, start, line, match.end() - match.start())


def edits(before: Sequence[str], after: Sequence[str]) -> tuple[TextChange, ...]:
    """Return the changes that turn one text into another; both are lines with their ends."""
    steps = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return tuple(
        TextChange(first + 1, 0, last + 1, 0, "".join(after[start:end]))
        for what, first, last, start, end in steps
        if what != "equal"
    )
