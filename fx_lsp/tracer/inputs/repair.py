"""What an exception says about the inputs: other plans to try, the most plausible first."""

from __future__ import annotations

import ast
import dataclasses
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain as concat
from itertools import pairwise

from fx_lsp.tracer.inputs.plan import Plan, Plans, SequencePlan, TensorPlan, ValuePlan, fresh_sizes
from fx_lsp.tracer.observe import Run, tensors_among
from fx_lsp.tracer.provenance import Sources
from fx_lsp.tracer.snippets import expression

_NUMBER = r"-?\d+"
_LIST = re.compile(r"[\[(]\s*(-?\d+(?:\s*[,x×]\s*-?\d+)*),?\s*[\])]")
_RANK = re.compile(r"(\d)-?D\b|expected (\d)[,)]|must have (\d) dim|(\d)-dimensional|rank (\d)")
_RANK_ERROR = re.compile(
    r"values to unpack|Dimension out of range|too many indices|\dD |\dD\b|number of dim|ndim|dimensional|"
    r"permute|at least \d|dim\(\)|Dimension specified as|must be a matrix|must match|batch1 must|1D tensors|2D|3D",
)


@dataclass(frozen=True)
class Attempt:
    """One run of a set of plans: which input each tensor was, and the source lines for looking at expressions."""

    plans: Plans
    run: Run
    paths: dict[int, str]
    alternatives: dict[str, list[Plan]]
    sources: Sources
    lines: list[str]


def repairs(attempt: Attempt) -> Iterator[Plans]:
    """Plans worth trying after an attempt that raised."""
    error = attempt.run.error
    assert error is not None
    seen = {attempt.plans}
    for plans in concat(*(rule(attempt, str(error)) for rule in RULES)):
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
    if re.search(r"bool", text, re.IGNORECASE):
        wanted.append("b8")
    if re.search(r"Float|float|floating|same dtype|complex|'Long'|'Bool'|Half", text):
        wanted.append("f32")
    for dtype in wanted:
        for path in _involved(attempt):
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
        [*_involved(attempt), *_mentioned_tensors(attempt), *(p for p, _ in attempt.plans.tensors())]
    ):
        plan = dict(attempt.plans.tensors())[path]
        rank = len(plan.spec.sizes)
        order = sorted(set(range(6)) - {rank}, key=lambda r: (r not in wanted, abs(r - rank), -r))
        for other in order[:3]:
            yield with_rank(attempt.plans, path, other)


def with_rank(plans: Plans, wanted: str, rank: int) -> Plans:
    """The plans with the tensor at path `wanted` given `rank` dimensions; added ones stand in front."""
    taken = plans.sizes()

    def change(path: str, plan: TensorPlan) -> TensorPlan:
        if path != wanted or plan.source != "search":
            return plan
        sizes = plan.spec.sizes
        new = fresh_sizes(rank, taken)[: max(rank - len(sizes), 0)] + sizes[len(sizes) - min(rank, len(sizes)) :]
        return dataclasses.replace(plan, spec=dataclasses.replace(plan.spec, sizes=new), detail="rank from an error")

    return plans.map_tensors(change)


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


def with_size(plans: Plans, old: int, new: int) -> Plans:
    """The plans with every searched dimension of size `old` made `new`."""

    def change(path: str, plan: TensorPlan) -> TensorPlan:
        if plan.source != "search" or old not in plan.spec.sizes:
            return plan
        sizes = tuple(new if s == old else s for s in plan.spec.sizes)
        return dataclasses.replace(plan, spec=dataclasses.replace(plan.spec, sizes=sizes), detail="sizes from an error")

    return plans.map_tensors(change)


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
        shapes = [tuple(int(s) for s in a.shape) for a in tensors_among(failed.args, failed.kwargs)]
        for first in shapes:
            for second in shapes:
                if first is not second and first and second:
                    pairs += [(first[-1], second[max(len(second) - 2, 0)]), (first[-1], second[-1])]
                    pairs += [(a, b) for a, b in zip(reversed(first), reversed(second), strict=False) if a != b]
        numbers = [n for values in lists for n in values if n > 0]
        last = [s[-1] for s in shapes if s]
        pairs += [(a, b) for a in last for b in [*plain, *numbers] if a != b]
    for have, need in dict.fromkeys(p for p in pairs if min(p) != 1):
        yield have, need
        yield need, have


def plain_conflicts(text: str) -> list[tuple[int, int]]:
    """The two sizes that an error says do not fit, where its text names them plainly."""
    broadcast = re.search(r"dimension of length (\d+) at -(\d+)!.*broadcastable to \[([\d, ]+)\]", text)
    if broadcast:
        expected = [int(n) for n in broadcast[3].split(",")]
        return [(int(broadcast[1]), expected[-int(broadcast[2])])]
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
    for wanted in dict.fromkeys([*_involved(attempt), *(p for p, _ in attempt.plans.tensors())]):

        def change(path: str, plan: TensorPlan, wanted: str = wanted) -> TensorPlan:
            return (
                dataclasses.replace(plan, grad=False, detail="no gradient: written in place")
                if path == wanted
                else plan
            )

        yield attempt.plans.map_tensors(change)


def _other_kind(attempt: Attempt, text: str) -> Iterator[Plans]:
    """Something else altogether for a parameter that the failing expression mentions."""
    names = [n for n, _ in attempt.plans.items]
    for name in _by_relevance(attempt, names):
        for plan in attempt.alternatives.get(name, []):
            yield attempt.plans.with_plan(name, _refreshed(plan, attempt.plans))


Rule = Callable[[Attempt, str], Iterator[Plans]]
RULES: tuple[Rule, ...] = (_in_place, _missing_value, _dtype, _divisibility, _sizes, _rank, _other_kind)


def _refreshed(plan: Plan, plans: Plans) -> Plan:
    """The same plan with sizes that are not in use yet."""
    taken = plans.sizes()

    def fresh(plan: Plan) -> Plan:
        if isinstance(plan, SequencePlan):
            return dataclasses.replace(plan, items=tuple(fresh(p) for p in plan.items))
        if isinstance(plan, TensorPlan) and plan.source == "search":
            return dataclasses.replace(
                plan, spec=dataclasses.replace(plan.spec, sizes=fresh_sizes(len(plan.spec.sizes), taken))
            )
        return plan

    return fresh(plan)


def _involved(attempt: Attempt) -> list[str]:
    """Paths of the inputs that the failing torch call was given as they are, or as views."""
    failed = attempt.run.failed
    if failed is None:
        return []
    found: list[str] = []
    for argument in tensors_among(failed.args, failed.kwargs):
        base = argument._base if argument._base is not None else argument
        path = attempt.paths.get(id(argument)) or attempt.paths.get(id(base))
        if path is not None:
            found.append(path)
    return found


def mentioned_names(attempt: Attempt) -> dict[str, int]:
    """The names in the user's expressions that were running when the error was raised, by depth of the innermost."""
    error = attempt.run.error
    names: dict[str, int] = {}
    for depth, span in enumerate(attempt.sources.traceback_chain(error.__traceback__ if error else None)):
        if span.file != attempt.sources.file:
            continue
        node = expression(span, attempt.lines)
        line = attempt.lines[span.line - 1] if span.line <= len(attempt.lines) else ""
        found = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)] if node else []
        for name in [*found, *re.findall(r"\w+", line)]:
            names.setdefault(name, depth)
    return names


def _mentioned_tensors(attempt: Attempt) -> list[str]:
    names = mentioned_names(attempt)
    return [p for p, _ in attempt.plans.tensors() if re.split(r"\W", p)[0] in names]


def _by_relevance(attempt: Attempt, names: list[str]) -> list[str]:
    mentioned = mentioned_names(attempt)
    return sorted(names, key=lambda n: mentioned.get(n, len(mentioned) + 99))
