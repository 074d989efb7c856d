"""Find plans with the sizes, ranks, dtypes and values that the failing operation accepts for its operands."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import torch

from fx_lsp.syntax import FUNCTIONS
from fx_lsp.tracer.failures.exceptions import kind_of
from fx_lsp.tracer.failures.frames import value_in
from fx_lsp.tracer.inputs.evidence.body import body_facts
from fx_lsp.tracer.inputs.plan.plans import (
    FROM_DOCSTRING,
    Plans,
    SequencePlan,
    Sizes,
    TensorPlan,
    ValuePlan,
    fresh_sizes,
    reranked,
    resized,
    value,
    with_size,
)
from fx_lsp.tracer.inputs.plan.values import MASK_NAME
from fx_lsp.tracer.inputs.solve.attempt import (
    Attempt,
    involved,
    is_data_dependent,
    is_of_sizes,
    mentioned_names,
    mentioned_tensors,
)
from fx_lsp.tracer.inputs.solve.conditions import code_of, statements_raising
from fx_lsp.tracer.inputs.solve.operands import (
    ASKS_ONE_ELEMENT,
    SEVERAL,
    Replacement,
    of_other_dtypes,
    of_other_ranks,
    of_other_sizes,
    wants_other_rank,
)
from fx_lsp.tracer.run.observation import has_different_ranks
from fx_lsp.tracer.run.tensors import short_name
from fx_lsp.tracer.run.torch_calls import FailedCall, tensors_among
from fx_lsp.tracer.run.values.symbols import size_hint

RESIZED = "sizes that the operation accepts"
RERANKED = "rank that the operation accepts"
RETYPED = "dtype that the operation accepts"
TAKEN = "a value that the operation accepts"
SINGLE = "one example: the code takes one at a time"


def fitting_sizes(attempt: Attempt) -> Iterator[Plans]:
    """Yield plans with the sizes that the failing call accepts, for the inputs that are or determine its operands."""
    for change in of_other_sizes(attempt.question) if attempt.question is not None else ():
        yield from _as_changed(attempt, change)


def wanted_ranks(attempt: Attempt) -> Iterator[Plans]:
    """Yield plans with the ranks that the failing call accepts, if no other sizes help."""
    if attempt.question is not None and wants_other_rank(attempt.question):
        yield from fitting_ranks(attempt)


def fitting_ranks(attempt: Attempt) -> Iterator[Plans]:
    """Yield plans with the ranks that the failing call accepts for its operands.

    If no other sizes help, the inputs that an operand is computed from get fewer dimensions, or more if the ranks of
    all inputs behind the other operands are fixed.
    """
    question = attempt.question
    if question is None:
        return
    for change in of_other_ranks(question):
        path, rank = path_of(attempt, change.operand), len(change.shape)
        if path is None:
            others = (tensor for tensor in question.tensors if tensor is not change.operand)
            may_change = rank < change.operand.dim() or all(_is_of_fixed_rank(attempt, tensor) for tensor in others)
            if may_change and not question.runs_with(of_other_sizes(question)):
                yield from _of_other_difference(attempt, change.operand, rank - change.operand.dim())
            continue
        if change.shape != _of_rank(change.operand, rank):
            of_rank = with_rank(attempt.plans, path, rank)
            yield resized(of_rank, lambda _, shape=change.shape: shape, RERANKED, path)
        yield from _with_rank_of_all(attempt.plans, path, rank)


def aligned_ranks(attempt: Attempt) -> Iterator[Plans]:
    """Yield plans with which the operands of an element-wise call have equal ranks.

    The inputs that the larger operand is computed from lose dimensions, or those of the smaller one get more, if the
    ranks of all inputs behind the other operand are fixed.
    """
    if attempt.question is None or not has_different_ranks(attempt.question.call.func, attempt.question.call.args):
        return
    small, large = sorted(attempt.question.tensors[:2], key=lambda tensor: tensor.dim())
    if (behind := attempt.run.dependence.of(small)) and behind.isdisjoint(attempt.run.dependence.of(large)):
        yield from _of_other_difference(attempt, large, small.dim() - large.dim())
    if _is_of_fixed_rank(attempt, large):
        yield from _of_other_difference(attempt, small, large.dim() - small.dim())


def _is_of_fixed_rank(attempt: Attempt, operand: torch.Tensor) -> bool:
    """Return True if an operand is computed from inputs that all have a fixed rank."""
    plans, behind = dict(attempt.plans.tensors()), attempt.run.dependence.of(operand)
    return bool(behind) and not any(_has_open_rank(plans[path]) for path in behind)


def _of_other_difference(attempt: Attempt, operand: torch.Tensor, difference: int) -> Iterator[Plans]:
    """Yield plans with more dimensions by `difference`, or fewer, for one of the inputs that an operand is computed
    from.
    """
    sources = attempt.run.dependence.of(operand)
    for path, plan in attempt.plans.tensors():
        rank = len(plan.spec.sizes) + difference
        if path in sources and _has_open_rank(plan) and rank > 0:
            yield with_rank(attempt.plans, path, rank)


def _has_open_rank(plan: TensorPlan) -> bool:
    """Return True if neither code nor a docstring fixes the rank of a tensor."""
    return plan.is_guess and not plan.rank_known and plan.detail != FROM_DOCSTRING


def fitting_dtypes(attempt: Attempt) -> Iterator[Plans]:
    """Yield plans with the dtypes that the failing call accepts for its operands, for the inputs that these are, then
    for any input, unless a value is needed, which does not depend on dtypes.
    """
    changes = list(of_other_dtypes(attempt.question)) if attempt.question is not None else []
    for change in sorted(changes, key=lambda change: _is_mask(attempt, change) and change.dtype != torch.bool):
        path = path_of(attempt, change.operand)
        if path is not None:
            yield _with_dtype(attempt.plans, path, short_name(change.dtype))
    for dtype in dict.fromkeys(short_name(change.dtype) for change in changes if not is_data_dependent(attempt)):
        for path, _ in attempt.plans.tensors():
            yield _with_dtype(attempt.plans, path, dtype)


def _is_mask(attempt: Attempt, change: Replacement) -> bool:
    """Return True if an operand is an input named like a mask."""
    return MASK_NAME.search(path_of(attempt, change.operand) or "") is not None


def fitting_values(attempt: Attempt) -> Iterator[Plans]:
    """Yield plans with values that the failing call accepts in place of a guess that it received directly."""
    if attempt.question is None:
        return
    call, mentioned = attempt.question.call, mentioned_names(attempt)
    arguments: list[tuple[str, Any]] = []
    for argument in (*call.args, *call.kwargs.values()):
        if isinstance(argument, str) or isinstance(
            attempt.run.error, TypeError
        ):  # otherwise its sizes or its dtype are wrong
            guesses = ((n, p) for n, p in attempt.plans.items if not isinstance(p, SequencePlan) and p.is_guess)
            arguments += [(name, argument) for name, _ in guesses if _is_given(attempt, name, argument, mentioned)]
    for name, argument in arguments:
        if isinstance(argument, (int, float)) and attempt.question.takes_tensor(argument):
            tensors = (plan for plan in attempt.alternatives.get(name, ()) if isinstance(plan, TensorPlan))
            yield from (attempt.plans.with_plan(name, plan) for plan in tensors)
    for name, other in attempt.question.fitting_values(arguments):
        plan = attempt.plans[name]
        several = SequencePlan((plan, plan)) if other is SEVERAL else None
        yield attempt.plans.with_plan(name, several or value(other, "search", TAKEN))


def _is_given(attempt: Attempt, name: str, argument: Any, mentioned: Iterable[str]) -> bool:
    """Return True if an argument of the failing call is the guess for a parameter."""
    plan = attempt.plans[name]
    if isinstance(argument, torch.Tensor):
        return attempt.run.dependence.is_input(argument) and path_of(attempt, argument) == name
    return isinstance(plan, ValuePlan) and name in mentioned and plan.shown == repr(argument)


def single_number(attempt: Attempt) -> Iterator[Plans]:
    """Yield plans with a number for a guessed tensor if the code needs one, or with one example."""
    call = attempt.run.failed
    if call is None or call.func not in ASKS_ONE_ELEMENT:
        return
    asked = next(tensors_among(call.args, call.kwargs), None)
    several = {size_hint(size) for size in asked.shape if size_hint(size) > 1} if asked is not None else set[int]()
    if several:
        yield resized(attempt.plans, lambda sizes: tuple(1 if s in several else s for s in sizes), SINGLE)
    for path in mentioned_tensors(attempt) if several else ():
        plan = dict(attempt.plans.items).get(path)
        if isinstance(plan, TensorPlan) and plan.is_guess:
            yield from (attempt.plans.with_plan(path, value(number, "search", TAKEN)) for number in (0.5, 2))


def unpacked_ranks(attempt: Attempt) -> Iterator[Plans]:
    """Yield plans with as many dimensions as the code reads sizes: `b, t, c = x.shape`, `x.shape[2]`."""
    if attempt.run.failed is not None:
        return
    for frame, node in statements_raising(attempt):
        for shape, rank in _asked_ranks(node):
            tensor = value_in(shape, frame)
            path = path_of(attempt, tensor)
            paths = [path] if path is not None else mentioned_tensors(attempt)
            for path in paths if isinstance(tensor, torch.Tensor) and tensor.dim() != rank else ():
                yield from _with_rank_of_all(attempt.plans, path, rank)


def unpacked_sizes(attempt: Attempt) -> Iterator[Plans]:
    """Yield plans in which an input has as many parts as it is unpacked into, `rows, columns = edges`: first as a
    matrix, then with its own rank. Parts that are used as indices are integers.
    """
    if attempt.run.failed is not None or not isinstance(attempt.run.error, ValueError):
        return
    for frame, node in statements_raising(attempt):
        match node:
            case ast.Assign([ast.Tuple(elements) | ast.List(elements)], whole):
                tensor = value_in(whole, frame)
                path = path_of(attempt, tensor) if attempt.run.dependence.is_input(tensor) else None
            case _:
                continue
        if path is None:
            yield from _with_parts(attempt, len(elements))
            continue
        code = code_of(frame)
        facts = body_facts(code).get(ast.unparse(whole)) if isinstance(code, FUNCTIONS) else None
        are_indices = facts is not None and facts.element is not None and "index" in facts.element.uses
        for kept in (slice(-1, None), slice(1, None)):
            plans = resized(attempt.plans, lambda sizes, k=kept: (len(elements), *sizes[k]), RERANKED, path)
            yield _with_dtype(plans, path, "i64") if are_indices else plans


def _with_parts(attempt: Attempt, count: int) -> Iterator[Plans]:
    """Yield plans in which the last torch call returns as many tensors as they are unpacked into: inputs that its
    tensor is computed from have that size in place of the number of tensors, `x, y = boxes.unbind(-1)`.
    """
    last = attempt.run.last
    tensor = next(tensors_among(last.args, last.kwargs), None) if last is not None else None
    if last is None or tensor is None or not isinstance(last.result, list | tuple):
        return
    have, sources = len(last.result), attempt.run.dependence.of(tensor)
    for path, plan in attempt.plans.tensors():
        # other inputs may have the size by accident
        other = fresh_sizes(1, attempt.plans.sizes(), features=False)[0]
        changes: dict[int | str, int] = {have: count, count: other}
        if path in sources and have in plan.spec.sizes:
            yield resized(attempt.plans, partial(_exchanged, changes), RESIZED, path)


def _exchanged(changes: Mapping[int | str, int], sizes: Sizes) -> Sizes:
    return tuple(changes.get(size, size) for size in sizes)


def _asked_ranks(node: ast.AST) -> Iterator[tuple[ast.expr, int]]:
    """Yield the expressions whose sizes a statement reads, and their required rank."""
    for part in ast.walk(node):
        if isinstance(part, ast.Assign) and isinstance(part.targets[0], (ast.Tuple, ast.List)):
            names = part.targets[0].elts
            sized = _sized(part.value)
            if sized is not None and not any(isinstance(name, ast.Starred) for name in names):
                yield sized, len(names)
        elif isinstance(part, ast.Subscript) and isinstance(part.slice, ast.Constant):
            sized, index = _sized(part.value), part.slice.value
            if sized is not None and isinstance(index, int) and index >= 0:
                yield sized, index + 1


def _sized(node: ast.expr) -> ast.expr | None:
    """Return `x` for `x.shape` and `x.size()`; None for any other."""
    if isinstance(node, ast.Call) and not node.args and isinstance(node.func, ast.Attribute):
        return node.func.value if node.func.attr == "size" else None
    return node.value if isinstance(node, ast.Attribute) and node.attr == "shape" else None


def other_rank(attempt: Attempt) -> Iterator[Plans]:
    """Yield plans with other ranks for the tensors in the failing expression, if it has inputs or tensors of several
    ranks.
    """
    error, call = attempt.run.error, attempt.run.failed
    is_of_inputs = call is None or bool(involved(attempt)) or _has_several_ranks(call)
    if error is None or kind_of(error, call) != "shape" or not is_of_inputs:
        return
    tensors = dict(attempt.plans.tensors())
    for path in dict.fromkeys([*involved(attempt), *mentioned_tensors(attempt), *tensors]):
        rank = len(tensors[path].spec.sizes)
        for other in sorted(set(range(6)) - {rank}, key=lambda r: (abs(r - rank), -r))[:2]:
            yield from _with_rank_of_all(attempt.plans, path, other)


def _has_several_ranks(call: FailedCall) -> bool:
    """Return True if a call received tensors of different ranks, none of them a vector."""
    ranks = {tensor.dim() for tensor in tensors_among(call.args, call.kwargs)}
    return len(ranks) > 1 and min(ranks) > 1


def same_for_all_channels(attempt: Attempt) -> Iterator[Plans]:
    """Yield plans with masks of one row for all channels or heads, [B, 1, T], if a guessed size does not fit."""

    def change(path: str, plan: TensorPlan) -> TensorPlan:
        sizes = plan.spec.sizes
        if not plan.is_guess or plan.rank_known or len(sizes) < 3 or not MASK_NAME.search(path):
            return plan
        spec = dataclasses.replace(plan.spec, sizes=(sizes[0], 1, *sizes[2:]))
        return dataclasses.replace(plan, spec=spec, detail="the same for all channels")

    if is_of_sizes(attempt):
        yield attempt.plans.map_tensors(change)


def batched(attempt: Attempt) -> Iterator[Plans]:
    """Yield plans with a batch dimension for a convolution that got an unbatched example: for all inputs of that rank,
    then for one.

    Code counts dimensions of images from the front, so they get another side first.
    """
    if not attempt.run.unbatched:
        return
    guessed = {p: t for p, t in attempt.plans.tensors() if t.is_guess and not t.rank_known}
    paths = [path for path in dict.fromkeys([*mentioned_tensors(attempt), *guessed]) if path in guessed]
    for rank in dict.fromkeys(len(guessed[path].spec.sizes) for path in paths):
        alike = [path for path in paths if len(guessed[path].spec.sizes) == rank]
        yield _with_another_side(attempt.plans, alike)
        yield _with_ranks(attempt.plans, alike, rank + 1)
    for path in paths:
        yield with_rank(attempt.plans, path, len(guessed[path].spec.sizes) + 1)


def _with_another_side(plans: Plans, paths: Iterable[str]) -> Plans:
    """Return the plans with one more last dimension of several tensors, as large as the last one."""
    for path in paths:
        plans = resized(plans, lambda sizes: (*sizes, *sizes[-1:]), RERANKED, path)
    return plans


def conflict(attempt: Attempt) -> tuple[int, int] | None:
    """Return a size of an operand that the failing call rejects, and the accepted one; None without one."""
    changes = of_other_sizes(attempt.question) if attempt.question is not None else ()
    return next((pair for change in changes for pair in _changed_sizes(change)), None)


def path_of(attempt: Attempt, value: Any) -> str | None:
    """Return the path of the input that a tensor is, or is a view of; else None."""
    return attempt.run.dependence.input_of(value)


def with_rank(plans: Plans, path: str, rank: int) -> Plans:
    """Return the plans with `rank` dimensions of the tensor at `path`; added ones are in front."""
    return _with_ranks(plans, [path], rank)


def _with_ranks(plans: Plans, paths: Iterable[str], rank: int) -> Plans:
    """Return the plans with `rank` dimensions of several tensors; added dimensions are the same for all."""
    used_sizes = plans.sizes()
    for path in paths:
        plans = resized(plans, lambda sizes: reranked(sizes, rank, used_sizes), RERANKED, path)
    return plans


def _with_rank_of_all(plans: Plans, path: str, rank: int) -> Iterator[Plans]:
    """Yield the plans with another rank for one tensor, then for all that have its sizes."""
    yield with_rank(plans, path, rank)
    sizes = dict(plans.tensors())[path].spec.sizes
    alike = [other for other, tensor in plans.tensors() if tensor.spec.sizes == sizes]
    if len(alike) > 1:
        yield _with_ranks(plans, alike, rank)


def _of_rank(tensor: torch.Tensor, rank: int) -> tuple[int, ...]:
    return tuple(map(size_hint, tensor.shape))[max(tensor.dim() - rank, 0) :]


def _changed_sizes(change: Replacement) -> list[tuple[int, int]]:
    """Return each size of an operand that differs in a change of it, with the new one."""
    pairs = zip(map(size_hint, change.operand.shape), change.shape, strict=True)
    return [(have, need) for have, need in pairs if have != need]


def _as_changed(attempt: Attempt, change: Replacement) -> Iterator[Plans]:
    """Yield plans in which an operand has other sizes: of the input that it is, or of all sizes that determine
    its own.
    """
    path, pairs, plans = path_of(attempt, change.operand), _changed_sizes(change), attempt.plans
    if path is not None and len(dict(plans.tensors())[path].spec.sizes) == len(change.shape):
        yield resized(plans, lambda _: change.shape, RESIZED, path)
    elif any(need == 1 for _, need in pairs):
        return  # a computed operand is not meant to broadcast over another
    sizes = plans.sizes()
    if all(have in sizes for have, _ in pairs):
        together = plans
        for have, need in pairs:
            together = with_size(together, have, need)
        yield together
    for have, need in pairs if len(pairs) == 1 else ():
        yield from _multiplied(plans, have, need, sizes)


def _multiplied(plans: Plans, have: int, need: int, sizes: Iterable[int]) -> Iterator[Plans]:
    """Yield plans whose sizes, by the same multiplication or division, result in another size."""
    for size in sorted(sizes, reverse=True):
        if size in (have, 0) or have == 0:
            continue
        if have % size == 0 and need % (have // size) == 0:
            yield with_size(plans, size, need // (have // size))
        elif size % have == 0:
            yield with_size(plans, size, need * (size // have))


def _with_dtype(plans: Plans, wanted: str, dtype: str) -> Plans:
    def change(path: str, plan: TensorPlan) -> TensorPlan:
        if path != wanted or not plan.is_guess or plan.dtype_known:
            return plan
        return dataclasses.replace(plan, spec=dataclasses.replace(plan.spec, dtype=dtype), detail=RETYPED)

    return plans.map_tensors(change)
