"""Explain code of a target that did not run, in a hover and as faded text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fx_lsp.features.wording.problems import Problem
from fx_lsp.features.wording.text import one_line, span_text
from fx_lsp.features.wording.traces import place_text, shown_trace
from fx_lsp.model import Failure, Outcome, Span, Target, Unreached

CODE = "unreached"


def unreached_at(target: Target, outcome: Outcome, line: int, col: int) -> Unreached | None:
    """Return the innermost unexecuted code of a target at a position, or None."""
    trace, place = shown_trace(outcome), Span(target.file, line, col, line, col)
    around = [u for u in trace.unreached if u.span.contains(place)] if trace is not None else []
    return min(around, key=lambda u: u.span.end_line - u.span.line, default=None)


def why_unreached(unreached: Unreached, outcome: Outcome, text: str) -> str:
    """Return why code did not run: `branch not taken: targets is None`."""
    lines = text.split("\n")
    held = ", ".join(f"{operand.text} is {operand.value}" for operand in unreached.operands)
    decider = f"`{_text(unreached.decider, lines)}`" if unreached.decider is not None else ""
    if unreached.reason == "failed":
        place = place_text(unreached.span.file, outcome.span) if isinstance(outcome, Failure) else ""
        return f"not run: {place} fails" if place else "not run: the code fails before it"
    if unreached.reason == "empty":
        return f"not run: {decider} is empty" + (f", {held}" if held else "")
    why = held or (f"{decider} is {'true' if unreached.truth else 'false'}" if decider else "")
    if unreached.reason == "subject":
        why = held or f"{decider} has another value"
    if unreached.reason != "left" or unreached.exit is None:
        return f"branch not taken: {why}"
    word = _text(unreached.exit, lines).partition(" ")[0]
    leaves = _LEAVES.get(word, "leaves")
    return f"not run: line {unreached.exit.line} {leaves}" + (f" because {why}" if why else "")


_LEAVES = {"return": "returns", "break": "leaves the loop", "continue": "continues the loop"}


def faded(text: str, outcomes: Iterable[tuple[Target, Outcome | None]]) -> tuple[Problem, ...]:
    """Return the code of a file that did not run though its surroundings did, for editors that fade it.

    A nested definition is described by its own trace. Code after a failing line, or reached by a variant of the target,
    is not faded.
    """
    problems: list[Problem] = []
    inner: list[Span] = []
    for target, outcome in sorted(outcomes, key=lambda outcome: outcome[0].span.end_line - outcome[0].span.line):
        trace = shown_trace(outcome)
        if trace is None or outcome is None:
            continue
        for unreached in trace.unreached:
            span = unreached.span
            own = target.span.contains(span) and not any(other.contains(span) for other in inner)
            if own and unreached.reason != "failed" and not unreached.variants:
                problems.append(Problem(span, "hint", why_unreached(unreached, outcome, text), CODE, faded=True))
        inner.append(target.span)
    return tuple(sorted(problems, key=lambda problem: (problem.span.line, problem.span.col)))


def _text(span: Span, lines: Sequence[str]) -> str:
    """Return the source of a span in one line, shortened if it is long."""
    return one_line(span_text(lines, span), 60)
