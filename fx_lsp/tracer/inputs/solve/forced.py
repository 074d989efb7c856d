"""Find implausible requirements on sizes: two unrelated sizes that have to be equal, or a batch that has to equal a
number of the model.

Every equality that held joins two classes of sizes. Most are intended: a batch is a batch, a width is that of its
layer. One that joins two dimensions of a single tensor, or a number of examples with a constant of the code, is typical
of a mistake on inputs that were searched until it ran. It is a requirement if the target fails without it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import product
from typing import Any

import torch

from fx_lsp.messages.assumptions import ONLY_WHEN_UNMET
from fx_lsp.model import Remark, Span
from fx_lsp.syntax import FunctionNode
from fx_lsp.tracer.compat import FloorDiv, sympy
from fx_lsp.tracer.inputs.evidence.requirements import shape_of
from fx_lsp.tracer.inputs.plan.plans import Plans
from fx_lsp.tracer.inputs.solve.attempt import Attempt, place_of
from fx_lsp.tracer.inputs.solve.path_conditions import Condition, Dimension, Exploration
from fx_lsp.tracer.inputs.solve.solver import Sizes
from fx_lsp.tracer.source.expressions import expression, shown_expression, verb_of

Again = Callable[[Sizes], Attempt]
"""Runs the target with other sizes."""

MAX_DEMANDS = 4
MAX_SIZES, MAX_SIZE = 4, 130
"""The most sizes that satisfy a hardly satisfiable equality, and the size below which they are counted."""


@dataclass(frozen=True)
class Demand:
    """Hold a requirement: `text` describes it at `span`; without it, `symbols` may have another size, and `others` with
    them.

    `condition` is its source. With `is_of_option`, another argument may lift it.
    """

    text: str
    span: Span
    symbols: tuple[sympy.Symbol, ...]
    others: tuple[sympy.Symbol, ...] = ()
    condition: Condition | None = None
    is_of_option: bool = False


def forced(
    exploration: Exploration,
    function: FunctionNode | None,
    again: Again,
    lifted: Callable[[Sizes], bool],
    fixed: Collection[tuple[str, int]] = (),
) -> list[Remark]:
    """Return the requirements of a run on symbols, each on the expression that imposes it.

    `lifted` returns True if the target runs with other sizes and other arguments besides. `fixed` are dimensions, by
    path and index, whose sizes layers determine.
    """
    remarks: dict[Span, Remark] = {}
    lines = exploration.attempt.lines
    for demand in _suspected(exploration, dimension_names(function)):
        places = ((exploration.dimensions[s].path, exploration.dimensions[s].index) for s in demand.symbols)
        if all(place in fixed for place in places) or _is_taken(demand, exploration):
            continue
        if isinstance(expression(demand.span, lines), ast.Compare):  # the code states it
            continue
        if len(remarks) < MAX_DEMANDS and demand.span not in remarks and _is_needed(demand, exploration, again, lifted):
            code, verb = shown_expression(demand.span, lines), verb_of(expression(demand.span, lines))
            pairing = demand.condition.call.pairing if demand.condition and demand.condition.call else None
            related = () if pairing is None else (pairing,)
            remarks[demand.span] = ONLY_WHEN_UNMET.remark(
                demand.span, related=related, code=code, verb=verb, condition=demand.text
            )
    return list(remarks.values())


def _is_taken(demand: Demand, exploration: Exploration) -> bool:
    """Return True if the code converted a dimension to a number: it may meet a value derived from that."""
    return any(symbol in exploration.taken and exploration.dimensions[symbol].rank for symbol in demand.symbols)


def _is_needed(demand: Demand, exploration: Exploration, again: Again, lifted: Callable[[Sizes], bool]) -> bool:
    """Return True if the target fails at the requirement's expression with other sizes: larger, or smaller if larger
    ones do not reach it. Sizes with the same number change as well, unless they do not fit elsewhere.
    """
    for symbols in dict.fromkeys(((*demand.symbols, *demand.others), demand.symbols)):
        for factor in (2, Fraction(1, 2)):
            sizes = {symbol: max(int(exploration.hints[symbol] * factor), 1) for symbol in symbols}
            attempt = again(sizes)
            broadcasts = 1 in sizes.values()
            if attempt.run.error is None or (not broadcasts and attempt.came_past(demand.span)):
                return False
            if place_of(attempt) == demand.span:
                return not (demand.is_of_option and lifted(sizes))
    return False


@dataclass
class _Classes:
    """Classes of equal sizes, by union-find; a constant is a size as well."""

    dimensions: Mapping[sympy.Symbol, Dimension]
    parents: dict[Any, Any] = field(default_factory=dict[Any, Any])

    def root(self, size: Any) -> Any:
        while size in self.parents:
            size = self.parents[size]
        return size

    def join(self, first: Any, second: Any) -> None:
        first, second = self.root(first), self.root(second)
        if first != second:
            low, high = (first, second) if isinstance(second, sympy.Symbol) else (second, first)
            self.parents[high] = low  # a constant stays the root

    def members(self, root: Any) -> list[sympy.Symbol]:
        """Return the symbols of a class."""
        return [symbol for symbol in self.dimensions if self.root(symbol) == root]


def _suspected(exploration: Exploration, names: Mapping[tuple[str, int], str]) -> Iterator[Demand]:
    classes = _Classes(exploration.dimensions)
    joins: list[_Join] = []
    for condition in _single_conditions(exploration):
        sides = _equal_sizes(condition)
        if sides is None:
            if condition.chain:
                demand = (
                    _of_product(condition, exploration, names)
                    or _of_itself(condition, exploration, names)
                    or _of_counts(condition, exploration, names)
                )
                yield from () if demand is None else (demand,)
            continue
        first, second = (classes.root(side) for side in sides)
        if first == second:
            again = (join for join in joins if condition.chain and join.is_of(sides))
            for join in again:  # two classes that are already one show here where else they meet
                elsewhere = replace(join, condition=replace(condition, chain=join.condition.chain))
                yield from _of_classes(elsewhere, exploration, names)
            continue
        if condition.chain:
            join = _Join(condition, (first, second), replace(classes, parents=dict(classes.parents)))
            yield from _of_classes(join, exploration, names)
            joins.append(join)
        classes.join(first, second)


def _single_conditions(exploration: Exploration) -> Iterator[Condition]:
    """Yield the conditions of a run; a conjunction that held is split into its parts."""
    for condition in exploration.conditions:
        if condition.held and isinstance(condition.expression, sympy.And):
            yield from (replace(condition, expression=part) for part in condition.expression.args)
        else:
            yield condition


@dataclass(frozen=True)
class _Join:
    """Hold a condition that joined two classes of sizes, and all classes before it."""

    condition: Condition
    roots: tuple[Any, Any]
    classes: _Classes

    @property
    def constant(self) -> int | None:
        """Return the constant that a class has to equal; None if both classes have symbols alone."""
        return next((int(root) for root in self.roots if not isinstance(root, sympy.Symbol)), None)

    @property
    def members(self) -> tuple[list[sympy.Symbol], list[sympy.Symbol]]:
        """Return the symbols of both classes."""
        first, second = self.roots
        return self.classes.members(first), self.classes.members(second)

    def is_of(self, sides: tuple[Any, Any]) -> bool:
        """Return True if two sizes are of these classes."""
        return {self.classes.root(side) for side in sides} == set(self.roots)


def _of_classes(join: _Join, exploration: Exploration, names: Mapping[Any, str]) -> Iterator[Demand]:
    """Yield the requirement in the join of two classes of sizes, if it is implausible."""
    condition, constant = join.condition, join.constant
    if constant is not None and (constant < 2 or constant in _passed_sizes(exploration.attempt.plans)):
        return
    mine, others = join.members
    demand = _of_one_input(condition, mine, others, exploration, names)
    if demand is not None:
        yield demand
    elif not any(_is_of_state(condition, symbol) for symbol in (*mine, *others)):
        dimensions = exploration.dimensions
        are_numbers = [not any(dimensions[s].rank for s in side) for side in (mine, others) if side]
        if constant is not None or not all(are_numbers):
            numbered = constant is not None or any(are_numbers)
            yield from _of_dimensions(join, numbered, exploration, names)
        if constant is None:
            yield from _of_numbers(join, exploration.dimensions)


def _passed_sizes(plans: Plans) -> set[int | str]:
    """Return the sizes of inputs that the program passes: a batch is as large as the states that belong to it."""
    return {size for _, plan in plans.tensors() if not plan.is_guess for size in plan.spec.sizes}


def _of_numbers(join: _Join, dimensions: Mapping[sympy.Symbol, Dimension]) -> Iterator[Demand]:
    """Yield the requirement of an operation that two numbers of a constructor are equal.

    Unless an operand has both at different places, or tensors are joined, it may belong to an option: `x +
    self.conv(x)` without the layer that otherwise changes the channels of `x`.
    """
    condition = join.condition
    first, second = ([dimensions[s].path for s in side if not dimensions[s].rank] for side in join.members)
    if condition.function is not None and first and second:
        is_of_option = condition.function not in _JOINING and not _crosses(join, True)
        text = f"{first[0]} == {second[0]}"
        yield Demand(text, condition.chain[0], tuple(join.members[0]), (), condition, is_of_option)


def _of_dimensions(join: _Join, numbered: bool, exploration: Exploration, names: Mapping[Any, str]) -> Iterator[Demand]:
    """Yield the requirement that a dimension equals another, or a number of the model (`numbered`)."""
    condition, constant, dimensions = join.condition, join.constant, exploration.dimensions
    mine, others = join.members
    images = condition.function not in _CONTRACTIONS and _are_of_images((*mine, *others), dimensions)
    crosses = _crosses(join, numbered and not images)
    for side, rest in ((mine, others), (others, mine)):
        for symbol in side:
            dimension = dimensions[symbol]
            if dimension.rank and (crosses or (numbered and _counts(condition, symbol, exploration))):
                wanted = name_of(dimensions[rest[0]], names) if constant is None else constant
                together = () if constant is None else tuple(rest)
                text = f"{name_of(dimension, names)} == {wanted}"
                yield Demand(text, condition.chain[0], tuple(side), together, condition)
                return


def _of_one_input(
    condition: Condition,
    mine: Sequence[sympy.Symbol],
    others: Sequence[sympy.Symbol],
    exploration: Exploration,
    names: Mapping[Any, str],
) -> Demand | None:
    """Yield two dimensions of one tensor whose classes are joined; a matrix may well be square, as the single operand
    of an operation, or as all views that it takes.
    """
    bases = {id(tensor if tensor._base is None else tensor._base) for tensor in condition.operands}
    dimensions = exploration.dimensions
    for one, other in product(mine, others):
        low, high = sorted((dimensions[one], dimensions[other]), key=lambda d: d.index)
        is_matrix = low.index == low.rank - 2 and not _is_of_tokens(low, exploration.attempt.plans)
        if low.path == high.path and low.rank > 0 and not is_matrix and len(bases) != 1:
            symbols = tuple(mine if dimensions[one] == high else others)
            return Demand(f"{name_of(high, names)} == {name_of(low, names)}", condition.chain[0], symbols)
    return None


def _counts(condition: Condition, symbol: sympy.Symbol, exploration: Exploration) -> bool:
    """Return True if a dimension that has to equal a number of the model is a count."""
    dimension = exploration.dimensions[symbol]
    meets_a_parameter = _meets_a_parameter(condition, exploration.dimensions)
    is_image = dimension.rank == 3 and meets_a_parameter  # an unbatched image
    if is_image or _is_of_weight(condition, symbol, exploration):
        return False
    counts = _counts_examples(dimension, exploration.attempt.plans)
    return _is_batch(dimension) or (counts and (_has_constant(condition) or not meets_a_parameter))


def _has_constant(condition: Condition) -> bool:
    """Return True for an equality with a constant of the code, which has no symbol."""
    sides = _equal_sizes(condition)
    return sides is not None and not all(isinstance(side, sympy.Symbol) for side in sides)


def _are_of_images(symbols: Iterable[sympy.Symbol], dimensions: Mapping[sympy.Symbol, Dimension]) -> bool:
    """Return True if a height or a width is among the sizes: an image may be square, and of a fixed size."""
    return any(dimensions[symbol].rank > 3 and dimensions[symbol].index > 1 for symbol in symbols)


def _crosses(join: _Join, numbered: bool) -> bool:
    """Return True if an operand has sizes of both classes, at different places, or one twice that has to equal a number
    of the model (`numbered`), and meets no parameter.

    A matrix may well be square, but not with a number of the model as its side.
    """
    condition, classes = join.condition, join.classes
    if _adds_a_parameter(condition, classes.dimensions):
        return False
    contracts = condition.function in _CONTRACTIONS
    for operand in condition.operands:
        sizes = [size.node.expr if isinstance(size, torch.SymInt) else int(size) for size in operand.shape]
        roots = [classes.root(size) for size in sizes]
        places = {(i, j) for i, a in enumerate(roots) for j, b in enumerate(roots) if (a, b) == join.roots}
        if any(numbered or min(place) != len(sizes) - 2 for place in places):
            return True
        is_pair = any(roots.count(root) > 1 for root in join.roots if isinstance(root, sympy.Symbol))
        if numbered and is_pair and not contracts and _depends(operand, classes.dimensions):
            return True
    return False


def _counts_examples(dimension: Dimension, plans: Plans) -> bool:
    """Return True for a dimension whose size is a count: of examples, tokens or labels."""
    spec = next((plan.spec for path, plan in plans.tensors() if path == dimension.path), None)
    if spec is None or not dimension.rank:
        return False
    return spec.dtype.startswith(("i", "u", "b8")) or _is_batch(dimension)


def _is_of_tokens(dimension: Dimension, plans: Plans) -> bool:
    """Return True for a dimension of integers: a batch of tokens is not a matrix."""
    dtypes = {path: plan.spec.dtype for path, plan in plans.tensors()}
    return dtypes.get(dimension.path, "").startswith("i")


def _is_of_weight(condition: Condition, symbol: sympy.Symbol, exploration: Exploration) -> bool:
    """Return True if an operation contracts the rows of its second matrix, which are neither examples nor tokens."""
    if len(condition.operands) < 2 or condition.operands[1].dim() < 2:
        return False
    rows = condition.operands[1].shape[-2]
    is_counted = _is_of_tokens(exploration.dimensions[symbol], exploration.attempt.plans)
    return isinstance(rows, torch.SymInt) and rows.node.expr == symbol and not is_counted


def _is_of_state(condition: Condition, symbol: sympy.Symbol) -> bool:
    """Return True if an operand begins with that size, and a tensor of the model with the number: a state for a fixed
    batch.
    """
    own = [o for o in condition.operands if not any(isinstance(size, torch.SymInt) for size in o.shape)]
    firsts = [o.shape[0] for o in condition.operands if o.dim() > 1]
    starts = any(isinstance(size, torch.SymInt) and size.node.expr == symbol for size in firsts)
    return starts and any(o.dim() > 2 and o.shape[0] in _constants(condition) for o in own)


def _constants(condition: Condition) -> list[int]:
    """Return the constants of the code among the two sizes of an equality."""
    return [side for side in _equal_sizes(condition) or () if isinstance(side, int)]


def _adds_a_parameter(condition: Condition, dimensions: Mapping[sympy.Symbol, Dimension]) -> bool:
    """Return True if an element-wise operation takes a matrix that does not depend on the inputs: `x + positions`."""
    matrices = [operand for operand in condition.operands if operand.dim() > 1 or _depends(operand, dimensions)]
    return condition.function not in _CONTRACTIONS and any(not _depends(o, dimensions) for o in matrices)


def _meets_a_parameter(condition: Condition, dimensions: Mapping[sympy.Symbol, Dimension]) -> bool:
    """Return True if an operand depends on no input."""
    return any(not _depends(operand, dimensions) for operand in condition.operands)


def _depends(tensor: torch.Tensor, dimensions: Mapping[sympy.Symbol, Dimension]) -> bool:
    """Return True if a size of a tensor depends on one of an input."""
    sizes = (size.node.expr for size in tensor.shape if isinstance(size, torch.SymInt))
    return any(symbol in dimensions and dimensions[symbol].rank for size in sizes for symbol in size.free_symbols)


_JOINING = frozenset({torch.cat, torch.concat, torch.concatenate, torch.stack})
_CONTRACTIONS = frozenset(
    {
        torch.matmul,
        torch.mm,
        torch.bmm,
        torch.einsum,
        torch.Tensor.matmul,
        torch.Tensor.__matmul__,
        torch.Tensor.__rmatmul__,
        torch.Tensor.mm,
        torch.Tensor.bmm,
        torch.nn.functional.linear,
        torch.conv1d,
        torch.conv2d,
        torch.conv3d,
    }
)


def _of_product(condition: Condition, exploration: Exploration, names: Mapping[Any, str]) -> Demand | None:
    """Yield the requirement that a dimension of a tensor is the product of others: a matrix times itself."""
    expression: Any = condition.expression
    if not condition.held or expression.func is not sympy.Eq:
        return None
    sides = sorted(expression.args, key=lambda side: len(side.free_symbols))
    single, several = sides
    symbols = [s for s in (single, *several.args) if isinstance(s, sympy.Symbol) and s in exploration.dimensions]
    if several.func is not sympy.Mul or len(symbols) != 1 + len(several.args):
        return None
    dimensions = [exploration.dimensions[symbol] for symbol in symbols]
    if len({dimension.path for dimension in dimensions}) > 1 or not dimensions[0].rank:
        return None
    others = sorted(dimensions[1:], key=lambda dimension: dimension.index)
    text = f"{name_of(dimensions[0], names)} == {' * '.join(name_of(d, names) for d in others)}"
    return Demand(text, condition.chain[0], (single,))


def _of_itself(condition: Condition, exploration: Exploration, names: Mapping[Any, str]) -> Demand | None:
    """Return the requirement that restricts a dimension to few numbers by itself, or None: `n - n // 2` rows meet `n //
    4`, or `n // 2` broadcasts because it is 1. Parity and the like hold for many sizes.
    """
    expression: Any = condition.expression
    symbols = [symbol for symbol in exploration.dimensions if symbol in expression.free_symbols]
    if not condition.held or expression.func is not sympy.Eq or len(symbols) != 1:
        return None
    (symbol,), dimension = symbols, exploration.dimensions[symbols[0]]
    asks_itself = all(symbol in side.free_symbols for side in expression.args)
    vanishes = expression.has(FloorDiv) and sympy.S.One in expression.args
    if not dimension.rank or not (asks_itself or vanishes):
        return None
    holds = sum(expression.xreplace({symbol: sympy.Integer(size)}) == sympy.true for size in range(2, MAX_SIZE))
    if holds > MAX_SIZES:
        return None
    text = f"{name_of(dimension, names)} == {exploration.hints[symbol]}"
    return Demand(text, condition.chain[0], (symbol,))


def _of_counts(condition: Condition, exploration: Exploration, names: Mapping[Any, str]) -> Demand | None:
    """Return the requirement that counts of examples sum to a constant, or are multiples of each other;
    else None.
    """
    expression: Any = condition.expression
    involved = [symbol for symbol in exploration.dimensions if symbol in expression.free_symbols]
    if not condition.held or expression.func is not sympy.Eq or not involved:
        return None
    has_number = any(abs(int(number)) > 1 for number in expression.atoms(sympy.Integer))
    if not has_number or _holds_of_equal_counts(expression, involved):
        return None
    dimensions = [exploration.dimensions[symbol] for symbol in involved]
    if len({dimension.path for dimension in dimensions}) > 1:
        return _of_counts_of_several(condition, involved, exploration, names)
    batches = [s for s, dimension in zip(involved, dimensions, strict=True) if _is_batch(dimension)]
    ordered = sorted(involved, key=lambda symbol: exploration.dimensions[symbol].index)
    shape = tuple(exploration.hints[symbol] for symbol in ordered)
    if any(plan.spec.sizes == shape for _, plan in exploration.attempt.plans.tensors()):
        return None  # a given input has as many elements, and that shape
    if len(batches) != 1 or not any(side.is_Integer for side in expression.args):
        return None
    text = f"{name_of(exploration.dimensions[batches[0]], names)} == {exploration.hints[batches[0]]}"
    return Demand(text, condition.chain[0], (batches[0],))


def _of_counts_of_several(
    condition: Condition, involved: Sequence[sympy.Symbol], exploration: Exploration, names: Mapping[Any, str]
) -> Demand | None:
    """Return the requirement on the counts of several inputs, if the equality contains nothing else."""
    dimensions, plans = exploration.dimensions, exploration.attempt.plans
    if not all(_counts_examples(dimensions[symbol], plans) for symbol in involved):
        return None
    symbol = next((s for s in involved if _is_batch(dimensions[s])), involved[0])
    others = ", ".join(name_of(dimensions[s], names) for s in involved if s != symbol)
    text = f"{name_of(dimensions[symbol], names)} == {exploration.hints[symbol]} for this {others}"
    return Demand(text, condition.chain[0], (symbol,))


def _is_batch(dimension: Dimension) -> bool:
    """Return True for the first of several dimensions."""
    return dimension.rank > 1 and dimension.index == 0


def _holds_of_equal_counts(expression: sympy.Basic, symbols: Sequence[sympy.Symbol]) -> bool:
    """Return True if an equality only compares counts: it holds whenever they are equal."""
    try:
        same = [expression.xreplace(dict.fromkeys(symbols, sympy.Integer(count))) for count in (4, 12, 32)]
    except ZeroDivisionError:
        return False
    return all(answer == sympy.true for answer in same)


def _equal_sizes(condition: Condition) -> tuple[Any, Any] | None:
    """Return the two sizes of an equality, alone or in the same sum or multiple: `a - 1 == b - 1`, `a + 2 == 66`;
    constants are integers. None for any other condition.
    """
    equality: Any = condition.expression
    if not condition.held or equality.func is not sympy.Eq:
        return None
    terms: dict[Any, Any] = (equality.lhs - equality.rhs).as_coefficients_dict()
    symbols = [term for term in terms if isinstance(term, sympy.Symbol)]
    rest = [term for term in terms if term not in symbols and terms[term] != 0]
    if len(symbols) == 2 and not rest and terms[symbols[0]] == -terms[symbols[1]]:
        return symbols[0], symbols[1]
    if len(symbols) == 1 and rest in ([], [sympy.S.One]):
        number = -terms.get(sympy.S.One, sympy.S.Zero) / terms[symbols[0]]
        return (symbols[0], int(number)) if number.is_Integer and int(number) > 0 else None
    return None


def name_of(dimension: Dimension, names: Mapping[tuple[str, int], str]) -> str:
    """Return the code's name of a dimension, or its place in its tensor: `T`, `x.shape[1]`, `heads`."""
    if not dimension.rank:
        return dimension.path
    place = names.get((dimension.path, dimension.index)) or names.get(
        (dimension.path, dimension.index - dimension.rank)
    )
    return place or f"{dimension.path}.shape[{dimension.index}]"


def dimension_names(function: FunctionNode | None) -> dict[tuple[str, int], str]:
    """Return a function's names for sizes of its parameters: `B, T, C = x.shape`, `n = x.size(1)`."""
    names: dict[tuple[str, int], str] = {}
    for node in ast.walk(function) if function is not None else ():
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            names |= {place: name for place, name in _named(node.targets[0], node.value) if place not in names}
    return names


def _named(target: ast.expr, value: ast.expr) -> Iterable[tuple[tuple[str, int], str]]:
    tensor = shape_of(value)
    if isinstance(target, ast.Tuple) and tensor is not None:
        yield from (
            ((tensor, index), element.id)
            for index, element in enumerate(target.elts)
            if isinstance(element, ast.Name) and element.id != "_"
        )
    elif isinstance(target, ast.Name) and isinstance(value, ast.Subscript):
        tensor = shape_of(value.value)
        if tensor is not None and isinstance(value.slice, ast.Constant) and isinstance(value.slice.value, int):
            yield (tensor, value.slice.value), target.id
