"""What the code itself says a tensor should look like: the check that raised, and the words that it raised."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch

from fx_lsp.tracer.failures.exceptions import expression
from fx_lsp.tracer.inputs.evidence.requirements import Requirement, demanded, shape_of
from fx_lsp.tracer.inputs.plan.dims import Shape, shapes_in
from fx_lsp.tracer.inputs.plan.plans import Plans, SequencePlan, Sizes, TensorPlan, reranked, resized, value, with_size
from fx_lsp.tracer.inputs.solve.attempt import Attempt, mentioned_names, mentioned_tensors
from fx_lsp.tracer.inputs.solve.conditions import Guard, guards, raising, value_in
from fx_lsp.tracer.run.observation import tensors_among


def typed(attempt: Attempt, text: str) -> Iterator[Plans]:
    """What PyTorch takes as an argument where it was given a guessed tensor: "argument 'largest' must be bool"."""
    for argument, position, kind in _wrong_arguments(text):
        values = next((values for pattern, values in _KINDS if re.search(pattern, kind)), ())
        for name in _given_as(attempt, argument, position):
            plan = attempt.plans[name]
            if kind.endswith("of Tensors") and isinstance(plan, TensorPlan):
                yield attempt.plans.with_plan(name, SequencePlan((plan, plan)))
            elif getattr(plan, "source", "") == "search":
                yield from (attempt.plans.with_plan(name, value(v, "search", "from an error")) for v in values)


def single_number(attempt: Attempt, text: str) -> Iterator[Plans]:
    """A number in place of a guessed tensor of which the code wants one, to compare it or to count with it."""
    if not re.search(r"Boolean value of Tensor with more than one|converted to (an index|Scalar|Python scalar)", text):
        return
    for path in mentioned_tensors(attempt):
        plan = dict(attempt.plans.items).get(path)
        if isinstance(plan, TensorPlan) and plan.source == "search":
            yield from (attempt.plans.with_plan(path, value(v, "search", "from an error")) for v in (0.5, 2))


def _wrong_arguments(text: str) -> Iterator[tuple[str, int, str]]:
    """The name of an argument, its position from 1 (0: unknown), and what PyTorch calls the type that it takes."""
    if plain := re.search(r"argument '(\w+)' (?:\(position (\d+)\) )?must be ([\w. ]+?), (?:but found|not) ", text):
        yield plain[1], int(plain[2] or 0), plain[3]
    if "invalid combination of arguments" in text:
        yield from _by_position(text)
        for name in re.findall(r"(\w+)=\w*Tensor\b", text.partition("expected")[0]):
            for kind in dict.fromkeys(re.findall(rf"[(,] ?((?:tuple of )?[\w.]+) {name}\b", text)):
                yield name, 0, kind


def _by_position(text: str) -> Iterator[tuple[str, int, str]]:
    """The arguments that were tensors and would be something else, by the overload with the fewest of them."""
    got, _, overloads = text.partition("but expected one of")
    listed = re.search(r"- got \(([^()]*)\)", got)
    kinds = [kind for kind in listed[1].split(", ") if "=" not in kind] if listed else []
    options: list[list[tuple[str, int, str]]] = []
    for overload in re.findall(r"\* \(([^()]*)\)", overloads):
        takes = re.findall(r"(?:^|, )([\w. ]+?) (\w+)(?: = [^,]*)?(?=,|$)", overload.partition(", *")[0])
        if len(takes) >= len(kinds):
            pairs = enumerate(zip(kinds, takes, strict=False), start=1)
            options.append([(n, i, k) for i, (have, (k, n)) in pairs if "Tensor" in have and not _TENSOR.search(k)])
    yield from min((option for option in options if option), key=len, default=[])


_TENSOR = re.compile(r"Tensor|object|Parameter")
"""What PyTorch calls the types of arguments that tensors may be kinds as."""
_KINDS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    (r"bool", (False, True)),
    (r"torch\.dtype", (torch.float32,)),
    (r"torch\.device", (torch.device("cpu"),)),
    (r"tuple of .*ints", ((1, 1), (2,), (1, 1, 1, 1), (1, 1, 1), (-1,))),
    (r"int", (1, 2)),
    (r"float|Number", (0.5,)),
)
"""Values for what PyTorch calls the types of its arguments."""


def _given_as(attempt: Attempt, argument: str, position: int) -> list[str]:
    """The parameters that the call which failed was given as that argument; else those that stand near it."""
    error = attempt.run.error
    parameters = [name for name, _ in attempt.plans.items]
    for span in attempt.sources.traceback_chain(error.__traceback__ if error else None):
        node = expression(span, attempt.lines) if span.file == attempt.sources.file else None
        for call in ast.walk(node) if node is not None else ():
            if isinstance(call, ast.Call):
                given = [k.value for k in call.keywords if k.arg == argument] or call.args[position - 1 : position]
                found = [g.id for g in given if isinstance(g, ast.Name) and g.id in parameters]
                if found:
                    return found
    mentioned = mentioned_names(attempt)
    return sorted((name for name in parameters if name in mentioned), key=lambda name: mentioned[name])


def guarded(attempt: Attempt, text: str) -> Iterator[Plans]:
    """The innermost condition of those that led to a `raise` which says something of sizes."""
    for guard in guards(attempt):
        kept = list(_kept_from(guard, attempt))
        yield from kept
        if kept:
            return


def _kept_from(guard: Guard, attempt: Attempt) -> Iterator[Plans]:
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
    """The shape of one tensor for another, where a check that raised compares both: `x.size() == y.size()`."""
    tensors = dict(attempt.plans.tensors())
    for guard in guards(attempt):
        for node in (node for node in ast.walk(guard.test) if isinstance(node, ast.Compare)):
            names = [name for side in (node.left, *node.comparators) if (name := shape_of(side)) is not None]
            paths = [path for name in names if (path := path_of(attempt, guard.frame.f_locals.get(name))) is not None]
            for first, second in pairwise(sorted(paths, key=list(tensors).index)):
                sizes = tensors[first].spec.sizes
                yield resized(attempt.plans, lambda _, sizes=sizes: sizes, "from the check that failed", second)


def _of_compared_shape(guard: Guard, attempt: Attempt) -> Iterator[Plans]:
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
                yield resized(attempt.plans, lambda _, sizes=sizes: sizes, "from the check that failed", path)


def _compared_numbers(guard: Guard) -> Iterator[tuple[int, int]]:
    """Numbers that the condition compares, each with what it would have to be: `L == H * W`, `C % groups == 0`,
    `x.shape[-2:] == y.shape[-2:]`."""
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


def described(attempt: Attempt, text: str) -> Iterator[Plans]:
    """Shapes in the words of a `raise`: one that is there, `[4, 64]`, and one that is wanted, `(B, 3, H, W)`."""
    shapes = shapes_in(text) if raising(attempt) is not None else []
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


def one_that_is_asked(attempt: Attempt, text: str) -> Iterator[Plans]:
    """One example where code asks whether a tensor is true that has a value for each of several."""
    if "Boolean value of Tensor with more than one" in text and attempt.run.failed is not None:
        asked = next(iter(tensors_among(attempt.run.failed.args, attempt.run.failed.kwargs)), None)
        several = {int(size) for size in asked.shape if size > 1} if asked is not None else set[int]()
        yield resized(attempt.plans, lambda sizes: tuple(1 if s in several else s for s in sizes), SINGLE)


SINGLE = "one example, as an error says"


def single_batch(attempt: Attempt, text: str) -> Iterator[Plans]:
    """Code that takes one example at a time says so."""
    if not re.search(r"batch", text, re.IGNORECASE) or raising(attempt) is None:
        return
    firsts = [plan.spec.sizes[0] for _, plan in attempt.plans.tensors() if plan.spec.sizes[:1] not in ((), (1,))]
    if firsts:
        batch = firsts[0]
        yield resized(attempt.plans, lambda sizes: (1, *sizes[1:]) if sizes[:1] == (batch,) else sizes, SINGLE)


def path_of(attempt: Attempt, value: Any) -> str | None:
    """Which input a tensor is, or is a view of."""
    if not isinstance(value, torch.Tensor):
        return None
    base = value._base if value._base is not None else value
    return attempt.paths.get(id(value)) or attempt.paths.get(id(base))


def _meeting(plans: Plans, path: str, demand: Requirement) -> Plans:
    """The plans with the tensor at `path` changed to meet a demand."""
    taken = plans.sizes()

    def change(have: Sizes) -> Sizes:
        needed = demand.index + 1 if demand.index >= 0 else -demand.index
        rank = demand.rank if demand.rank is not None else max(len(have), demand.min_rank)
        rank = max(rank, needed) if demand.size is not None else rank
        sizes = list(reranked(have, rank, taken))
        if demand.size is not None:
            sizes[demand.index] = demand.size
        return tuple(sizes)

    return resized(plans, change, "from the check that failed", path)


def _shaped(plans: Plans, path: str, shape: Shape) -> Plans:
    """The plans with the tensor at `path` of that shape: what has a name keeps its size, where there is one."""
    taken = plans.sizes()

    def change(have: Sizes) -> Sizes:
        rank = len(shape)
        if "..." in shape:
            rank = max(rank, len(have)) if shape[0] == "..." else rank - 1
        dimensions: list[int | str] = [d for d in shape if d != "..."]
        dimensions = [*("" for _ in range(rank - len(dimensions))), *dimensions]
        padded = reranked(have, rank, taken)
        return tuple(d if isinstance(d, int) else old for d, old in zip(dimensions, padded, strict=True))

    return resized(plans, change, "from the words of an error", path)
