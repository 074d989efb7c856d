"""Find the strings and numbers that code accepts in place of another: operands of a check, keys of a table, the words
of an error.
"""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

from fx_lsp.tracer.failures.frames import expression_at, value_in
from fx_lsp.tracer.inputs.plan.plans import Plan, Plans, ValuePlan, value
from fx_lsp.tracer.inputs.solve.attempt import Attempt, by_relevance
from fx_lsp.tracer.inputs.solve.conditions import guards, raising

_PLAIN = re.compile(r"-?\d+|[(\[]\d+(?:, \d+)*,?[)\]]|'.*'")
"""Numbers, tuples and lists of numbers, and strings, as displayed."""
_LENGTHS = (3, 2, 1)
"""The lengths of a tuple or list of numbers that are tried: sizes and strides of volumes, images and sequences."""
_MOST = 8
"""The most options of one parameter that are tried."""
_QUOTED = re.compile(r"""(?<!\w)(['"`])([\w.+-]{1,40})\1""")
_LIST = re.compile(
    r"\b(?:one of|either|supported|valid|available|allowed|choose from|expected|must be|should be|modes|options)\b"
    r"[^:.\n]*?(?::|\bare\b|\bis\b|\bbe\b|\bof\b)\s*(.*)",
    re.IGNORECASE,
)


def accepted(attempt: Attempt) -> Iterator[Plans]:
    """Yield plans with an accepted value in place of a guessed string, number, or tuple or list of numbers."""
    values = guessed(attempt.plans.items)
    for name, other in of_other_lengths(attempt, values):
        yield attempt.plans.with_plan(name, value(other, "search", "from an error"))
    for name in by_relevance(attempt, values):
        for other in (*_compared(attempt, values[name]), *worded(attempt.run.error, name, values[name])):
            yield attempt.plans.with_plan(name, value(other, "search", "from an error"))


def guessed(plans: Iterable[tuple[str, Plan]]) -> dict[str, Any]:
    """Return the guessed numbers, tuples and lists of them, and strings, by parameter."""
    nobodys = {n: p for n, p in plans if isinstance(p, ValuePlan) and p.source in ("search", "annotation")}
    return {n: p.make() for n, p in nobodys.items() if _PLAIN.fullmatch(p.shown)}


def of_other_lengths(attempt: Attempt, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield tuples and lists of other lengths, by parameter, if the failing call received one as long as the guess."""
    call = attempt.run.failed
    received = (*call.args, *call.kwargs.values()) if call is not None else ()
    lengths = {len(argument) for argument in received if isinstance(argument, (tuple, list))}
    for name, have in values.items():
        if isinstance(have, (tuple, list)) and len(have) in lengths:
            yield from ((name, (3 * have)[:length]) for length in _LENGTHS if length != len(have))


def worded(error: BaseException | None, name: str, have: Any) -> Iterator[Any]:
    """Yield the values that an error suggests in place of a named value: by its words, or by the line that
    raised it.
    """
    text = str(error)
    if type(have) is int:
        wanted = re.search(r"\b(odd|even)\b", text)
        if wanted and have % 2 != (wanted[1] == "odd"):
            yield have + 1
        if isinstance(error, TypeError) and name in _words_raising(error):
            yield (have, have)
    if isinstance(have, tuple) and isinstance(error, IndexError):
        yield have + have[-1:]
    if isinstance(have, str) and not isinstance(error, (AttributeError, NameError)):  # they quote names of code
        quoted = [match[1] for match in _QUOTED.findall(text)]
        options = dict.fromkeys([*quoted, *_listed(text)])
        yield from [option for option in options if option not in (have, "")][:_MOST]


def _words_raising(error: BaseException) -> set[str]:
    """Return the words of the line that raised an error."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None:
        return set()
    return set(re.findall(r"\w+", linecache.getline(traceback.tb_frame.f_code.co_filename, traceback.tb_lineno)))


def _listed(text: str) -> list[str]:
    """Return the words of `expected one of constant, reflect or circular`."""
    match = _LIST.search(text)
    end = re.split(r"[.;(\n]|\b[Gg]ot\b", match[1])[0] if match else ""
    words = [word.strip() for word in re.split(r"\s*(?:,|\||/|\bor\b|\band\b)\s*", end)]
    return words if len(words) > 1 and all(re.fullmatch(r"[A-Za-z][\w-]*|", w) for w in words) else []


def _compared(attempt: Attempt, have: Any) -> Iterator[Any]:
    """Yield the strings that the failing check compares a string with, or the keys of the table that lacks it."""
    place = raising(attempt)
    if place is None or not isinstance(have, str):
        return
    sides = list(_sides_of_checks(attempt, have))
    if isinstance(attempt.run.error, KeyError):
        node = expression_at(place[0], attempt.sources)
        tables = [n.value for n in ast.walk(node) if isinstance(n, ast.Subscript)] if node is not None else []
        sides += [value_in(table, place[0].tb_frame) for table in tables]
    options: list[Any] = []
    for side in sides:
        options += list(side) if isinstance(side, (tuple, list, Set, Mapping)) else [side]
    yield from [o for o in dict.fromkeys(o for o in options if isinstance(o, str)) if o != have][:_MOST]


def _sides_of_checks(attempt: Attempt, have: str) -> Iterator[Any]:
    """Yield the values that the conditions before the error compare a string with."""
    for guard in guards(attempt):
        for node in (node for node in ast.walk(guard.test) if isinstance(node, ast.Compare)):
            left = value_in(node.left, guard.frame)
            if isinstance(left, str) and left.lower() == have.lower():
                yield from (value_in(side, guard.frame) for side in node.comparators)
