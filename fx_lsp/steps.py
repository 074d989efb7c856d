"""Training and evaluation steps: the loops of a file that go through batches, and the function that a body amounts to.

A step is also a function that calls `backward` itself. Standard library only."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeGuard

from fx_lsp.syntax import parse

Region: TypeAlias = "ast.For | ast.While | ast.FunctionDef"
BATCHES = "batches"
"""The attribute of a step's function that gives what its loop goes through, by the names of its parameters."""
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_LOOPS = (ast.For, ast.While)
_BACKWARD = frozenset({"backward", "manual_backward"})
_COUNTS = frozenset({"range", "trange", "count"})
_VALUES = frozenset({"item", "tolist", "numpy"})
_TO_NUMBERS = frozenset({"float", "int"})
_ON_THE_WAY = frozenset({"cpu", "detach", "data"})
_MODES = frozenset({"no_grad", "inference_mode", "enable_grad", "set_grad_enabled", "autocast"})
_LOSS = re.compile(r"loss|criterion|cross_entropy|objective", re.IGNORECASE)


@dataclass(frozen=True)
class Step:
    """A step by its qualified name: `train.step` for the first loop of `train`, `train.step_2` for the next.

    `path` are the statements around its `region`, the outermost first.
    """

    name: str
    region: Region
    path: tuple[ast.stmt, ...]


def steps_of(tree: ast.Module) -> list[Step]:
    """The steps of a file in the order of its text."""
    regions: list[tuple[str, Region, tuple[ast.stmt, ...]]] = []
    _collect(tree.body, "", (), regions)
    defined = {node.name for node in ast.walk(tree) if isinstance(node, _DEFINITIONS)}
    steps: list[Step] = []
    for scope, region, path in regions:
        name = scope if isinstance(region, ast.FunctionDef) else _free_name(scope, defined, steps)
        steps.append(Step(name, region, path))
    return steps


def _free_name(scope: str, defined: set[str], steps: Sequence[Step]) -> str:
    known = {step.name for step in steps}
    names = (f"step_{number}" if number > 1 else "step" for number in range(1, len(steps) + len(defined) + 2))
    free = (f"{scope}.{name}".lstrip(".") for name in names if name not in defined)
    return next(name for name in free if name not in known)


def _collect(
    block: Sequence[ast.stmt],
    scope: str,
    path: tuple[ast.stmt, ...],
    regions: list[tuple[str, Region, tuple[ast.stmt, ...]]],
) -> None:
    for node in block:
        if isinstance(node, _DEFINITIONS):
            if node.name.startswith(("test_", "Test")):
                continue
            name = f"{scope}.{node.name}".lstrip(".")
            if isinstance(node, ast.FunctionDef) and _is_direct(node) and _computes(node):
                regions.append((name, node, path))
            else:
                _collect(node.body, name, (*path, node), regions)
        elif isinstance(node, _LOOPS) and (_trains(node) or _evaluates(node)):
            regions.append((scope, node, path))
        else:
            for inner in blocks_of(node):
                _collect(inner, scope, (*path, node), regions)


def _trains(node: ast.For | ast.While) -> bool:
    """Whether a loop is that of training steps: the innermost over data around a call of `backward`, or of all."""
    inner = [part for part in _below(node) if isinstance(part, _LOOPS)]
    if goes_through_data(node):
        deeper = [part for part in inner if goes_through_data(part) and _has_backward(part)]
        return _has_backward(node) and not deeper
    return _is_direct(node)


def goes_through_data(node: ast.stmt) -> bool:
    """Whether a loop is over something else than numbers."""
    return isinstance(node, ast.For) and not _is_counted(node.iter)


def _is_counted(node: ast.expr) -> bool:
    while isinstance(node, ast.Call) and node.args:
        if _last(node.func) in _COUNTS:
            return True
        node = node.args[0]
    return isinstance(node, (ast.List, ast.Tuple)) or (isinstance(node, ast.Call) and _last(node.func) in _COUNTS)


def _below(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below one, without those in functions and classes."""
    stack: list[ast.AST] = list(ast.iter_child_nodes(node))
    while stack:
        part = stack.pop()
        yield part
        if not isinstance(part, (*_DEFINITIONS, ast.Lambda)):
            stack.extend(ast.iter_child_nodes(part))


def _has_backward(node: ast.AST) -> bool:
    return any(isinstance(part, ast.stmt) and loss_of(part) is not None for part in _below(node))


def _is_direct(node: ast.AST) -> bool:
    """Whether something calls `backward` itself, and not only in a loop inside of it."""
    stack: list[ast.AST] = list(ast.iter_child_nodes(node))
    while stack:
        part = stack.pop()
        if isinstance(part, ast.stmt) and loss_of(part) is not None:
            return True
        if not isinstance(part, (*_DEFINITIONS, ast.Lambda, *_LOOPS)):
            stack.extend(ast.iter_child_nodes(part))
    return False


def _computes(node: ast.FunctionDef) -> bool:
    """Whether a function that calls `backward` makes what it calls it on."""
    losses = [loss for part in _below(node) if isinstance(part, ast.stmt) and (loss := loss_of(part)) is not None]
    stored = {part.id for part in _below(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    read = {part.id for loss in losses for part in ast.walk(loss) if isinstance(part, ast.Name)}
    return node.name != "backward" and bool(read & stored or any(isinstance(loss, ast.Call) for loss in losses))


def _evaluates(node: ast.For | ast.While) -> bool:
    """Whether a loop gives batches to a model, or to a loss, and takes values from what comes of it."""
    if not isinstance(node, ast.For) or not goes_through_data(node) or _has_backward(node):
        return False
    derived = {part.id for part in ast.walk(node.target) if isinstance(part, ast.Name)}
    calls: list[ast.Call] = []
    for statement in (part for block in [node.body] for part in _statements(block)):
        parts = [part for part in _header(statement) if isinstance(part, ast.Name)]
        if any(part.id in derived for part in parts if isinstance(part.ctx, ast.Load)):
            derived |= {part.id for part in parts if isinstance(part.ctx, ast.Store)}
        calls += [part for part in _header(statement) if isinstance(part, ast.Call)]
    own = {part.id for part in ast.walk(node.target) if isinstance(part, ast.Name)}
    applied = [call for call in calls if _names(*call.args, *(k.value for k in call.keywords)) & derived]
    models = [call for call in applied if _is_model(call.func) and _names(call.func).isdisjoint(own)]
    losses = [call for call in applied if _LOSS.search(_last(call.func))]
    return bool(models and (losses or results_of(node.body)))


def _is_model(function: ast.expr) -> bool:
    """Whether a function reads as a module that is called: `model`, `self.net`, `models[0]`."""
    name = _last(function)
    if isinstance(function, ast.Name):
        return bool(_MODEL.search(name))
    return isinstance(function, ast.Attribute) and _names(function) == {"self"} and bool(_MODEL.search(name))


_MODEL = re.compile(
    r"(^|_)(model|net\w*|network|module|encoder|decoder|generator|discriminator|classifier)\w{0,2}$", re.IGNORECASE
)


def _statements(block: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for node in block:
        yield node
        for inner in blocks_of(node) if not isinstance(node, _DEFINITIONS) else ():
            yield from _statements(inner)


def _header(node: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement that are not in a statement inside of it."""
    stack: list[ast.AST] = list(ast.iter_child_nodes(node))
    while stack:
        part = stack.pop()
        if not isinstance(part, ast.stmt):
            yield part
            stack.extend(ast.iter_child_nodes(part))


def _names(*nodes: ast.AST) -> set[str]:
    return {part.id for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name)}


def _last(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def blocks_of(node: ast.stmt) -> list[list[ast.stmt]]:
    """The blocks of a compound statement in their order."""
    handlers = [handler.body for handler in getattr(node, "handlers", ())]
    cases = [case.body for case in getattr(node, "cases", ())]
    blocks = [getattr(node, "body", []), *handlers, *cases, getattr(node, "orelse", []), getattr(node, "finalbody", [])]
    return [block for block in blocks if block]


def loss_of(node: ast.stmt) -> ast.expr | None:
    """What a statement calls `backward` on: `loss` of `scaler.scale(loss).backward()` and `self.manual_backward(loss)`.

    None for any other statement.
    """
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr not in _BACKWARD:
        return None
    receiver = call.func.value
    plain = len(call.args) == 1 and isinstance(receiver, ast.Name) and isinstance(call.args[0], ast.Name)
    if call.func.attr == "manual_backward" or (plain and not call.keywords and _LOSS.search(_last(call.args[0]))):
        return call.args[0] if call.args else None
    scaled = isinstance(receiver, ast.Call) and _last(receiver.func) == "scale" and len(receiver.args) == 1
    return receiver.args[0] if scaled and isinstance(receiver, ast.Call) else receiver


def results_of(body: Sequence[ast.stmt]) -> list[ast.expr]:
    """What a body without `backward` computes: what it adds up, collects or takes the values of."""
    results = [result for node in _straight(body) for result in _taken(node, body)]
    return list({ast.dump(result): result for result in results if _names(result)}.values())


def _straight(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a body that run once, whatever happens."""
    for node in body:
        yield from _straight(node.body) if isinstance(node, (ast.With, ast.AsyncWith)) else [node]


def _taken(node: ast.stmt, body: Sequence[ast.stmt]) -> list[ast.expr]:
    """The results that a statement takes the values of, adds to what is outside of the body, or appends to a list."""
    if isinstance(node, ast.AugAssign):
        inside = _bound_names([part for part in body if part is not node])
        if isinstance(node.op, ast.Add) and _names(node.target).isdisjoint(inside):
            return _tensors_in(node.value) or [node.value]
    elif isinstance(node, (ast.Assign, ast.Expr)):
        appended = node.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else None
        if appended is not None and _last(appended.func) == "append" and len(appended.args) == 1:
            return _tensors_in(appended.args[0]) or [appended.args[0]]
        return _tensors_in(node.value)
    return []


def _bound_names(body: Sequence[ast.stmt]) -> set[str]:
    """The names that a body assigns, other than by adding to them."""
    assigning = (node for node in _statements(body) if not isinstance(node, ast.AugAssign))
    parts = (part for node in assigning for part in _header(node) if isinstance(part, ast.Name))
    return {part.id for part in parts if isinstance(part.ctx, ast.Store)}


def _tensors_in(node: ast.expr) -> list[ast.expr]:
    """The expressions of which an expression takes the values: `loss` in `loss.item() * len(x)`."""
    if isinstance(node, ast.Call):
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in _VALUES and not node.args:
            return [_without_moves(function.value)]
        if isinstance(function, ast.Name) and function.id in _TO_NUMBERS and len(node.args) == 1:
            return _tensors_in(node.args[0]) or [node.args[0]]
    children = (child for child in ast.iter_child_nodes(node) if isinstance(child, (ast.expr, ast.keyword)))
    return [
        tensor for child in children for tensor in _tensors_in(child.value if isinstance(child, ast.keyword) else child)
    ]


def _without_moves(node: ast.expr) -> ast.expr:
    """`x` of `x.detach().cpu()` and `x.data`."""
    while True:
        inner = node.func if isinstance(node, ast.Call) and not node.args else node
        if not isinstance(inner, ast.Attribute) or inner.attr not in _ON_THE_WAY:
            return node
        node = inner.value


def wanted_by(region: Region) -> Callable[[ast.stmt], set[str]]:
    """Tell of each statement in a step the names that its result needs, if it has one."""
    trains = _has_backward(region)

    def names(node: ast.stmt) -> set[str]:
        loss = loss_of(node)
        results = [loss] if loss is not None else [] if trains else _taken(node, region.body)
        return _names(*results)

    return names


def as_functions(tree: ast.Module, line: int, name: str) -> ast.Module:
    """A copy of a module in which the step at `line` is a function that returns its losses.

    The function is named as the last part of `name`; what is around it returns it instead of running it.
    """
    tree = copy.deepcopy(tree)
    path = _path_to(tree.body, line)
    if path is None:
        return tree
    *around, region = path
    block = _block_with(tree.body, around, region)
    index = block.index(region)
    if isinstance(region, ast.FunctionDef):
        region.body = _returning(region.body)
        made: list[ast.stmt] = [region]
    else:
        assert isinstance(region, _LOOPS)
        made = _function_of(region, around, name.rpartition(".")[2])
    outer = [position for position, node in enumerate(around) if isinstance(node, ast.FunctionDef)]
    if outer:
        returned = ast.Return(ast.Name(name.rpartition(".")[2], ast.Load()))
        made.append(ast.copy_location(returned, region))
    elif isinstance(region, ast.FunctionDef):
        made += block[index + 1 :]
    elif any(isinstance(node, _LOOPS) for node in around):
        made.append(ast.copy_location(ast.Break(), region))
    block[index:] = made
    for position in outer[1:]:
        _return_call(_block_with(tree.body, around[:position], around[position]), around[position])
    return ast.fix_missing_locations(tree)


def _return_call(block: list[ast.stmt], function: ast.stmt) -> None:
    """Have a block return what a function in it returns, of which nothing reads the parameters."""
    assert isinstance(function, ast.FunctionDef)
    arguments = function.args
    required = len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults)
    call = ast.Call(ast.Name(function.name, ast.Load()), [ast.Constant(None) for _ in range(required)], [])
    block[block.index(function) + 1 :] = [ast.copy_location(ast.Return(call), function)]


def _path_to(body: Sequence[ast.stmt], line: int) -> tuple[ast.stmt, ...] | None:
    """The statements that lead to the loop or function that begins at a line, itself the last."""
    for node in body:
        if not node.lineno <= line <= (node.end_lineno or node.lineno):
            continue
        if node.lineno == line and isinstance(node, (*_LOOPS, ast.FunctionDef)):
            return (node,)
        for block in blocks_of(node):
            inner = _path_to(block, line)
            if inner is not None:
                return (node, *inner)
    return None


def _block_with(body: list[ast.stmt], around: Sequence[ast.stmt], node: ast.stmt) -> list[ast.stmt]:
    blocks = blocks_of(around[-1]) if around else [body]
    return next(block for block in blocks if node in block)


def _function_of(region: ast.For | ast.While, around: Sequence[ast.stmt], name: str) -> list[ast.stmt]:
    """The function that the body of a loop amounts to, and the statement that says what it is called with."""
    body = _returning(region.body)
    read = {part.id for node in body for part in ast.walk(node) if isinstance(part, ast.Name) and not _is_store(part)}
    heads = [region.target] if isinstance(region, ast.For) else []
    targets = [part.id for head in heads for part in ast.walk(head) if isinstance(part, ast.Name)]
    batch = [target for target in dict.fromkeys(targets) if target in read]
    counted = _counted_in(region)
    carried = _carried(body, targets, around, region)
    parameters = [target for target in batch if target not in counted]
    (function,) = parse("def _(): pass").body
    assert isinstance(function, ast.FunctionDef)
    function.name, function.body = name, _tried(body, around)
    function.args.args = [ast.arg(parameter) for parameter in parameters]
    defaults: list[ast.expr] = [ast.Constant(0) for target in batch if target in counted]
    defaults += [ast.Name(variable, ast.Load()) for variable in carried]
    function.args.kwonlyargs = [ast.arg(target) for target in (*(t for t in batch if t in counted), *carried)]
    function.args.kw_defaults = list(defaults)
    for part in (function, *ast.walk(function.args)):
        ast.copy_location(part, region.target if isinstance(region, ast.For) else region)
    function.lineno, function.col_offset = region.lineno, region.col_offset
    if not isinstance(region, ast.For):
        return [function]
    keys: list[ast.expr | None] = [ast.Constant(parameter) for parameter in parameters]
    batches = ast.Dict(keys, [ast.Name(parameter, ast.Load()) for parameter in parameters])
    several = ast.GeneratorExp(batches, [ast.comprehension(region.target, region.iter, [], 0)])
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    attribute = ast.Attribute(ast.Name(name, ast.Load()), BATCHES, ast.Store())
    told = ast.Assign([attribute], ast.Lambda(nothing, several))
    return [function, ast.copy_location(told, region)]


def _counted_in(region: ast.For | ast.While) -> set[str]:
    """The variables of a loop that are numbers: of `range`, and the first of `enumerate`."""
    if not isinstance(region, ast.For):
        return set()
    if not goes_through_data(region):
        return _names(region.target)
    node = region.iter
    while isinstance(node, ast.Call) and node.args:
        if _last(node.func) == "enumerate" and isinstance(region.target, ast.Tuple):
            return _names(region.target.elts[0])
        node = node.args[0]
    return set()


def _carried(body: Sequence[ast.stmt], targets: Sequence[str], around: Sequence[ast.stmt], region: Region) -> list[str]:
    """The variables that a body changes and that it reads before: what goes from one turn to the next."""
    bound: set[str] = set(targets)
    early: dict[str, None] = {}
    for node in body:
        early.update(dict.fromkeys(name for name in _read_first(node) if name not in bound))
        bound |= {part.id for part in _header(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
        if isinstance(node, ast.With):
            bound |= _bound_names(node.body)
    stored = {part.id for node in body for part in _below_or_self(node) if _is_store(part)}
    outside = _outside(around, region)
    return [name for name in early if name in stored and (outside is None or name in outside)]


def _read_first(node: ast.stmt) -> Iterator[str]:
    """The names that a statement reads, in no nested block after the same block has bound them."""
    yield from (part.id for part in _header(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load))
    if isinstance(node, ast.AugAssign):
        yield from _names(node.target)
    for block in blocks_of(node) if not isinstance(node, _DEFINITIONS) else ():
        bound: set[str] = {part.id for part in _header(node) if _is_store(part)}
        for inner in block:
            yield from (name for name in _read_first(inner) if name not in bound)
            bound |= {part.id for part in _header(inner) if _is_store(part)}


def _outside(around: Sequence[ast.stmt], region: Region) -> set[str] | None:
    """The names that the function around a step binds outside of it; None at the top level of a file."""
    functions = [node for node in around if isinstance(node, ast.FunctionDef)]
    if not functions:
        return None
    inside = {id(part) for part in ast.walk(region)}
    names = {argument.arg for argument in ast.walk(functions[-1].args) if isinstance(argument, ast.arg)}
    return names | {part.id for part in _below(functions[-1]) if _is_store(part) and id(part) not in inside}


def _below_or_self(node: ast.stmt) -> Iterator[ast.Name]:
    yield from (part for part in (node, *_below(node)) if isinstance(part, ast.Name))


def _is_store(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _tried(body: list[ast.stmt], around: Sequence[ast.stmt]) -> list[ast.stmt]:
    """A body under the `torch.no_grad()` and the like that its loop stands under."""
    calls: list[ast.expr] = []
    for node in around:
        if isinstance(node, ast.FunctionDef):
            calls = [part for part in node.decorator_list if is_mode(part)]
        elif isinstance(node, ast.With):
            calls += [item.context_expr for item in node.items if is_mode(item.context_expr)]
    for call in reversed(calls):
        inner = ast.With([ast.withitem(copy.deepcopy(call))], body)
        body = [ast.copy_location(inner, call)]
    return body


def is_mode(node: ast.expr) -> bool:
    """Whether an expression is `torch.no_grad()`, `autocast(…)` or another mode of autograd's."""
    return isinstance(node, ast.Call) and _last(node.func) in _MODES


def _returning(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """A body up to its last `backward`, or without what takes values, that returns what it computes."""
    losses: list[ast.expr] = []
    cut = _cut(body, losses)
    if not losses:
        losses = results_of(body)
        cut = [node for node in body if not _is_dropped(node, body)]
    value = losses[0] if len(losses) == 1 else ast.Tuple(losses, ast.Load())
    last = losses[-1] if losses else body[-1]
    return [*cut, ast.copy_location(ast.Return(value), last)]


def _is_dropped(node: ast.stmt, body: Sequence[ast.stmt]) -> bool:
    """Whether a statement only takes values: nothing that it binds is read by another."""
    bound = {part.id for part in _header(node) if _is_store(part)}
    others = (part for other in body if other is not node for part in ast.walk(other) if isinstance(part, ast.Name))
    read = {part.id for part in others if isinstance(part.ctx, ast.Load)}
    return bool(_taken(node, body)) and (isinstance(node, ast.Expr) or bound.isdisjoint(read))


def _cut(block: Sequence[ast.stmt], losses: list[ast.expr]) -> list[ast.stmt]:
    """The statements of a block up to its last `backward`, of which each is what it is called on, added to `losses`.

    Where only one branch calls it, that one is taken.
    """
    ends = [index for index, node in enumerate(block) if loss_of(node) is not None or _has_backward(node)]
    cut: list[ast.stmt] = []
    for node in block[: ends[-1] + 1] if ends else ():
        loss = loss_of(node)
        if loss is not None:
            later = _bound_names(block[block.index(node) + 1 :])
            if _names(loss).isdisjoint(later):
                losses.append(loss)
                continue
            hidden = f"loss {len(losses)}"
            cut.append(ast.copy_location(ast.Assign([ast.Name(hidden, ast.Store())], loss), node))
            losses.append(ast.copy_location(ast.Name(hidden, ast.Load()), loss))
        elif not _has_backward(node):
            cut.append(node)
        elif isinstance(node, ast.If):
            branches = [branch for branch in (node.body, node.orelse) if _calls_backward(branch)]
            direct = (branch for branch in branches if any(loss_of(inner) is not None for inner in branch))
            cut += _cut(next(direct, branches[0]), losses)
        else:
            inner = next(inner for inner in blocks_of(node) if _calls_backward(inner))
            inner[:] = _cut(inner, losses) or [ast.copy_location(ast.Pass(), node)]
            if isinstance(node, _LOOPS):
                inner.append(ast.copy_location(ast.Break(), node))
            cut.append(node)
    return cut


def _calls_backward(block: Sequence[ast.stmt]) -> bool:
    return any(loss_of(node) is not None or _has_backward(node) for node in block)
