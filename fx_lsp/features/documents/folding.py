"""Fold iterations of a loop, and layers of a model, that repeat each other in a graph.

Nodes are compared by their displayed text and by their source. Folded nodes can be reconstructed from the last
iteration: its arguments, with each integer moved by its step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from fx_lsp.features.documents.numbering import HOLE, Numbered, Remembered, number, skeleton, tokens
from fx_lsp.features.documents.repeats import Numbers, Repeat, Sequenced, repeats
from fx_lsp.features.wording.text import count
from fx_lsp.model import Node
from fx_lsp.periods import numbered

MIN_NODES = 24
MIN_ITEMS = 12
ENTRIES = 4
MORE = "..."


@dataclass(frozen=True)
class Fold:
    """Hold nodes `start` to `stop` (exclusive) that are not shown: `rounds` iterations of `period` nodes each.

    The iterations before and after them are alike, except for names and for the outer inputs of the first. `names` are
    those of the last hidden iteration. `steps` are, for each node, the differences of the integers in its text (name,
    then arguments) from one iteration to the next, to the last one. `passed_on` and `stepping` describe the same in
    words.
    """

    start: int
    period: int
    rounds: int
    names: tuple[str, ...]
    steps: tuple[Numbers, ...]
    passed_on: tuple[str, ...]
    stepping: tuple[str, ...]

    @property
    def stop(self) -> int:
        """Return the index of the first node after the fold, which begins the last iteration."""
        return self.start + self.period * self.rounds


def folds(nodes: Sequence[Node], marks: Sequence[str]) -> list[Fold]:
    """Return the folds of `nodes`, in order. `marks` are the other displayed texts at each node."""
    reading = _reading(nodes, marks)
    items = Sequenced(
        keys=numbered((look, *(t[0] for t in parts)) for look, parts in zip(reading.looks, reading.texts, strict=True)),
        numbers=[tuple([n for _, numbers in parts for n in numbers]) for parts in reading.texts],
        begins=reading.begins,
        ends=reading.ends,
        cut=lambda start, period: _fewest_live(nodes, reading.index, start, period),
    )
    return [_fold(nodes, items.numbers, reading.index, repeat) for repeat in repeats(items, MIN_NODES, 2)]


@dataclass(frozen=True)
class _Reading:
    """Hold nodes in the form that is compared: `looks` without names and numbers, and `texts` with them."""

    nodes: Sequence[Node]
    looks: Sequence[tuple[object, ...]]
    texts: Sequence[Sequence[Numbered]]
    index: dict[str, int]
    numbered: Remembered

    def begins(self, first: int, period: int) -> bool:
        """Return True if a node may be the first of a repeat: its iterations pass values to each other as later ones
        do.
        """
        rounds = [_arguments(self.nodes[i]) for i in range(first, first + 3 * period, period)]
        return (
            self.looks[first] == self.looks[first + period]
            and skeleton(rounds[0]) == skeleton(rounds[1])
            and all(
                one == second
                or _is_handed_on(self.index, second, third, period)
                or _is_series(self.numbered[one], self.numbered[second], self.numbered[third])
                for one, second, third in zip(*map(tokens, rounds), strict=True)
            )
        )

    def ends(self, last: int, period: int) -> bool:
        """Return True if a node may be the last of a repeat: its numbers continue those of the iterations before."""
        named = self.nodes[last].op != "placeholder"
        rounds = [self.texts[i][named:] for i in range(last, last - 3 * period, -period)]
        return (
            self.looks[last][1:] == self.looks[last - period][1:]
            and len(rounds[0]) == len(rounds[1]) == len(rounds[2])
            and all(_is_series(*series) for series in zip(*rounds, strict=True))
        )


def _reading(nodes: Sequence[Node], marks: Sequence[str]) -> _Reading:
    remembered = Remembered()
    texts = [[remembered[text] for text in (node.name, *node.args)] for node in nodes]
    chains = {id(node.spans): node.spans for node in nodes}
    number_of_chain = dict(zip(chains, numbered(chains.values()), strict=True))
    looks = [
        (mark, "" if n.op == "placeholder" else n.target, n.op, n.spec, number_of_chain[id(n.spans)], n.comment)
        for n, mark in zip(nodes, marks, strict=True)
    ]
    return _Reading(nodes, looks, texts, {node.name: i for i, node in enumerate(nodes)}, remembered)


def describe(fold: Fold, nodes: Sequence[Node]) -> list[str]:
    """Return sentences for the place of a fold: the folded nodes, the loop-carried values, the stepping numbers."""
    first = nodes[fold.start - fold.period]
    noun = "input" if first.op == "placeholder" else "op"
    again = f"{fold.rounds:,} more times"
    if fold.period == 1:
        lines = [f"… the same {noun} {again}, then once more:"]
    else:
        total = count(noun, fold.period * fold.rounds)
        lines = [f"… the {count(noun, fold.period)} from {first.name} on {again} ({total}), then once more:"]
    for label, entries in (("passed on", fold.passed_on), ("stepping", fold.stepping)):
        if entries:
            more = f" · and {len(entries) - ENTRIES} more" if len(entries) > ENTRIES else ""
            lines.append(f"  {label}: {' · '.join(entries[:ENTRIES])}{more}")
    return lines


def shorten(arguments: Sequence[str]) -> tuple[tuple[str, ...], int]:
    """Return arguments with `...` in place of repeated items of long lists, `h_1, h_2, ..., h_512`, and the number of
    omitted values.

    Two items before the `...` and the last one after it remain, so that the omitted values can be inferred.
    """
    arguments, omitted = _shorten_items(arguments)
    short: list[str] = []
    for argument in arguments:
        inner = argument[1:-1]
        if (
            len(argument) > 80
            and argument[0] in "(["
            and argument[-1] in ")]"
            and not any(c in inner for c in "()[]{}'\"")
        ):
            items, more = _shorten_items(inner.split(", "))
            omitted += more
            argument = f"{argument[0]}{', '.join(items)}{argument[-1]}"
        short.append(argument)
    return tuple(short), omitted


def _shorten_items(items: Sequence[str]) -> tuple[list[str], int]:
    texts = [number(item) for item in items]
    sequence = Sequenced(
        keys=numbered(t.pattern for t in texts),
        numbers=[t.numbers for t in texts],
        begins=lambda first, period: False,
        ends=lambda last, period: _is_series(*(texts[i] for i in range(last, last - 3 * period, -period))),
        cut=lambda start, period: start,
    )
    repeated = repeats(sequence, MIN_ITEMS, 3)
    short: list[str] = []
    done = omitted = 0
    for repeat in repeated:
        short += [*items[done : repeat.start + 2 * repeat.period], MORE]
        omitted += repeat.last - repeat.start - 2 * repeat.period
        done = repeat.last
    return [*short, *items[done:]], omitted


def _arguments(node: Node) -> str:
    return ", ".join(node.args)


def _is_handed_on(index: dict[str, int], name: str, following: str, period: int) -> bool:
    """Return True if the names that two consecutive iterations read come from consecutive iterations."""
    return name in index and index.get(following, -1) - index[name] == period


def _is_series(one: Numbered, other: Numbered, following: Numbered) -> bool:
    return (
        one.loose == other.loose == following.loose
        and all(b - a == c - b for a, b, c in zip(one.numbers, other.numbers, following.numbers, strict=True))
        and all(
            a != b or len(set(kinds)) == 1
            for a, b, *kinds in zip(one.numbers, other.numbers, one.holes, other.holes, following.holes, strict=True)
        )
    )


def _fewest_live(nodes: Sequence[Node], index: dict[str, int], start: int, period: int) -> int:
    """Return the first node, from `start` on, at which the fewest values pass to the next iteration.

    The user's variables count half, because loop-carried values are in variables. Among equal places, the source jumps
    farthest at the result, backwards preferred.
    """
    reach: dict[int, int] = {}
    for reader in range(start + 2 * period, min(start + 3 * period, len(nodes))):
        for name in nodes[reader].inputs:
            source = index.get(name, -1)
            if source >= start:
                offset = (source - start) % period
                reach[offset] = max(reach.get(offset, 0), reader - source)
    changes = [0] * (period + 1)
    for offset, length in reach.items():
        whole, rest = divmod(length, period)
        weight = 1 if _is_variable(nodes[start + period + offset]) else 2
        changes[0] += whole * weight
        begin, end = offset + 1, offset + 1 + rest
        for low, high in ((begin, min(end, period)), (max(begin - period, 0), end - period)):
            if low < high:
                changes[low] += weight
                changes[high] -= weight
    live = [*accumulate(changes)]
    lines = [node.span.line if node.span else 0 for node in nodes[start + period - 1 : start + 2 * period]]
    jumps = [2 * abs(after - before) + (after < before) for before, after in pairwise(lines)]
    return start + min(range(period), key=lambda o: (live[o], -jumps[o], o))


def _is_variable(node: Node) -> bool:
    """Return True if a node is named after a user's variable, not after its own operation."""
    return not any(part and node.name.startswith(part) for part in node.target.split("."))


def _fold(nodes: Sequence[Node], numbers: Sequence[Numbers], index: dict[str, int], repeat: Repeat) -> Fold:
    start, period = repeat.start + repeat.period, repeat.period
    body = range(repeat.last - period, repeat.last)
    names = tuple(nodes[i].name for i in body)
    steps = [tuple(b - a for a, b in zip(numbers[i - period], numbers[i], strict=True)) for i in body]
    passed_on: dict[str, None] = {}
    stepping: dict[str, None] = {}
    for first in range(start, start + period):
        rounds = [nodes[i] for i in (first, first + period, first + repeat.last - period - start)]
        is_input = rounds[0].op == "placeholder"
        seen = [[n.name] if is_input else tokens(_arguments(n)) for n in rounds]
        for one, second, last in zip(*seen, strict=True):
            if one == second:
                continue
            if is_input or not _is_handed_on(index, one, second, period):
                entry = _series(*(_to_first_change(text, one, second) for text in (one, second, last)))
                where = "" if one.isidentifier() else f" in {rounds[0].target.removeprefix('aten.')}"
                stepping[entry + where] = None
            elif index[one] < start:
                passed_on[_series(one, second, last)] = None
    return Fold(start, period, repeat.rounds - 2, names, tuple(steps), tuple(passed_on), tuple(stepping))


def _series(first: str, second: str, last: str) -> str:
    return f"{first}, {second}, … {last}" if second != last else f"{first}, {last}"


def _to_first_change(text: str, one: str, other: str) -> str:
    """Return `text` up to the first number in which `one` and `other` differ: `layers_3` of `layers_3_norm_weight`."""
    pieces, before, after = (number(t) for t in (text, one, other))
    place = next((i for i, (a, b) in enumerate(zip(before.numbers, after.numbers, strict=True)) if a != b), None)
    if place is None or place == len(pieces.numbers) - 1:
        return text
    literal = pieces.loose.split(HOLE)
    return "".join(f"{a}{b}" for a, b in zip(literal[: place + 1], pieces.numbers, strict=False))
