"""Mark guesses: `~` precedes the specs of guessed inputs, and of values that depend on them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fx_lsp.features.wording.text import format_bytes, is_tensor_spec
from fx_lsp.model import InputSpec

MARK = "~"
LEGEND = f"`{MARK}`: a guessed size; nothing in the code fixes it"
"""The meaning of the mark, in a hover and in the tooltip of a hint."""
_SIZES = re.compile(r"\[([^\[\]]*)\]")
_NUMBER = re.compile(r"\d+")


class Guesses:
    """Hold the guesses of a trace, from its inputs."""

    def __init__(self, inputs: Iterable[InputSpec]) -> None:
        self._guessed = False
        self._known = {"0", "1"}
        for item in inputs:
            if not item.guessed:
                self._known |= _sizes(item.spec)
            elif _sizes(item.spec):
                self._guessed = True

    def __bool__(self) -> bool:
        """Return True if any size or number of the inputs is guessed."""
        return self._guessed

    def marked_bytes(self, size: int) -> str:
        """Return a number of bytes, marked if sizes of inputs are guessed."""
        return f"{MARK if self._guessed and size else ''}{format_bytes(size)}"

    def marked(self, spec: str, shown: str | None = None) -> str:
        """Return the spec of a value, or its `shown` form, marked if sizes are guessed and its own sizes are not all
        those of known inputs.
        """
        text = spec if shown is None else shown
        return f"{MARK}{text}" if self._guessed and not _sizes(spec) <= self._known else text


def marked(item: InputSpec, shown: str | None = None) -> str:
    """Return the spec of an input, or its `shown` form, marked if it is guessed."""
    text = item.spec if shown is None else shown
    return f"{MARK}{text}" if item.guessed else text


def _sizes(spec: str) -> set[str]:
    """Return the numbers among the sizes of a spec, or in the text of a non-tensor."""
    parts = _SIZES.findall(spec) if is_tensor_spec(spec) else [spec]
    return {number for part in parts for number in _NUMBER.findall(part)}
