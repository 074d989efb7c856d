"""Solve for natural sizes that flip one condition, and keep the earlier ones."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import Any, TypeAlias

import torch

from fx_lsp.tracer.compat import FloorDiv, Max, Mod, PythonMod, SymbolPrinter, sympy
from fx_lsp.tracer.inputs.plan.plans import INIT, Plan, Plans, SequencePlan, TensorPlan, fresh_sizes, value
from fx_lsp.tracer.inputs.solve.operands import Question, of_other_sizes, tensors_of
from fx_lsp.tracer.inputs.solve.path_conditions import Condition, Dimension, Exploration, guessed_number
from fx_lsp.tracer.run.values.symbols import size_hint

Sizes: TypeAlias = "dict[sympy.Symbol, int]"
_Groups: TypeAlias = "Mapping[sympy.Symbol, tuple[sympy.Symbol, ...]]"
Test: TypeAlias = Callable[[Mapping[str, int]], bool]

MAX_SCANNED = 1024
"""The size up to which every number is tried for one dimension, or for two that are alike."""
GRID = tuple(sorted({*range(2, 17), *range(16, 129, 4), *range(128, 513, 32)}))
"""The sizes that are tried for two dimensions at once."""
MAX_SOLUTIONS = 4
MAX_FITTING = 400
"""The most solutions that are searched and returned."""
MAX_COMPARED = 24
"""The most solutions, the most natural ones, that are compared with the earlier conditions."""
FITS = "sizes that fit"
MAX_GOALS = 2
"""The most of the last conditions that are flipped."""
ENLARGEMENTS = (16, 16), (64, 4)
"""The enlargements of images' sides below a size."""
MAX_PATH = 400
"""The most of the earlier conditions that are checked, the last ones."""


@dataclass(frozen=True)
class Solution:
    """Hold sizes that differ from those tried.

    It is `degenerate` if a dimension has to be 1 (or 0), and `coherent` if all equal sizes stay equal.
    """

    sizes: Sizes
    degenerate: bool
    coherent: bool = True


def solutions(exploration: Exploration, goal: Condition) -> list[Solution]:
    """Return the most natural sizes that flip `goal`; empty if it does not depend on free sizes."""
    hints, groups = exploration.hints, tied(exploration)
    if _is_emptiness(goal, exploration):
        return []
    expression = goal.expression if goal.held else _beside_ones(goal.expression)
    counted = [_test(sympy.Ge(size, 1), True) for size in _counts(expression)]
    wanted = _test(expression, not goal.held)
    symbols = [s for s in hints if s in expression.free_symbols]
    variables = list(dict.fromkeys(groups[s] for s in symbols))
    path = list(_path(exploration, goal))
    before = {str(s): n for s, n in hints.items()}
    fitting: dict[tuple[tuple[str, int], ...], tuple[Any, Solution]] = {}
    for change in _changes(variables, exploration, goal):
        if len(fitting) >= MAX_FITTING:
            break
        sizes = {**before, **{str(s): n for s, n in change.items()}}
        if wanted(sizes) and all(test(sizes) for test in counted):
            key = tuple(sorted((str(s), n) for s, n in change.items()))
            solution = Solution(
                change, min(change.values()) < 2 and not (_is_one(expression) or _sum_of_sizes(expression))
            )
            fitting.setdefault(key, (_unlikeliness(solution, exploration, before), solution))
    likely = islice(sorted(fitting.values(), key=lambda item: item[0]), MAX_COMPARED)
    costs = ((_cost(solution, path, before, unlikely), solution) for unlikely, solution in likely)
    best = sorted(costs, key=lambda item: item[0])
    coherent = (replace(solution, coherent=not cost[1]) for cost, solution in islice(best, MAX_SOLUTIONS))
    return [_told_apart(solution, groups, exploration, goal) for solution in coherent]


def _counts(expression: sympy.Basic) -> Iterator[sympy.Basic]:
    """Yield the sizes after strides and pools: quotients, with their summands."""
    sums = {part: total for total in expression.atoms(sympy.Add) for part in _quotient_beside_number(total)}
    yield from (sums.get(part, part) for part in expression.atoms(FloorDiv))


def _quotient_beside_number(total: sympy.Add) -> Iterator[sympy.Basic]:
    """Yield the quotient in a sum of a quotient and a positive number."""
    number, *others = total.args
    if len(others) == 1 and number.is_Integer and number.is_positive and isinstance(others[0], FloorDiv):
        yield others[0]


def _path(exploration: Exploration, goal: Condition) -> Iterator[tuple[Condition, Test]]:
    """Yield the earlier conditions, each with a test for other sizes."""
    for condition in exploration.conditions[-MAX_PATH:]:
        if condition.expression != goal.expression and not _is_of_table(condition, exploration):
            yield condition, _test(condition.expression, condition.held)


def _is_of_table(condition: Condition, exploration: Exploration) -> bool:
    """Return True if a number of the constructor had to keep its value: it met an object created from it, which has no
    symbols, and which fits another number once created from that.
    """
    expression: Any = condition.expression
    if not condition.held or expression.func is not sympy.Eq or not any(side.is_Integer for side in expression.args):
        return False
    return all(exploration.dimensions[s].path.startswith(INIT) for s in expression.free_symbols)


def _told_apart(solution: Solution, groups: _Groups, exploration: Exploration, goal: Condition) -> Solution:
    """Return the solution with other sizes for dimensions that equal one of its own by coincidence: `[4, 12, 8]`, not
    `[4, 8, 8]`, if the last has to be 8 and the second is unconstrained.
    """
    dimensions, sizes = exploration.dimensions, {**exploration.hints, **solution.sizes}
    for symbol, size in solution.sizes.items():
        for other in exploration.hints.keys() - solution.sizes.keys():
            beside = dimensions[other].path == dimensions[symbol].path and dimensions[other].rank > 0
            if not beside or exploration.hints[other] != size:
                continue
            fresh = dict.fromkeys(groups[other], fresh_sizes(1, {*sizes.values()}, features=False)[0])
            by_name = {str(s): n for s, n in {**sizes, **fresh}.items()}
            about = [c for c in exploration.conditions if not fresh.keys().isdisjoint(c.expression.free_symbols)]
            asked = {(c.expression, c.held != (c.expression == goal.expression)) for c in about}
            if all(_test(expression, held)(by_name) for expression, held in asked):
                solution = replace(solution, sizes={**solution.sizes, **fresh})
    return solution


def _beside_ones(expression: sympy.Basic) -> sympy.Basic:
    """Return the condition without alternatives in which a size is 1 or 0: no code is written for that."""
    if isinstance(expression, sympy.Or):
        return sympy.Or(*(part for part in expression.args if not _is_one(part) and not _is_zero(part)))
    return expression


def _is_one(expression: sympy.Basic) -> bool:
    """Return True if a condition is that a size is 1, such as a channel that a layer expects."""
    return isinstance(expression, sympy.Eq) and sympy.Integer(1) in expression.args


def _sum_of_sizes(expression: Any) -> int:
    """Return the number that a sum of sizes has to be, 0 for any other condition.

    In a sum 1 is a size like any other, such as that of one of two coordinates that are concatenated.
    """
    if not isinstance(expression, sympy.Eq | sympy.Ne):
        return 0
    sides: Sequence[Any] = sorted(expression.args, key=lambda side: not side.is_Integer)
    number, total = sides
    return int(number) if number.is_Integer and total.is_Add and all(part.is_Symbol for part in total.args) else 0


def is_one(goal: Condition, exploration: Exploration) -> bool:
    """Return True if a condition asks for the size 1, as operations do to broadcast.

    After strides and pools, and at the end in an operation that does not broadcast, such as a matrix product, 1 is a
    size like any other.
    """
    return _is_one(goal.expression) and (not goal.expression.has(FloorDiv) or exploration.stretches)


def _is_zero(expression: sympy.Basic) -> bool:
    return (
        isinstance(expression, sympy.Eq)
        and sympy.Integer(0) in expression.args
        and not expression.atoms(Mod, PythonMod)
    )


def _is_emptiness(goal: Condition, exploration: Exploration) -> bool:
    """Return True if a condition only flips if a tensor has no elements, or if strides and pools leave 1 of an image,
    which is not meant to broadcast.
    """
    expression: Any = goal.expression
    if is_one(goal, exploration) and expression.has(FloorDiv):
        return True
    if goal.held:
        return isinstance(expression, sympy.Ne) and _is_zero(sympy.Eq(*expression.args, evaluate=False))
    return _is_zero(expression)


def solved(exploration: Exploration) -> Iterator[Sizes]:
    """Yield sizes and numbers that flip the condition at which a run stopped, the most natural first."""
    for number, goal in enumerate(islice(exploration.stopping(), MAX_GOALS)):
        if number == 0 or not is_one(goal, exploration):  # operations ask for 1 in order to broadcast
            asked = {s: hint for s, hint in exploration.hints.items() if s in goal.expression.free_symbols}
            alike = _of_one_shape(exploration, goal)
            yield from ({**asked, **alike},) if alike else ()
            sizes = (solution.sizes for solution in solutions(exploration, goal) if not solution.degenerate)
            yield from ({**asked, **changed} for changed in sizes)


def of_operands(exploration: Exploration, question: Question) -> Iterator[Sizes]:
    """Yield the sizes of one operand for another, if the failing call runs with them and with no single one, and they
    are sizes of inputs: `[4, 8, 64]` in place of `[12, 16, 64]`, whose batch and length are those of another input.
    """
    failed = exploration.attempt.run.failed
    if failed is None or failed.func is not question.call.func:
        return
    symbolic = dict(zip(map(id, tensors_of(question.call)), tensors_of(failed), strict=False))
    shapes = [tuple(map(size_hint, operand.shape)) for operand in question.tensors]
    several: list[dict[Any, int]] = []
    for change in of_other_sizes(question):
        sizes = zip(symbolic[id(change.operand)].shape, change.operand.shape, change.shape, strict=True)
        changed = {have.node.expr if isinstance(have, torch.SymInt) else 0: to for have, was, to in sizes if was != to}
        is_leading = change.shape in shapes and change.shape[-1:] == tuple(map(size_hint, change.operand.shape[-1:]))
        several += [changed] if is_leading or len(changed) < 2 else []
    if all(len(changed) > 1 and 1 not in changed.values() for changed in several):
        yield from (changed for changed in several if changed.keys() <= exploration.dimensions.keys())


def _of_one_shape(exploration: Exploration, goal: Condition) -> Sizes:
    """Return the sizes of one tensor for another, if both should have equally many elements: labels of a batch of
    tokens are [B, T] as well.
    """
    condition: Any = goal.expression
    if condition.func is not (sympy.Ne if goal.held else sympy.Eq):
        return {}
    hints = exploration.hints
    shapes = [shape for side in condition.args if (shape := _shape(side, exploration))]
    kept, changed = (
        sorted((shapes[0], shapes[-1]), key=lambda shape: list(hints).index(shape[0])) if shapes else ([], [])
    )
    number = next((int(side) for side in condition.args if side.is_Integer), None)
    sizes = [hints[symbol] for symbol in kept] if number is None else _with_elements(exploration, number, len(changed))
    is_other = number is not None or set(kept).isdisjoint(changed)
    return dict(zip(changed, sizes, strict=True)) if is_other and len(sizes) == len(changed) else {}


def _with_elements(exploration: Exploration, number: int, rank: int) -> list[int]:
    """Return the sizes of a given input with that number of elements and dimensions."""
    for _, plan in exploration.attempt.plans.tensors():
        sizes = [size for size in plan.spec.sizes if isinstance(size, int)]
        if len(sizes) == len(plan.spec.sizes) == rank and math.prod(sizes) == number:
            return sizes
    return []


def _shape(product: Any, exploration: Exploration) -> list[sympy.Symbol]:
    """Return the dimensions of one tensor whose sizes are multiplied, in order; empty for any other product."""
    dimensions = exploration.dimensions
    if not product.is_Mul or not all(dimensions.get(factor) for factor in product.args):
        return []
    of_one = len({dimensions[factor].path for factor in product.args}) == 1
    return sorted(product.args, key=lambda factor: dimensions[factor].index) if of_one else []


def with_sizes(plans: Plans, exploration: Exploration, sizes: Sizes, prefix: str = "") -> Plans:
    """Return the plans (those whose paths began with `prefix`) with those sizes and numbers, also of the
    constructor.
    """
    by_place = {(d.path, d.index): sizes[s] for s, d in exploration.dimensions.items() if s in sizes}

    def changed(plan: Plan, path: str) -> Plan:
        if isinstance(plan, SequencePlan):
            parts = zip(plan.paths(path), plan.items, strict=True)
            return replace(plan, items=tuple(changed(item, where) for where, item in parts))
        if isinstance(plan, TensorPlan):
            fitting = tuple(by_place.get((path, index), size) for index, size in enumerate(plan.spec.sizes))
            spec = replace(plan.spec, sizes=fitting)
            return plan if spec == plan.spec else replace(plan, spec=spec, detail=FITS)
        number = by_place.get((path, 0)) if guessed_number(plan) is not None else None
        return plan if number is None else value(number, plan.source, FITS)

    init = None if plans.init is None else with_sizes(plans.init, exploration, sizes, INIT)
    return replace(plans, items=tuple((n, changed(plan, f"{prefix}{n}")) for n, plan in plans.items), init=init)


def has_vanishing_sizes(exploration: Exploration) -> bool:
    """Return True if strides or pools reduced a size to 1, which operations treat specially, so that their conditions
    on other sizes do not show.
    """
    asked = (c.expression for c in exploration.conditions if c.held and _is_one(c.expression))
    return any(expression.has(FloorDiv) for expression in asked)


def enlarged(plans: Plans) -> Plans:
    """Return the plans with images and sequences so large that strides and pools do not reduce them to 1."""

    def larger(path: str, plan: TensorPlan) -> TensorPlan:
        sizes = plan.spec.sizes
        if not plan.is_guess or len(sizes) < 3:
            return plan
        grown = tuple(_enlarged(s) if i > 1 and isinstance(s, int) else s for i, s in enumerate(sizes))
        return plan if grown == sizes else replace(plan, spec=replace(plan.spec, sizes=grown), detail=FITS)

    return plans.map_tensors(larger)


def _enlarged(size: int) -> int:
    return size if size < 2 else size * next((factor for below, factor in ENLARGEMENTS if size < below), 1)


def tied(exploration: Exploration) -> dict[sympy.Symbol, tuple[sympy.Symbol, ...]]:
    """Return for each symbol those that the code has found equal to it so far: they change together."""
    groups: dict[sympy.Symbol, tuple[sympy.Symbol, ...]] = {symbol: (symbol,) for symbol in exploration.hints}
    for condition in exploration.conditions:
        pair = equal_symbols(condition)
        if pair is not None:
            joined = tuple(dict.fromkeys((*groups[pair[0]], *groups[pair[1]])))
            groups |= dict.fromkeys(joined, joined)
    return groups


def equal_symbols(condition: Condition) -> tuple[sympy.Symbol, sympy.Symbol] | None:
    """Return the two symbols of an equality, alone or in the same sum or multiple: `a - 1 == b - 1`; else None."""
    equality: Any = condition.expression
    if not condition.held or equality.func is not sympy.Eq or len(equality.free_symbols) != 2:
        return None
    terms: dict[Any, Any] = (equality.lhs - equality.rhs).as_coefficients_dict()
    first, second = sorted(terms, key=str) if len(terms) == 2 else (None, None)
    if isinstance(first, sympy.Symbol) and isinstance(second, sympy.Symbol) and terms[first] == -terms[second]:
        return first, second
    return None


def _changes(
    variables: Sequence[tuple[sympy.Symbol, ...]], exploration: Exploration, goal: Condition
) -> Iterator[Sizes]:
    """Yield other sizes for one variable, alone and with the other side of its image, then the same for two of one
    tensor, then for any two.
    """
    candidates = list(dict.fromkeys([*_told(goal, exploration.hints), *range(2, MAX_SCANNED), 1]))
    for variable in variables:
        both = (*variable, *_other_sides(variable, exploration))
        for size in candidates:
            yield dict.fromkeys(variable, size)
            if len(both) > len(variable):
                yield dict.fromkeys(both, size)
    for first, second in combinations(variables, 2):
        if _alike(exploration.dimensions[first[0]], exploration.dimensions[second[0]]):
            for size in candidates:
                yield dict.fromkeys((*first, *second), size)
    if len(variables) > 1:
        yield from _shares(variables, goal)
        for first, second in combinations(variables, 2):
            yield from ({**dict.fromkeys(first, a), **dict.fromkeys(second, b)} for a in GRID for b in GRID)


def _shares(variables: Sequence[tuple[sympy.Symbol, ...]], goal: Condition) -> Iterator[Sizes]:
    """Yield sizes for a sum of sizes that has to be a number: equal ones, and one that is larger by the remainder."""
    share, rest = divmod(_sum_of_sizes(goal.expression), len(variables))
    if share > 0:
        for larger in variables if rest else variables[:1]:
            sizes = {variable: share + (rest if variable == larger else 0) for variable in variables}
            yield {symbol: size for variable, size in sizes.items() for symbol in variable}


def _other_sides(variable: Iterable[sympy.Symbol], exploration: Exploration) -> list[sympy.Symbol]:
    """Return the heights of square images whose widths change, and the widths of those whose heights do."""
    changed, hints = {*variable}, exploration.hints
    pairs = [(a, b) for a, b in _images(exploration) if hints[a] == hints[b]]
    return [b if a in changed else a for a, b in pairs if (a in changed) != (b in changed)]


def _alike(first: Dimension, second: Dimension) -> bool:
    """Return True if two dimensions are height and width of one image."""
    return first.path == second.path and min(first.index, second.index) > 0 and first.rank > 3


def _told(goal: Condition, hints: Mapping[sympy.Symbol, int]) -> Iterator[int]:
    """Yield sizes in the condition itself: its numbers, their quotients, and the values of its sides."""
    numbers = {abs(int(n)) for n in goal.expression.atoms(sympy.Integer)}
    sides = [side.xreplace(dict(hints)) for side in getattr(goal.expression, "args", ())]
    numbers |= {int(side) for side in sides if getattr(side, "is_Integer", False)}
    yield from sorted(n for n in numbers if n > 1)
    yield from (a // b for a in sorted(numbers) for b in sorted(numbers) if b > 1 and a % b == 0 and a > b)


def _unlikeliness(solution: Solution, exploration: Exploration, before: Mapping[str, int]) -> tuple[Any, ...]:
    """Return a measure of how unnatural a solution is: whether images are not square, how many sizes and how early a
    tensor it changes, or numbers of the constructor, whether batches become unlike or like others, how odd and how
    different its sizes are.
    """
    changed = solution.sizes
    sizes = {**before, **{str(s): n for s, n in changed.items()}}
    oblong = sum(sizes[str(a)] != sizes[str(b)] for a, b in _images(exploration) if {a, b} & changed.keys())
    values = {(n, before[str(s)]) for s, n in changed.items()}
    order = list(dict.fromkeys(d.path for d in exploration.dimensions.values()))
    paths = {exploration.dimensions[s].path for s in changed}
    first = 0 if any(path.startswith(INIT) for path in paths) else -1 - min(map(order.index, paths))
    batches = {s: sizes[str(s)] for s, d in exploration.dimensions.items() if d.rank > 1 and d.index == 0}
    shared = {n for s, n in batches.items() if s not in changed}
    alone = sum(-1 if n in shared else 1 for s, n in changed.items() if s in batches)
    odd = sum(_oddness(n) for n, _ in values)
    far = sum(abs(math.log(max(n, 1) / was)) for n, was in values)
    return solution.degenerate, oblong, len(values), first, alone, odd, far


def _cost(
    solution: Solution, path: Iterable[tuple[Condition, Test]], before: Mapping[str, int], unlikely: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Return a sort key for a solution: first the earlier conditions that it breaks, then how unnatural it is."""
    sizes = {**before, **{str(s): n for s, n in solution.sizes.items()}}
    asked = ((c, test) for c, test in path if not solution.sizes.keys().isdisjoint(c.expression.free_symbols))
    broken = [c for c, test in asked if not _is_of_layout(c.expression) and not test(sizes)]
    equalities = sum(isinstance(c.expression, sympy.Eq) == c.held for c in broken)
    degenerate, oblong, *rest = unlikely
    return degenerate, equalities, oblong, len(broken), *rest


def _is_of_layout(expression: sympy.Basic) -> bool:
    """Return True for conditions in the computation of strides: whether a size is 1, and the maximum of two."""
    return sympy.Integer(1) in expression.args or expression.has(Max)


def _images(exploration: Exploration) -> Iterator[tuple[sympy.Symbol, sympy.Symbol]]:
    """Yield height and width of every tensor that may be a batch of images."""
    by_place = {(d.path, d.index): s for s, d in exploration.dimensions.items()}
    for symbol, dimension in exploration.dimensions.items():
        if dimension.rank > 3 and dimension.index == dimension.rank - 2:
            width = by_place.get((dimension.path, dimension.index + 1))
            if width is not None:
                yield symbol, width


def _oddness(size: int) -> int:
    return next((cost for cost, factor in enumerate((64, 32, 16, 8, 4, 2)) if size % factor == 0), 6)


def _test(expression: sympy.Basic, wanted: bool) -> Test:
    """Return a compiled test of whether an expression has that truth: a function of sizes by the names of their
    symbols.
    """
    try:
        code = compile(SymbolPrinter().doprint(expression), "<condition>", "eval")
    except (SyntaxError, NotImplementedError, TypeError):
        return lambda sizes: False

    def test(sizes: Mapping[str, int]) -> bool:
        try:
            return bool(eval(code, _FUNCTIONS, sizes)) == wanted
        except (ArithmeticError, NameError, ValueError, AttributeError, TypeError):
            return False

    return test


def is_readable(goal: Condition, exploration: Exploration) -> bool:
    """Return True if a condition can be computed from sizes, so that the absence of a solution is meaningful."""
    sizes = {str(symbol): size for symbol, size in exploration.hints.items()}
    return _test(goal.expression, goal.held)(sizes)


_FUNCTIONS: dict[str, Any] = {
    "math": math,
    "PythonMod": operator.mod,
    "Mod": operator.mod,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "IntTrueDiv": operator.truediv,
    "Max": max,
    "Min": min,
}
"""The functions in printed conditions."""
