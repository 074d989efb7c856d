"""Make the body of a step the body of a function: it ends with the last `backward`, and returns the results."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from fx_lsp.syntax import DEFINITIONS, blocks_of
from fx_lsp.training.results import calls_backward, loss_of, results_of, results_read_by
from fx_lsp.training.statements import LOOPS, bound_names, header_names, names_in
from fx_lsp.training.step import BACKWARD

_LEAVING = (ast.Return, ast.Raise, ast.Global, ast.Nonlocal)
_OF_LOOP = (ast.Break, ast.Continue)
_CHANGING = frozenset({"train", "eval", "append", "extend", "insert", "update", "add", "pop", "remove", "setdefault"})
"""Methods that change an object, besides those whose names end in an underscore."""


def returning(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return a body up to its last `backward`, or without statements that read values, that returns its results."""
    losses: list[ast.expr] = []
    cut = _cut(body, losses)
    returns = isinstance(body[-1], ast.Return) and body[-1].value is not None and not losses
    if not losses:
        cut = [node for node in body if not _is_dropped(node, body)]
    if returns:
        return needed(cut, set())
    results = losses or results_of(body)
    value = results[0] if len(results) == 1 else ast.Tuple(results, ast.Load())
    return needed([*cut, ast.copy_location(ast.Return(value), results[-1] if results else body[-1])], set())


def _is_dropped(node: ast.stmt, body: Sequence[ast.stmt]) -> bool:
    """Return True if a statement only reads values of tensors, and no other statement reads the names that it binds."""
    read = names_in(*(other for other in body if other is not node), contexts=ast.Load)
    is_read = not header_names(node, ast.Store).isdisjoint(read)
    return bool(results_read_by(node, body)) and (isinstance(node, ast.Expr) or not is_read)


def _cut(block: Sequence[ast.stmt], losses: list[ast.expr]) -> list[ast.stmt]:
    """Return the statements of a block up to its last `backward`, each `backward` replaced by its loss, added to
    `losses`.

    If only one branch calls `backward`, that branch is kept.
    """
    ends = [index for index, node in enumerate(block) if calls_backward(node)]
    block = block[: ends[-1] + 1] if ends else ()
    cut: list[ast.stmt] = []
    for index, node in enumerate(block):
        loss = loss_of(node)
        if loss is not None:
            loss = _checked(node, loss)
            if names_in(loss) & bound_names(block[index + 1 :]):
                hidden = f"loss {len(losses)}"
                cut.append(ast.copy_location(ast.Assign([ast.Name(hidden, ast.Store())], loss), node))
                loss = ast.copy_location(ast.Name(hidden, ast.Load()), loss)
            losses.append(loss)
            cut += _copies_after_backward(block, index)
        elif not calls_backward(node):
            cut.append(node)
        elif isinstance(node, ast.If):
            branches = [branch for branch in (node.body, node.orelse) if calls_backward(*branch)]
            direct = (branch for branch in branches if any(loss_of(inner) is not None for inner in branch))
            cut += _cut(next(direct, branches[0]), losses)
        else:
            inner = next(inner for inner in blocks_of(node) if calls_backward(*inner))
            inner[:] = _cut(inner, losses) or [ast.copy_location(ast.Pass(), node)]
            if isinstance(node, LOOPS):
                inner.append(ast.copy_location(ast.Break(), node))
            cut.append(node)
    return cut


def _checked(node: ast.stmt, loss: ast.expr) -> ast.expr:
    """Return a loss, passed to `BACKWARD` if `backward` is called on it without a gradient."""
    match node:
        case ast.Expr(ast.Call(ast.Attribute(receiver), [], keywords) as call) if receiver is loss:
            if all(keyword.arg != "gradient" for keyword in keywords):
                function = ast.copy_location(ast.Name(BACKWARD, ast.Load()), call)
                return ast.copy_location(ast.Call(function, [loss], []), call)
        case _:
            pass
    return loss


def _copies_after_backward(block: Sequence[ast.stmt], index: int) -> Iterator[ast.stmt]:
    """Yield copies of the variables, `label` of `label.fill_(0)`, that a block changes in place after a `backward`.

    The program computes the gradients there; here all losses are differentiated at the end.
    """
    later: dict[str, ast.stmt] = {}
    for node in block[index + 1 :]:
        match node:
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), method))) if method.endswith("_"):
                later[name] = node
            case _:
                pass
    for name in sorted(later.keys() & bound_names(block[:index])):
        copied = ast.Call(ast.Attribute(ast.Name(name, ast.Load()), "clone", ast.Load()), [], [])
        yield ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], copied), later[name])


def needed(block: Sequence[ast.stmt], names: set[str], is_in_loop: bool = False) -> list[ast.stmt]:
    """Return the statements of a block that bind or change one of some names, and those that they need; each name that
    they read is added to `names`.

    What leaves the loop that a step was is left out: the step runs to its end.
    """
    kept: list[ast.stmt] = []
    for node in reversed(block):
        if _is_needed(node, names, is_in_loop):
            kept.append(node)
    return kept[::-1]


def _is_needed(node: ast.stmt, names: set[str], is_in_loop: bool) -> bool:
    inner = blocks_of(node) if not isinstance(node, DEFINITIONS) else []
    if inner:
        is_in_loop |= isinstance(node, LOOPS)
        rests = [needed(part, names, is_in_loop) for part in reversed(inner)][::-1]
        if isinstance(node, LOOPS):  # an iteration may need what an earlier one binds
            rests = [needed(part, names, is_in_loop) for part in reversed(inner)][::-1]
        if not any(rests):
            return False
        for part, rest in zip(inner, rests, strict=True):
            part[:] = rest or [ast.copy_location(ast.Pass(), part[0])]
        names |= header_names(node, ast.Load)
        return True
    if isinstance(node, _OF_LOOP):
        return is_in_loop
    if not isinstance(node, _LEAVING) and names.isdisjoint(_changed_by(node)):
        return False
    names |= names_in(node, contexts=ast.Load)
    return True


def _changed_by(node: ast.stmt) -> set[str]:
    """Return the names that a statement binds, and those of the objects that it changes."""
    names = names_in(node, contexts=(ast.Store, ast.Del)) if not isinstance(node, DEFINITIONS) else {node.name}
    for part in ast.walk(node):
        if isinstance(part, (ast.Attribute, ast.Subscript)) and isinstance(part.ctx, (ast.Store, ast.Del)):
            names |= _root_of(part)
    match node:
        case ast.Expr(ast.Call(ast.Attribute(receiver, method))) if method.endswith("_") or method in _CHANGING:
            names |= _root_of(receiver)
        case _:
            pass
    return names


def _root_of(node: ast.expr) -> set[str]:
    """Return `model` of `model.blocks[0]`."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return {node.id} if isinstance(node, ast.Name) else set()
