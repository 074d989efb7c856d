"""Writing folded nodes out again, from what is shown and what the fold says."""

import re
from dataclasses import replace

from fx_lsp.features.documents.folding import Fold, folds
from fx_lsp.features.documents.numbering import HOLE, number
from fx_lsp.model import Node


def unfolded(shown: dict[int, Node], found: list[Fold]) -> list[Node]:
    """All nodes, in order, of which `shown` (by index) are those that are not folded."""
    known = dict(shown)
    for fold in sorted(found, key=lambda f: f.period):  # the last round of an outer fold may hold inner ones
        for offset, (name, steps) in enumerate(zip(fold.names, fold.steps, strict=True)):
            last = known[fold.stop + offset]
            own = len(number(name).numbers)
            for back in range(1, fold.rounds + 1):
                args, rest = [], steps[own:]
                for arg in last.args:
                    size = len(number(arg).numbers)
                    args.append(moved(arg, rest[:size], -back))
                    rest = rest[size:]
                known[fold.stop + offset - back * fold.period] = replace(
                    last, name=moved(name, steps[:own], 1 - back), args=tuple(args)
                )
    return [known[i] for i in sorted(known)]


def moved(text: str, steps: tuple[int, ...], times: int) -> str:
    """`text` with each of its integers moved by so many steps; a name numbered 0 has no number, unless it had."""
    numbered = number(text)
    values = [n + times * step for n, step in zip(numbered.numbers, steps, strict=True)]
    pieces = re.split("([\0\1])", numbered.pattern)
    for place, value in zip(range(1, len(pieces), 2), values, strict=True):
        ends_name = pieces[place - 1].endswith("_") and not re.match(r"\w", pieces[place + 1])
        if pieces[place] == HOLE and value == 0 and ends_name:
            pieces[place - 1], pieces[place] = pieces[place - 1][:-1], ""
        else:
            pieces[place] = str(value)
    return "".join(pieces)


def check(nodes: list[Node], marks: list[str] | None = None) -> list[Fold]:
    """The folds of `nodes`, after checking that they give back every node."""
    found = folds(nodes, marks or [""] * len(nodes))
    hidden = {i for f in found for i in range(f.start, f.stop)}
    assert len(hidden) == sum(f.period * f.rounds for f in found), "folds overlap"
    shown = {i: n for i, n in enumerate(nodes) if i not in hidden}
    plain = [replace(n, inputs=(), users=()) for n in nodes]
    assert [replace(n, inputs=(), users=()) for n in unfolded(shown, found)] == plain
    return found
