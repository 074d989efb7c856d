"""Split reductions with too few results to keep a GPU busy into partial ones and their reduction.

Reductions that the steps of a loop sum become one. The gradient of a value shared by all steps is a sum over time of
sums over elements: the operand accumulates in the loop over time, element by element, and is reduced once, after it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import fx

from fx_lsp.codegen.graph.edit import insert_call, insert_call_of_value, insert_cast, insert_sum, replace_node
from fx_lsp.codegen.graph.query import is_reduction, is_zero, reduced_dimensions, symbolic_shape
from fx_lsp.codegen.ir.lowerings import aliases_first, operation
from fx_lsp.codegen.ir.node_facts import add_facts, facts_of

TARGET_PROGRAMS = 512
"""The desired number of programs: a few for each multiprocessor of a large GPU."""
COLUMN_BLOCK = 64
"""The fewest adjacent columns that one program sums: narrow blocks take less time than a second pass."""
MIN_PART_ELEMENTS = 32
"""The fewest elements that justify a separate part."""
MAX_ROW = 16384
ASSUMED_SIZE = 1 << 20
"""The assumed value of sizes that are only known at run time."""

_LINEAR = {"aten.mul.Tensor": (0, 1), "aten.where.self": (1,)}
_SUMS = ("aten.sum.default", "aten.sum.dim_IntList")

PROGRAM_ELEMENTS = range(256, 1025)
"""The number of elements that a program may reduce after running through the steps: it holds much of each of them."""

_SPLITTABLE = {"aten.sum": "sum", "aten.mean": "sum", "prims.sum": "sum", "aten.amax": "amax", "aten.amin": "amin"}
aten = torch.ops.aten


def split_reductions(graph: fx.Graph) -> None:
    """Split profitable reductions, in place. For symbolic sizes, the number of parts is that of large ones that are
    reduced; other sizes are those at capture.
    """
    for node in list(graph.nodes):
        is_variance = operation(node).rpartition(".")[0] == "aten.var_mean" and _has_divisor(node)
        if is_variance and _part_count(graph, node) > 1:
            _decompose_variance(graph, node)
    for node in list(graph.nodes):
        if operation(node).rpartition(".")[0] in _SPLITTABLE:
            parts = facts_of(node).parts or _part_count(graph, node)
            if parts > 1:
                _split_reduction(graph, node, parts)
    graph.lint()


def _part_count(graph: fx.Graph, node: fx.Node) -> int:
    """Return the profitable number of parts of a reduction; 1 to leave it."""
    source: Any = node.args[0]
    value = source.meta["val"]
    shape, dims = [_approximate_size(s) for s in value.shape], reduced_dimensions(node)
    symbolic = _is_symbolic(value)
    if 0 in shape:
        return 1
    length = math.prod(shape[d] for d in _longest_run(shape, dims))
    reduced = math.prod(shape[d] for d in dims)
    results = _result_count(value, dims)
    rows = not shape or min(range(len(shape)), key=lambda d: (_approximate_size(value.stride(d)), -d)) in dims
    if rows and results > 1 and (symbolic or reduced <= 2 * MAX_ROW):
        return 1
    columns = math.ceil(results / COLUMN_BLOCK) if symbolic else _column_programs(graph, node, value, dims, results)
    parts = TARGET_PROGRAMS // max(1, results if rows else columns)
    if parts < 2 or reduced < 4 * MIN_PART_ELEMENTS:
        return 1
    parts = min(parts, max(1, reduced // (MAX_ROW // 8 if rows else MIN_PART_ELEMENTS)))
    return min(parts, length) if symbolic else _nearest_divisor(length, parts)


def _approximate_size(size: Any) -> int:
    """Return a size; a symbolic one is large."""
    return size if isinstance(size, int) else ASSUMED_SIZE


def _is_symbolic(value: torch.Tensor) -> bool:
    return any(isinstance(s, torch.SymInt) for s in value.shape)


def _result_count(value: torch.Tensor, dims: Sequence[int]) -> int:
    """Return the number of results of a reduction, with sizes at capture."""
    return math.prod(_size_at_capture(s) for d, s in enumerate(value.shape) if d not in dims)


def _size_at_capture(size: Any) -> int:
    """Return a size as a number, a large one if it has none."""
    return size if isinstance(size, int) else size.node.hint or ASSUMED_SIZE


def _correction(node: fx.Node) -> float:
    """Return by how much the divisor of a variance is less than the number of elements."""
    correction: Any = node.kwargs.get("correction", 1)
    return 1 if correction is None else correction


def _has_divisor(node: fx.Node) -> bool:
    """Return True if the number of elements less the correction of a variance is not negative, whatever the sizes."""
    source: Any = node.args[0]
    return _correction(node) <= 1 or not _is_symbolic(source.meta["val"])


def _column_programs(graph: fx.Graph, node: fx.Node, value: torch.Tensor, dims: Sequence[int], columns: int) -> int:
    """Return the number of programs that sum columns: one for each block of them, one for all if rows are reduced
    together with it.
    """
    for other in graph.nodes:
        if other is node or not is_reduction(other):
            continue
        source: Any = other.args[0]
        shape, along = source.meta["val"].shape, reduced_dimensions(other)
        if source.meta["val"].numel() != value.numel() or not along or along[-1] != len(shape) - 1:
            continue
        if math.prod(shape[d] for d in along) == columns <= MAX_ROW:
            return 1
    return math.ceil(columns / COLUMN_BLOCK)


def _longest_run(shape: Sequence[int], dims: Sequence[int]) -> tuple[int, ...]:
    """Return the adjacent dimensions among `dims` with the most elements."""
    runs: list[list[int]] = []
    for dim in dims:
        if runs and runs[-1][-1] == dim - 1:
            runs[-1].append(dim)
        else:
            runs.append([dim])
    return tuple(max(runs, key=lambda r: math.prod(shape[d] for d in r), default=[]))


def _nearest_divisor(length: int, target: int) -> int:
    """Return the divisor of `length` nearest to `target` from below, or `target` if all of them are far from it."""
    divisor = next((d for d in range(min(target, length), 0, -1) if length % d == 0), 1)
    return divisor if divisor * 8 >= target else min(target, length)


def _split_reduction(graph: fx.Graph, node: fx.Node, parts: int) -> None:
    source: Any = node.args[0]
    value, result = source.meta["val"], node.meta["val"]
    dims = reduced_dimensions(node)
    run = _longest_run(value.shape, dims)
    length = math.prod(value.shape[d] for d in run)
    first, behind = run[0], value.shape[run[-1] + 1 :]
    each = (length + parts - 1) // parts
    moved = [d if d < first else d - len(run) + 2 for d in dims if d not in run]
    inner = sorted([first + 1, *moved])
    kind = _SPLITTABLE[operation(node).rpartition(".")[0]]
    dtype = torch.float32 if result.dtype in (torch.float16, torch.bfloat16) else result.dtype
    with graph.inserting_before(node):
        if isinstance(length, torch.SymInt) or length % parts:
            flat, padded = ([*value.shape[:first], s, *behind] for s in (length, parts * each))
            whole = insert_call_of_value(node, aten.view.default, (source, flat), value.new_empty(flat))
            widths = [*([0, 0] * len(behind)), 0, parts * each - length]
            neutral = _identity(kind, value.dtype)
            pad, pad_args = aten.constant_pad_nd.default, (whole, widths, neutral)
            source = insert_call_of_value(node, pad, pad_args, value.new_empty(padded))
        shape = [*value.shape[:first], parts, each, *behind]
        pieces = insert_call_of_value(node, aten.view.default, (source, shape), value.new_empty(shape))
        name = f"{node.name}_partial"
        if kind == "sum":
            partial = insert_call(node, aten.sum.dim_IntList, (pieces, inner), {"dtype": dtype}, name)
            place = first - sum(d < first for d in moved)
            result_node = insert_call(node, aten.sum.dim_IntList, (partial, [place]), {"dtype": dtype})
        else:
            function = getattr(aten, kind).default
            partial = insert_call(node, function, (pieces, inner), name=name)
            place = first - sum(d < first for d in moved)
            result_node = insert_call(node, function, (partial, [place]))
        if "mean" in operation(node):
            count = math.prod(value.shape[d] for d in dims)
            result_node = insert_call_of_value(node, aten.div.Tensor, (result_node, count), result_node.meta["val"])
        result_node = insert_cast(graph, node, result_node, result.dtype)
        if tuple(result_node.meta["val"].shape) != tuple(result.shape):
            result_node = insert_call(node, aten.reshape.default, (result_node, list(result.shape)))
    replace_node(graph, node, result_node)


def _identity(kind: str, dtype: torch.dtype) -> float:
    """Return the identity of a sum, a maximum or a minimum."""
    if kind == "sum":
        return 0
    least, most = (-math.inf, math.inf) if dtype.is_floating_point else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    return least if kind == "amax" else most


def _decompose_variance(graph: fx.Graph, node: fx.Node) -> None:
    """Compute variance and mean as means: of the elements, then of their squared distances from that."""
    source: Any = node.args[0]
    value = source.meta["val"]
    dims = list(reduced_dimensions(node))
    count = math.prod(value.shape[d] for d in dims)
    less = _correction(node)
    divisor = count - less if _is_symbolic(value) else max(count - less, 0)
    shape = list(node.meta["val"][0].shape)
    with graph.inserting_before(node):
        mean = insert_call(node, aten.mean.dim, (source, dims, True))
        centred = insert_call(node, aten.sub.Tensor, (source, mean))
        squares = insert_call(node, aten.mul.Tensor, (centred, centred))
        total = insert_call(node, aten.sum.dim_IntList, (squares, dims, True))
        variance = insert_call(node, aten.div.Tensor, (total, divisor))
        results = [insert_call(node, aten.reshape.default, (n, shape)) for n in (variance, mean)]
    for user in list(node.users):
        number: Any = user.args[1]
        replace_node(graph, user, results[number])
    graph.erase_node(node)


def plan_parts(node: fx.Node, number: int) -> None:
    """Plan to split a reduction into that many parts, unless it is planned already."""
    if facts_of(node).parts is None:
        add_facts(node, parts=number)


def sum_after_loop(graph: fx.Graph, steps: int) -> None:
    """Replace sums of reductions, about one for each of a number of steps, by the reduction of a sum."""
    for node in reversed(list(graph.nodes)):
        if operation(node) != "aten.add.Tensor" or any(operation(u) == "aten.add.Tensor" for u in node.users):
            continue
        terms, around = _terms(node), list[tuple[fx.Node, int]]()
        while (inner := _common_factor(terms)) is not None:
            terms = inner[0]
            around.append(inner[1:])
        groups: dict[Any, list[tuple[fx.Node, ...]]] = {}
        for negative, term in terms:
            reduced = _reduction_chain(term)
            groups.setdefault((negative, _reduction_kind(reduced)), []).append(reduced or (term,))
        if any(kind is None or len(reductions) < max(2, steps - 1) for (_, kind), reductions in groups.items()):
            continue
        with graph.inserting_before(node):
            total: Any = None
            for (negative, _), reductions in sorted(groups.items(), key=lambda group: group[0][0]):
                part = _reduce_sum(graph, node, reductions)
                if total is None:
                    total = insert_call(node, aten.neg.default, (part,)) if negative else part
                else:
                    total = insert_call(node, aten.sub.Tensor if negative else aten.add.Tensor, (total, part))
            for wrapper, place in reversed(around):
                args = [total if k == place else a for k, a in enumerate(wrapper.args)]
                total = insert_call(node, wrapper.target, tuple(args))
        replace_node(graph, node, total)
    graph.eliminate_dead_code()


Terms: TypeAlias = "list[tuple[bool, fx.Node]]"
"""The terms of a sum, each with whether it is subtracted."""


def _terms(node: fx.Node) -> Terms:
    """Return the terms of a sum that only the sum uses."""
    terms: Terms = []
    stack: list[tuple[bool, Any]] = [(False, node)]
    while stack:
        negative, current = stack.pop()
        name = operation(current) if isinstance(current, fx.Node) else ""
        plain = current is node or (len(current.users) == 1 and not current.kwargs)
        nodes = plain and all(isinstance(a, fx.Node) for a in current.args)
        if nodes and name == "aten.add.Tensor":
            stack.extend((negative, a) for a in reversed(current.args))
        elif nodes and name == "aten.sub.Tensor":
            stack.extend([(not negative, current.args[1]), (negative, current.args[0])])
        elif nodes and name == "aten.neg.default":
            stack.append((not negative, current.args[0]))
        else:
            terms.append((negative, current))
    return terms


def _common_factor(terms: Terms) -> tuple[Terms, fx.Node, int] | None:
    """Return (terms of the other factor, the first term, the position of that factor in it) if all terms are the same
    linear function of something; else None.
    """
    _, first = terms[0]
    for place in _LINEAR.get(operation(first), ()):
        inner_terms: Terms = []
        for negative, term in terms:
            inner = _differing_argument(term, first, place)
            if inner is None:
                break
            parts = _terms(inner) if len(inner.users) == 1 else [(False, inner)]
            inner_terms += [(negative != sign, part) for sign, part in parts]
        else:
            return inner_terms, first, place
    return None


def _differing_argument(term: fx.Node, like: fx.Node, place: int) -> fx.Node | None:
    """Return the argument of a term at `place` if all others are those of `like`; else None."""
    if operation(term) != operation(like) or len(term.users) != 1 or term.kwargs:
        return None
    args: list[Any] = list(term.args)
    if operation(term) == "aten.mul.Tensor" and args[place] is like.args[1 - place]:
        args.reverse()
    if operation(term) == "aten.where.self" and not is_zero(args[2]):
        return None
    if any(a is not b for k, (a, b) in enumerate(zip(args, like.args, strict=True)) if k != place):
        return None
    return args[place] if isinstance(args[place], fx.Node) else None


def _reduction_chain(term: fx.Node) -> tuple[fx.Node, ...] | None:
    """Return a reduction, and the views of it that lead to a term; None for anything else."""
    chain = [term]
    while aliases_first(chain[-1]) and isinstance(chain[-1].args[0], fx.Node):
        chain.append(chain[-1].args[0])
    return tuple(reversed(chain)) if operation(chain[-1]) in _SUMS else None


def _reduction_kind(reduction: tuple[fx.Node, ...] | None) -> Any:
    """Return a key shared by reductions that can be merged."""
    if reduction is None:
        return None
    source: Any = reduction[0].args[0]
    value = source.meta["val"]
    return symbolic_shape(value), value.dtype, tuple((n.target, repr(n.args[1:]), repr(n.kwargs)) for n in reduction)


def _reduce_sum(graph: fx.Graph, node: fx.Node, reductions: list[tuple[fx.Node, ...]]) -> fx.Node:
    """Return the reduction of the sum of operands; half precision is added in single precision."""
    sources: list[Any] = [r[0].args[0] for r in reductions]
    dtype = sources[0].meta["val"].dtype
    with graph.inserting_before(node):
        total = insert_sum(graph, node, sources, dtype)
        parts = _program_count(reductions[0][0])
        add_facts(total, must_materialize=parts == 0)
        for number, step in enumerate(reductions[0]):
            total = insert_call(node, step.target, (total, *step.args[1:]), step.kwargs)
            if number == 0:
                plan_parts(total, parts)
        return insert_cast(graph, node, total, dtype)


def _program_count(reduction: fx.Node) -> int:
    """Return the number of programs for a full reduction that also runs through the steps; 0 if it is separate."""
    source: Any = reduction.args[0]
    size, results = source.meta["val"].numel(), reduction.meta["val"].numel()
    if not isinstance(size, int) or not isinstance(results, int) or results != 1:
        return 0
    if size < PROGRAM_ELEMENTS.stop:
        return 1
    return next((size // each for each in reversed(PROGRAM_ELEMENTS) if size % each == 0), 0)
