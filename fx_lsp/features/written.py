"""Edit files of kernels that a user keeps: their lenses, and changes to the open text."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

from fx_lsp.features.lenses import Lens
from fx_lsp.features.pin import TextChange
from fx_lsp.features.text import count
from fx_lsp.model import Span

_TOP = Span("", 1, 0, 1, 0)
_SAYS = {
    "current": " · up to date",
    "changed": " · the function has changed since then: update",
    "gone": ", which no longer exists",
}


def save_lens(name: str) -> Lens:
    """Return the lens over the kernels of the target `name` that saves them as a file."""
    return Lens(_TOP, "save as a file", "write kernel", name)


def written_lens(title: str, name: str, standing: str, conflicts: int) -> Lens:
    """Return the lens over a file of kernels of the target `name`, displayed as `title`: whether it is up to date.

    `standing` is "current", "changed" or "gone"; another one has no text. `conflicts` counts the remaining ones.
    """
    says = f" · {count('conflict', conflicts)} to resolve" if conflicts else _SAYS.get(standing, "")
    return Lens(_TOP, f"kernels of {title}{says}", "write kernel", name)


def edits(before: Sequence[str], after: Sequence[str]) -> tuple[TextChange, ...]:
    """Return the changes that turn one text into another; both are lines with their ends."""
    steps = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return tuple(
        TextChange(first + 1, 0, last + 1, 0, "".join(after[start:end]))
        for what, first, last, start, end in steps
        if what != "equal"
    )
