"""What an exception says about ranks and sizes: plans with others, the most plausible first."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from torch import nn

from fx_lsp.tracer.inputs.plan.plans import Plans, TensorPlan, fresh_sizes, reranked, resized, with_size
from fx_lsp.tracer.inputs.plan.values import MASK_NAME
from fx_lsp.tracer.inputs.solve.attempt import Attempt, involved, mentioned_tensors
from fx_lsp.tracer.run.observation import tensors_among
from fx_lsp.tracer.run.values.symbols import size_hint

_NUMBER = r"-?\d+"
_LIST = re.compile(r"[\[(]\s*(-?\d+(?:\s*[,x×]\s*-?\d+)*),?\s*[\])]")
_RANK = re.compile(r"(\d)-?[Dd]\b|expected (\d)[,)]|(?:must have|expected) (\d) dim|(\d)-dimensional|rank (\d)")
_RANK_ERROR = re.compile(
    r"values to unpack|Dimension out of range|too many indices|\dD |\dD\b|\d-d |\d dims?\b|number of dim|ndim|"
    r"dimensional|permute|at least \d|dim\(\)|Dimension specified as|must be a matrix|must match|batch1 must|\dD",
)


def named_sizes(attempt: Attempt, text: str) -> Iterator[Plans]:
    """Sizes that an error names plainly."""
    sizes = attempt.plans.sizes()
    for have, need in plain_conflicts(text):
        if (broadcast := _BROADCAST.search(text)) and _is_of_parameter(attempt, -int(broadcast[2]), have):
            apart = with_size(attempt.plans, have, fresh_sizes(1, sizes, features=False)[0])
            yield with_size(apart, need, have)
            yield with_size(attempt.plans, need, have)
        elif have in sizes and 0 < need != have:
            yield with_size(attempt.plans, have, need)


def _is_of_parameter(attempt: Attempt, index: int, size: int) -> bool:
    """Whether the failing call was given a parameter of a module with this size at the index: no input changes it."""
    failed = attempt.run.failed
    given = tensors_among(failed.args, failed.kwargs) if failed is not None else ()
    return any(isinstance(t, nn.Parameter) and t.ndim >= -index and t.shape[index] == size for t in given)


def other_sizes(attempt: Attempt, text: str) -> Iterator[Plans]:
    """Sizes for those that an error may be about, or that they are multiples of."""
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
    if broadcast := _BROADCAST.search(text):
        expected = [int(n) for n in broadcast[3].split(",")]
        return [(int(broadcast[1]), expected[-int(broadcast[2])])]
    if mask := re.search(r"shape of the mask .*?\[([\d, ]+)\].*indexed tensor .*?\[([\d, ]+)\]", text):
        mask_sizes, sizes = ([int(n) for n in re.findall(r"\d+", found)] for found in mask.groups())
        return [(a, b) for a, b in zip(mask_sizes, sizes, strict=False) if a != b]
    if parts := re.search(r"sum exactly to (\d+) .*split_sizes=\[([\d, ]+)\]", text):
        return [(int(parts[1]), sum(map(int, parts[2].split(","))))]
    matches = (re.search(pattern, text) for pattern in _CONFLICTS)
    return [(int(match["have"]), int(match["need"])) for match in matches if match]


_BROADCAST = re.compile(r"dimension of length (\d+) at -(\d+)!.*broadcastable to \[([\d, ]+)\]")
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


def divisible(attempt: Attempt, text: str) -> Iterator[Plans]:
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


def same_for_all_channels(attempt: Attempt, text: str) -> Iterator[Plans]:
    """Masks with one row for all channels or heads, [B, 1, T], where those of a guessed number of them do not fit."""

    def change(path: str, plan: TensorPlan) -> TensorPlan:
        sizes = plan.spec.sizes
        if plan.source != "search" or plan.rank_known or len(sizes) < 3 or not MASK_NAME.search(path):
            return plan
        spec = dataclasses.replace(plan.spec, sizes=(sizes[0], 1, *sizes[2:]))
        return dataclasses.replace(plan, spec=spec, detail="the same for all channels")

    if re.search(r"broadcast|must match", text):
        yield attempt.plans.map_tensors(change)


def other_rank(attempt: Attempt, text: str) -> Iterator[Plans]:
    """Other ranks for the tensors that an error is about, then for any, then one dimension more for all."""
    if not _RANK_ERROR.search(text) and not _has_operands_of_several_ranks(attempt):
        return
    wanted = [int(next(g for g in groups if g)) for groups in _RANK.findall(text) if any(groups)]
    for path in dict.fromkeys(
        [*involved(attempt), *mentioned_tensors(attempt), *(p for p, _ in attempt.plans.tensors())]
    ):
        plan = dict(attempt.plans.tensors())[path]
        rank = len(plan.spec.sizes)
        order = sorted(set(range(6)) - {rank}, key=lambda r: (r not in wanted, abs(r - rank), -r))
        alike = [p for p, t in attempt.plans.tensors() if t.spec.sizes == plan.spec.sizes]
        for other in order[:3]:
            yield with_rank(attempt.plans, path, other)
            if len(alike) > 1:
                yield with_ranks(attempt.plans, alike, other)
    leading = fresh_sizes(1, attempt.plans.sizes())
    yield resized(attempt.plans, lambda sizes: (*leading, *sizes), "rank from an error")


def _has_operands_of_several_ranks(attempt: Attempt) -> bool:
    """Return True if the call that failed was given tensors of different ranks, none of them a vector."""
    failed = attempt.run.failed
    ranks = {tensor.dim() for tensor in tensors_among(failed.args, failed.kwargs)} if failed is not None else set[int]()
    return len(ranks) > 1 and min(ranks) > 1


def with_rank(plans: Plans, path: str, rank: int) -> Plans:
    """The plans with the tensor at `path` given `rank` dimensions; added ones stand in front."""
    return with_ranks(plans, [path], rank)


def with_ranks(plans: Plans, paths: Iterable[str], rank: int) -> Plans:
    """Return the plans with several tensors of the same sizes given `rank` dimensions, which stay the same."""
    taken = plans.sizes()
    for path in paths:
        plans = resized(plans, lambda sizes: reranked(sizes, rank, taken), "rank from an error", path)
    return plans


def batched(attempt: Attempt) -> Iterator[Plans]:
    """Yield plans with a batch of examples for a convolution that got a single one."""
    if attempt.run.unbatched:
        for path in dict.fromkeys([*mentioned_tensors(attempt), *(path for path, _ in attempt.plans.tensors())]):
            plan = dict(attempt.plans.tensors())[path]
            if plan.source == "search" and not plan.rank_known:
                yield with_rank(attempt.plans, path, len(plan.spec.sizes) + 1)


def tied(attempt: Attempt, text: str) -> Iterator[Plans]:
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


def single_element(attempt: Attempt, text: str) -> Iterator[Plans]:
    """A tensor of one element in place of one whose sizes fit to nothing."""
    if re.search(r"broadcast|must match", text):
        every = (path for path, _ in attempt.plans.tensors())
        for path in dict.fromkeys([*involved(attempt), *mentioned_tensors(attempt), *every]):
            yield with_rank(attempt.plans, path, 0)
