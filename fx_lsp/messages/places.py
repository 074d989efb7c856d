"""Name the places in messages: by the line of a file, or by the cell of a notebook."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from fx_lsp.model import Failure, NamedPlace, Outcome, Span

NamePlace = Callable[[Span], str]
"""Return a place in the file of a target as text: `line 12`."""
_LINE = re.compile(r"line (\d+)")
T = TypeVar("T", bound=Outcome)


def line_of(span: Span) -> str:
    """Return a place by its line, which is how every message is written first."""
    return f"line {span.line}"


def mention(span: Span) -> NamedPlace:
    """Return a place as the text of a message mentions it."""
    return NamedPlace(line_of(span), span)


def renamed(failure: Failure, mentions: Sequence[NamedPlace], name: NamePlace) -> Failure:
    """Return a failure whose message has other names for the places that it mentions, which are `mentions` now."""
    names = {former.text: name(now.span) for former, now in zip(failure.mentions, mentions, strict=True)}
    if not names:
        return failure
    places = re.compile("|".join(rf"{re.escape(text)}(?!\d)" for text in names))
    message = places.sub(lambda match: names[match[0]], failure.message)
    return replace(failure, message=message, mentions=tuple(NamedPlace(name(now.span), now.span) for now in mentions))


def with_places(outcome: T, file: str, name: NamePlace) -> T:
    """Return the outcome of a target of a file with other names for the places in the file: in the message of a
    failure, and in the details of inputs.
    """
    if isinstance(outcome, Failure):
        own = [one.span.file == file for one in outcome.mentions]
        outcome = renamed(outcome, outcome.mentions, name) if all(own) else outcome
        partial = outcome.partial and with_places(outcome.partial, file, name)
        outcome = replace(outcome, partial=partial)
    inputs = tuple(
        replace(item, detail=name(Span(file, int(line[1]), 0, int(line[1]), 0)))
        if (line := _LINE.fullmatch(item.detail))
        else item
        for item in outcome.inputs
    )
    return replace(outcome, inputs=inputs)
