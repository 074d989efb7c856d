"""Collect notes on a run of the user's code: assumptions, and parts of the program that were left out."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

SOURCES = 3
"""The most sources of weights that a note names."""


@dataclass
class Notes:
    """Hold the notes of one run, each once and in order.

    `sentences` are complete. `weights` are the sources of weights that are not loaded, `numbers` the guesses for
    numbers of missing data, by name, and `sizes` those of its samples. `missed` are the errors whose placeholders the
    code used.
    """

    sentences: dict[str, None] = field(default_factory=dict[str, None])
    weights: dict[str, None] = field(default_factory=dict[str, None])
    numbers: dict[str, int] = field(default_factory=dict[str, int])
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    missed: list[BaseException] = field(default_factory=list[BaseException])

    def add(self, sentence: str) -> None:
        """Add a complete note."""
        self.sentences[sentence] = None

    def has_missed(self, cause: BaseException) -> bool:
        """Return True if the code used a placeholder for a value that is missing because of an error."""
        return any(error is cause for error in self.missed)

    def report(self) -> tuple[str, ...]:
        """Return all notes as sentences."""
        report: list[str] = []
        if self.weights:
            more = ", …" if len(self.weights) > SOURCES else ""
            report.append(f"weights are not loaded: {', '.join([*self.weights][:SOURCES])}{more}")
        if guesses := {**self.numbers, **self.sizes}:
            numbers = ", ".join(f"{name}={number}" for name, number in guesses.items())
            report.append(f"the data is missing; assumed: {numbers}")
        return (*report, *self.sentences)


_STACK = [Notes()]


def notes() -> Notes:
    """Return the notes of the current run."""
    return _STACK[-1]


@contextmanager
def collecting_notes() -> Generator[Notes, None, None]:
    """Collect the notes of one run inside."""
    _STACK.append(Notes())
    try:
        yield _STACK[-1]
    finally:
        _STACK.pop()
