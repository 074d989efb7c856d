"""What an exception says about the inputs: other plans to try, the most plausible first."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterator
from itertools import chain as concat
from itertools import pairwise

from fx_lsp.tracer.drive import Unfinished
from fx_lsp.tracer.inputs.attempt import Attempt, involved, mentioned_names, mentioned_tensors
from fx_lsp.tracer.inputs.configs import with_value
from fx_lsp.tracer.inputs.demands import described, guarded, single_batch, single_number, typed
from fx_lsp.tracer.inputs.plan import (
    Plan,
    Plans,
    SequencePlan,
    TensorPlan,
    ValuePlan,
    fresh_sizes,
    reranked,
    value,
    with_size,
)
from fx_lsp.tracer.observe import tensors_among
from fx_lsp.tracer.symbols import size_hint

_NUMBER = r"-?\d+"
_LIST = re.compile(r"[\[(]\s*(-?\d+(?:\s*[,x×]\s*-?\d+)*),?\s*[\])]")
_RANK = re.compile(r"(\d)-?[Dd]\b|expected (\d)[,)]|(?:must have|expected) (\d) dim|(\d)-dimensional|rank (\d)")
_RANK_ERROR = re.compile(
    r"values to unpack|Dimension out of range|too many indices|\dD |\dD\b|\d-d |\d dims?\b|number of dim|ndim|"
    r"dimensional|permute|at least \d|dim\(\)|Dimension specified as|must be a matrix|must match|batch1 must|\dD",
)


_RANK_ALONE = re.compile(
    r"[Nn]umber of dim|[Ee]xpected \d-?D|\d dims?\b|\d-dimensional|values to unpack|Dimension out of range|many indices"
)
"""Errors that no other sizes mend."""


def repairs(attempt: Attempt) -> Iterator[Plans]:
    """Plans worth trying after an attempt that raised."""
    error = attempt.run.error
    assert error is not None
    if isinstance(error, Unfinished):
        return
    seen = {attempt.plans}
    rules = RULES if not _RANK_ALONE.search(str(error)) else [rule for rule in RULES if rule not in _ABOUT_SIZES]
    for plans in concat(*(rule(attempt, str(error)) for rule in rules)):
        if plans not in seen:
            seen.add(plans)
            yield plans


def _missing_value(attempt: Attempt, text: str) -> Iterator[Plans]:
    """`None` where something is needed: the next proposal for a parameter that is None."""
    if "NoneType" not in text and not isinstance(
        attempt.run.error, (TypeError, AttributeError, AssertionError, ValueError)
    ):
        return
    names = [n for n, p in attempt.plans.items if isinstance(p, ValuePlan) and p.shown == "None"]
    if "NoneType" not in text:
        mentioned = mentioned_names(attempt)
        names = [n for n in names if n in mentioned or n in text]
    for name in _by_relevance(attempt, names):
        for plan in attempt.alternatives.get(name, []):
            if not (isinstance(plan, ValuePlan) and plan.shown == "None"):
                yield attempt.plans.with_plan(name, _refreshed(plan, attempt.plans))


def _dtype(attempt: Attempt, text: str) -> Iterator[Plans]:
    wanted: list[str] = []
    if re.search(
        r"must be long|Long, Int|must be.*(int64|integer)|scalar type (Long|Int)|indices.*(long|int)|int64", text, re.I
    ):
        wanted.append("i64")
    if re.search(r"Promotion of|result type (Float|Double) can't be cast", text):
        wanted.append("i64")
    if re.search(r"bool", text, re.IGNORECASE):
        wanted.append("b8")
    if re.search(r"complex", text):
        wanted.append("c64")
    if re.search(r"Float|float|floating|same dtype|complex|'Long'|'Bool'|Half", text):
        wanted.append("f32")
    for dtype in wanted:
        for path in involved(attempt):
            yield _with_dtype(attempt.plans, path, dtype)
    for dtype in wanted:
        for path, _ in attempt.plans.tensors():
            yield _with_dtype(attempt.plans, path, dtype)


def _with_dtype(plans: Plans, wanted: str, dtype: str) -> Plans:
    def change(path: str, plan: TensorPlan) -> TensorPlan:
        if path != wanted or plan.source != "search" or plan.dtype_known:
            return plan
        return dataclasses.replace(plan, spec=dataclasses.replace(plan.spec, dtype=dtype), detail="dtype from an error")

    return plans.map_tensors(change)


def _rank(attempt: Attempt, text: str) -> Iterator[Plans]:
    if not _RANK_ERROR.search(text):
        return
    wanted = [int(next(g for g in groups if g)) for groups in _RANK.findall(text) if any(groups)]
    for path in dict.fromkeys(
        [*involved(attempt), *mentioned_tensors(attempt), *(p for p, _ in attempt.plans.tensors())]
    ):
        plan = dict(attempt.plans.tensors())[path]
        rank = len(plan.spec.sizes)
        order = sorted(set(range(6)) - {rank}, key=lambda r: (r not in wanted, abs(r - rank), -r))
        for other in order[:3]:
            yield with_rank(attempt.plans, path, other)
    yield _with_one_more(attempt.plans)


def _with_one_more(plans: Plans) -> Plans:
    """The plans with one more dimension in front of every tensor, of one size."""
    leading = fresh_sizes(1, plans.sizes())

    def change(path: str, plan: TensorPlan) -> TensorPlan:
        if plan.source != "search":
            return plan
        spec = dataclasses.replace(plan.spec, sizes=(*leading, *plan.spec.sizes))
        return dataclasses.replace(plan, spec=spec, detail="rank from an error")

    return plans.map_tensors(change)


def with_rank(plans: Plans, wanted: str, rank: int) -> Plans:
    """The plans with the tensor at path `wanted` given `rank` dimensions; added ones stand in front."""
    taken = plans.sizes()

    def change(path: str, plan: TensorPlan) -> TensorPlan:
        if path != wanted or plan.source != "search":
            return plan
        new = reranked(plan.spec.sizes, rank, taken)
        return dataclasses.replace(plan, spec=dataclasses.replace(plan.spec, sizes=new), detail="rank from an error")

    return plans.map_tensors(change)


def _tied(attempt: Attempt, text: str) -> Iterator[Plans]:
    """The sizes of one tensor for another that is used with it: all of them, or that of one dimension."""
    if not re.search(r"broadcast|must match|size", text):
        return
    tensors = dict(attempt.plans.tensors())
    used = [tensors[path].spec.sizes for path in mentioned_tensors(attempt)]
    for ours, theirs in (pair for pair in pairwise(used) if len(pair[0]) == len(pair[1])):
        pairs = zip(ours, theirs, strict=True)
        differ = [(a, b) for a, b in pairs if isinstance(a, int) and isinstance(b, int) and a != b]
        alike = attempt.plans
        for a, b in differ:
            alike = with_size(alike, b, a)
        yield alike
        yield from (with_size(attempt.plans, b, a) for a, b in differ)


def _single(attempt: Attempt, text: str) -> Iterator[Plans]:
    """A tensor of one element in place of one whose sizes fit to nothing."""
    if re.search(r"broadcast|must match", text):
        every = (path for path, _ in attempt.plans.tensors())
        for path in dict.fromkeys([*involved(attempt), *mentioned_tensors(attempt), *every]):
            yield with_rank(attempt.plans, path, 0)


def _plain_sizes(attempt: Attempt, text: str) -> Iterator[Plans]:
    """Sizes that an error names plainly."""
    sizes = attempt.plans.sizes()
    for have, need in plain_conflicts(text):
        if have in sizes and 0 < need != have:
            yield with_size(attempt.plans, have, need)


def _sizes(attempt: Attempt, text: str) -> Iterator[Plans]:
    sizes = attempt.plans.sizes()
    for have, need in _conflicts(attempt, text):
        yield from _resized(attempt.plans, have, need, sizes)


def _resized(plans: Plans, have: int, need: int, sizes: set[int]) -> Iterator[Plans]:
    if have == need or need < 0 or have <= 0:
        return
    if have in sizes:
        yield with_size(plans, have, need)
    for size in sorted(sizes, reverse=True):
        if size == have or size == 0:
            continue
        if have % size == 0 and need % (have // size) == 0 and need:
            yield with_size(plans, size, need // (have // size))
        elif size % have == 0:
            yield with_size(plans, size, need * (size // have))


def _conflicts(attempt: Attempt, text: str) -> Iterator[tuple[int, int]]:
    """Pairs (size that is there, size that is wanted) which an error may be about."""
    pairs = plain_conflicts(text)
    lists = [[int(n) for n in re.findall(_NUMBER, m)] for m in _LIST.findall(text)]
    for left, right in pairwise(lists):
        if len(left) == len(right):
            pairs += [(b, a) for a, b in zip(left, right, strict=True) if a != b]
    plain = [int(n) for n in re.findall(r"(?<![\w.])\d+(?![\w.])", _LIST.sub(" ", text))]
    pairs += [(a, b) for a in plain for b in plain if a != b][:12]
    failed = attempt.run.failed
    if failed is not None:
        shapes = [tuple(map(size_hint, a.shape)) for a in tensors_among(failed.args, failed.kwargs)]
        for first in shapes:
            for second in shapes:
                if first is not second and first and second:
                    pairs += [(first[-1], second[max(len(second) - 2, 0)]), (first[-1], second[-1])]
                    pairs += [(a, b) for a, b in zip(reversed(first), reversed(second), strict=False) if a != b]
        numbers = [n for values in lists for n in values if n > 0]
        last = [s[-1] for s in shapes if s]
        pairs += [(a, b) for a in last for b in [*plain, *numbers] if a != b]
    for have, need in dict.fromkeys(p for p in pairs if min(p) > 1):
        yield have, need
        yield need, have


def plain_conflicts(text: str) -> list[tuple[int, int]]:
    """The two sizes that an error says do not fit, where its text names them plainly."""
    broadcast = re.search(r"dimension of length (\d+) at -(\d+)!.*broadcastable to \[([\d, ]+)\]", text)
    if broadcast:
        expected = [int(n) for n in broadcast[3].split(",")]
        return [(int(broadcast[1]), expected[-int(broadcast[2])])]
    if mask := re.search(r"shape of the mask .*?\[([\d, ]+)\].*indexed tensor .*?\[([\d, ]+)\]", text):
        mask_sizes, sizes = ([int(n) for n in re.findall(r"\d+", found)] for found in mask.groups())
        return [(a, b) for a, b in zip(mask_sizes, sizes, strict=False) if a != b]
    if parts := re.search(r"sum exactly to (\d+) .*split_sizes=\[([\d, ]+)\]", text):
        return [(int(parts[1]), sum(map(int, parts[2].split(","))))]
    matches = (re.search(pattern, text) for pattern in _CONFLICTS)
    return [(int(match["have"]), int(match["need"])) for match in matches if match]


_CONFLICTS = (
    r"\(\d+x(?P<have>\d+) and (?P<need>\d+)x\d+\)",
    r"\[\d+, (?P<have>\d+)\] X \[(?P<need>\d+), \d+\]",
    r"size of tensor a \((?P<have>\d+)\) must match the size of tensor b \((?P<need>\d+)\)",
    r"to have (?P<need>\d+) channels, but got (?P<have>\d+) channels",
    r"Expected size (?P<need>\d+) but got size (?P<have>\d+)",
    r"Expected (?P<need>\d+) but got (?P<have>\d+)",
    r"normalized_shape=\[(?P<need>\d+)\].*\[(?:\d+, )*(?P<have>\d+)\]",
    r"expanded size of the tensor \((?P<need>\d+)\) must match the existing size \((?P<have>\d+)\)",
    r"has size (?P<have>\d+) for operand \d+ which does not broadcast with previously seen size (?P<need>\d+)",
    r"but got (?P<have>\d+) != (?P<need>\d+)",
)


def _divisibility(attempt: Attempt, text: str) -> Iterator[Plans]:
    """A view, chunk or assertion about divisibility: sizes that make the numbers come out even."""
    view = re.search(r"shape '\[([-\d, ]+)\]' is invalid for input of size (\d+)", text)
    if view:
        wanted, there = math.prod(int(n) for n in view[1].split(",") if int(n) > 0), int(view[2])
        for size in sorted(attempt.plans.sizes(), reverse=True):
            if there and "-1" not in view[1] and wanted * size % there == 0:
                yield with_size(attempt.plans, size, wanted * size // there)
    if not re.search(r"invalid for input of size|divisible|multiple|split|chunk|evenly", text):
        return
    numbers = [int(n) for n in re.findall(r"\d+", text) if 1 < int(n) <= 8192]
    for size in sorted(attempt.plans.sizes(), reverse=True):
        for number in numbers:
            if size % number and number % size == 0:
                yield with_size(attempt.plans, size, number)
            elif size % number:
                yield with_size(attempt.plans, size, size * number)


def _in_place(attempt: Attempt, text: str) -> Iterator[Plans]:
    """An input that the code writes to in place cannot be a leaf that needs a gradient."""
    if "leaf Variable" not in text:
        return
    for wanted in dict.fromkeys([*involved(attempt), *(p for p, _ in attempt.plans.tensors())]):

        def change(path: str, plan: TensorPlan, wanted: str = wanted) -> TensorPlan:
            return (
                dataclasses.replace(plan, grad=False, detail="no gradient: written in place")
                if path == wanted
                else plan
            )

        yield attempt.plans.map_tensors(change)


def _missing_attribute(attempt: Attempt, text: str) -> Iterator[Plans]:
    """An attribute or a key that an object of settings lacks."""
    missing = re.search(r"'(\w+)' object has no attribute '(\w+)'", text)
    name = missing[2] if missing else text.strip("'") if isinstance(attempt.run.error, KeyError) else None
    if name is None or not name.isidentifier():
        return
    guessed = {
        n: p for n, p in attempt.plans.items if isinstance(p, ValuePlan) and p.source in ("search", "annotation")
    }
    for parameter in _by_relevance(attempt, list(guessed)):
        if missing is None or type(guessed[parameter].make()).__name__ == missing[1]:
            plan = with_value(guessed[parameter], name, attempt.module)
            if plan is not None:
                yield attempt.plans.with_plan(parameter, plan)


def _pairs(attempt: Attempt, text: str) -> Iterator[Plans]:
    """A number where several are needed: two of it."""
    if not re.search(r"'int' object is not (subscriptable|iterable)|non-iterable int|'int' has no len", text):
        return
    numbers = _guessed_numbers(attempt)
    for name in _by_relevance(attempt, list(numbers)):
        number = numbers[name]
        yield attempt.plans.with_plan(name, value((number, number), "search"))


def _parity(attempt: Attempt, text: str) -> Iterator[Plans]:
    """A number that has to be odd, or even."""
    wanted = re.search(r"\b(odd|even)\b", text)
    numbers = _guessed_numbers(attempt) if wanted else {}
    for name in _by_relevance(attempt, list(numbers)):
        if numbers[name] % 2 != (wanted is not None and wanted[1] == "odd"):
            yield attempt.plans.with_plan(name, value(numbers[name] + 1, "search"))


def _guessed_numbers(attempt: Attempt) -> dict[str, int]:
    plans = {n: p for n, p in attempt.plans.items if isinstance(p, ValuePlan) and p.source == "search"}
    made = {n: p.make() for n, p in plans.items() if p.shown.lstrip("-").isdigit()}
    return {n: number for n, number in made.items() if type(number) is int}


def _other_kind(attempt: Attempt, text: str) -> Iterator[Plans]:
    """Something else altogether for a parameter that the failing expression mentions."""
    names = [n for n, _ in attempt.plans.items]
    for name in _by_relevance(attempt, names):
        for plan in attempt.alternatives.get(name, []):
            yield attempt.plans.with_plan(name, _refreshed(plan, attempt.plans))


Rule = Callable[[Attempt, str], Iterator[Plans]]
RULES: tuple[Rule, ...] = (
    _in_place,
    _missing_attribute,
    typed,
    single_number,
    _plain_sizes,
    _missing_value,
    _dtype,
    guarded,
    described,
    _pairs,
    _parity,
    single_batch,
    _tied,
    _divisibility,
    _sizes,
    _rank,
    _single,
    _other_kind,
)
_ABOUT_SIZES = (_plain_sizes, _tied, _divisibility, _sizes)


def _refreshed(plan: Plan, plans: Plans) -> Plan:
    """The same plan with other sizes in place of those that are in use; small ones mean something and stay."""
    taken = plans.sizes()

    def fresh(plan: Plan) -> Plan:
        if isinstance(plan, SequencePlan):
            return dataclasses.replace(plan, items=tuple(fresh(p) for p in plan.items))
        if isinstance(plan, TensorPlan) and plan.source == "search":
            new = fresh_sizes(len(plan.spec.sizes), taken)
            kept = (s if isinstance(s, int) and s <= SMALL else n for s, n in zip(plan.spec.sizes, new, strict=True))
            return dataclasses.replace(plan, spec=dataclasses.replace(plan.spec, sizes=tuple(kept)))
        return plan

    return fresh(plan)


SMALL = 3
"""Sizes up to this are never made up: they are channels, coordinates, kernels."""


def _by_relevance(attempt: Attempt, names: list[str]) -> list[str]:
    mentioned = mentioned_names(attempt)
    return sorted(names, key=lambda n: mentioned.get(n, len(mentioned) + 99))
