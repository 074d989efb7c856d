"""Change tensors to meet the requirements of the code itself: in the check that raised, and in its message."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise

from fx_lsp.tracer.failures.frames import value_in
from fx_lsp.tracer.inputs.evidence.requirements import Requirement, demanded, shape_of
from fx_lsp.tracer.inputs.plan.dims import Shape, shapes_in
from fx_lsp.tracer.inputs.plan.plans import Plans, Sizes, reranked, resized, with_size
from fx_lsp.tracer.inputs.solve.attempt import Attempt, mentioned_tensors
from fx_lsp.tracer.inputs.solve.conditions import RaisingCondition, guards, raising
from fx_lsp.tracer.inputs.solve.sizes import SINGLE, path_of


def guarded(attempt: Attempt) -> Iterator[Plans]:
    """Yield plans for the innermost condition before a `raise` that concerns sizes."""
    for guard in guards(attempt):
        kept = list(_kept_from(guard, attempt))
        yield from kept
        if kept:
            return


def _kept_from(guard: RaisingCondition, attempt: Attempt) -> Iterator[Plans]:
    plans = attempt.plans
    for demand in demanded(guard.test, guard.truth):
        path = path_of(attempt, guard.frame.f_locals.get(demand.name))
        if path is not None:
            plans = _meeting(plans, path, demand)
            yield plans
    yield from _of_compared_shape(guard, attempt)
    sizes = attempt.plans.sizes()
    for have, need in _compared_numbers(guard):
        if have in sizes and need > 0:
            yield with_size(attempt.plans, have, need)


def of_one_shape(attempt: Attempt) -> Iterator[Plans]:
    """Yield plans with the shape of one tensor for another, if a failed check compares them: `x.size() == y.size()`."""
    tensors = dict(attempt.plans.tensors())
    for guard in guards(attempt):
        for node in (node for node in ast.walk(guard.test) if isinstance(node, ast.Compare)):
            names = [name for side in (node.left, *node.comparators) if (name := shape_of(side)) is not None]
            paths = [path for name in names if (path := path_of(attempt, guard.frame.f_locals.get(name))) is not None]
            for first, second in pairwise(sorted(paths, key=list(tensors).index)):
                sizes = tensors[first].spec.sizes
                yield resized(attempt.plans, lambda _, sizes=sizes: sizes, "from a check that failed", second)


def _of_compared_shape(guard: RaisingCondition, attempt: Attempt) -> Iterator[Plans]:
    """Yield plans with the shape that a condition compares a tensor's with: `x.shape == (len(y), y.shape[-1])`."""
    for node in ast.walk(guard.test):
        if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
            continue
        sides = node.left, node.comparators[0]
        for side, other in (sides, sides[::-1]):
            name, shape = shape_of(side), value_in(other, guard.frame)
            path = path_of(attempt, guard.frame.f_locals.get(name)) if name is not None else None
            if path is not None and isinstance(shape, tuple):
                sizes = tuple(size for size in shape if isinstance(size, int))
                yield resized(attempt.plans, lambda _, sizes=sizes: sizes, "from a check that failed", path)


def _compared_numbers(guard: RaisingCondition) -> Iterator[tuple[int, int]]:
    """Yield numbers that the condition compares, each with its required value: `L == H * W`, `C % groups == 0`,
    `x.shape[-2:] == y.shape[-2:]`.
    """
    for node in ast.walk(guard.test):
        if not isinstance(node, ast.Compare):
            continue
        left, right = value_in(node.left, guard.frame), value_in(node.comparators[0], guard.frame)
        if isinstance(left, tuple) and isinstance(right, tuple) and len(left) == len(right):
            pairs = zip(left, right, strict=True)
            yield from ((b, a) for a, b in pairs if type(a) is type(b) is int and a != b)
        if isinstance(node.left, ast.BinOp) and isinstance(node.left.op, ast.Mod) and right == 0:
            whole, part = (value_in(side, guard.frame) for side in (node.left.left, node.left.right))
            if type(whole) is int and type(part) is int and part:
                yield whole, (whole // part + 1) * part
                yield part, whole
        elif type(left) is int and type(right) is int and left != right:
            yield left, right
            yield right, left


def described(attempt: Attempt) -> Iterator[Plans]:
    """Yield plans for the shapes in the message of a `raise`: an actual one, `[4, 64]`, and an expected one, `(B, 3, H,
    W)`.
    """
    shapes = shapes_in(str(attempt.run.error)) if raising(attempt) is not None else []
    tensors = dict(attempt.plans.tensors())
    there = {s: [p for p, t in tensors.items() if t.spec.sizes == s] for s in shapes}
    for wanted in shapes:
        concrete = all(isinstance(d, int) for d in wanted)
        paths = [p for shape in shapes if shape != wanted for p in there[shape]]
        if not concrete and not paths:
            paths = mentioned_tensors(attempt) or list(tensors)
        for path in dict.fromkeys(paths):
            plans = _shaped(attempt.plans, path, wanted)
            if plans != attempt.plans:
                yield plans


def single_batch(attempt: Attempt) -> Iterator[Plans]:
    """Yield plans with a batch of one, if the message of an error mentions a batch."""
    if "batch" not in str(attempt.run.error).lower() or raising(attempt) is None:
        return
    firsts = [plan.spec.sizes[0] for _, plan in attempt.plans.tensors() if plan.spec.sizes[:1] not in ((), (1,))]
    if firsts:
        batch = firsts[0]
        yield resized(attempt.plans, lambda sizes: (1, *sizes[1:]) if sizes[:1] == (batch,) else sizes, SINGLE)


def _meeting(plans: Plans, path: str, demand: Requirement) -> Plans:
    """Return the plans with the tensor at `path` changed to meet a requirement."""
    used_sizes = plans.sizes()

    def change(have: Sizes) -> Sizes:
        needed = demand.index + 1 if demand.index >= 0 else -demand.index
        rank = demand.rank if demand.rank is not None else max(len(have), demand.min_rank)
        rank = max(rank, needed) if demand.size is not None else rank
        sizes = list(reranked(have, rank, used_sizes))
        if demand.size is not None:
            sizes[demand.index] = demand.size
        return tuple(sizes)

    return resized(plans, change, "from a check that failed", path)


def _shaped(plans: Plans, path: str, shape: Shape) -> Plans:
    """Return the plans with the tensor at `path` of that shape; a named dimension keeps its size, if it has one."""
    used_sizes = plans.sizes()

    def change(have: Sizes) -> Sizes:
        rank = len(shape)
        if "..." in shape:
            rank = max(rank, len(have)) if shape[0] == "..." else rank - 1
        dimensions: list[int | str] = [d for d in shape if d != "..."]
        dimensions = [*("" for _ in range(rank - len(dimensions))), *dimensions]
        padded = reranked(have, rank, used_sizes)
        return tuple(d if isinstance(d, int) else old for d, old in zip(dimensions, padded, strict=True))

    return resized(plans, change, "from the text of an error", path)
