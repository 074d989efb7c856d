"""Find training and evaluation steps: loops of a file over batches, and the function that their body amounts to.

A step is also a function that calls `backward` itself. Standard library only.
"""

from __future__ import annotations

import ast
import copy
import keyword
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeGuard

from fx_lsp.syntax import DEFINITIONS, FUNCTIONS, FunctionNode, parse

Region: TypeAlias = "ast.For | ast.While | ast.FunctionDef"
BACKWARD = " backward"
"""The function that a step passes its losses to; the step's module has to define it."""
STEP = " {}"
"""The variable that holds the function of a loop's step; no variable of the program has a blank in its name."""
BATCHES = "batches"
"""The attribute of a step's function that yields the iterations of its loop, as dicts by parameter name."""
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_LOOPS = (ast.For, ast.While)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_BACKWARD = frozenset({"backward", "manual_backward"})
_COUNTS = frozenset({"range", "trange", "count"})
_VALUES = frozenset({"item", "tolist", "numpy"})
_TO_NUMBERS = frozenset({"float", "int"})
_CASTS = frozenset({"to", "cuda", "cpu", "float", "double", "half", "long", "int", "contiguous", "clone"})
_ON_THE_WAY = frozenset({"cpu", "detach", "data"})
_MODES = frozenset({"no_grad", "inference_mode", "enable_grad", "set_grad_enabled", "autocast"})
_LOSS = re.compile(r"loss|criterion|cross_entropy|objective", re.IGNORECASE)


@dataclass(frozen=True)
class Step:
    """Describe a step by its qualified name: `train.step` for the first loop of `train`, `train.step_2` for the next.

    `path` are the statements around its `region`, the outermost first.
    """

    name: str
    region: Region
    path: tuple[ast.stmt, ...]

    @property
    def is_hook(self) -> bool:
        """Return True if it is a method that a trainer calls with each batch."""
        return isinstance(self.region, ast.FunctionDef) and _is_hook(self.region, self.path)


def calls_by_name(tree: ast.AST) -> set[str]:
    """Return the names that are called directly: `model` of `model(x)`, not `x` of `x.to(device)`."""
    return {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}


def steps_of(tree: ast.Module) -> list[Step]:
    """Return the steps of a file in the order of its text."""
    if not any(_hints_at_steps(node) for node in ast.walk(tree)):
        return []
    regions: list[tuple[str, Region, tuple[ast.stmt, ...]]] = []
    _collect(tree.body, "", (), regions)
    defined = {node.name for node in ast.walk(tree) if isinstance(node, _DEFINITIONS)}
    steps: list[Step] = []
    for scope, region, path in regions:
        name = scope if isinstance(region, ast.FunctionDef) else _free_name(scope, defined, steps)
        steps.append(Step(name, region, path))
    return steps


def _hints_at_steps(node: ast.AST) -> bool:
    """Return True for a call of `backward` or of a name like a model's, and for a method that a trainer calls."""
    if isinstance(node, ast.Call):
        return _last(node.func) in _BACKWARD or _is_model(node.func)
    return isinstance(node, ast.FunctionDef) and _HOOK.match(node.name) is not None


def _free_name(scope: str, defined: set[str], steps: Sequence[Step]) -> str:
    used_names = {step.name for step in steps}
    names = (f"step_{number}" if number > 1 else "step" for number in range(1, len(steps) + len(defined) + 2))
    free = (f"{scope}.{name}".lstrip(".") for name in names if name not in defined)
    return next(name for name in free if name not in used_names)


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
            if isinstance(node, ast.FunctionDef) and (_is_hook(node, path) or (_is_direct(node) and _computes(node))):
                regions.append((name, node, path))
            else:
                _collect(node.body, name, (*path, node), regions)
        elif isinstance(node, _LOOPS) and (_trains(node) or _evaluates(node)):
            regions.append((scope, node, path))
        else:
            for inner in blocks_of(node):
                _collect(inner, scope, (*path, node), regions)


_HOOK = re.compile(r"(training|validation|test)_step$")


def _is_hook(node: ast.FunctionDef, path: Sequence[ast.stmt]) -> bool:
    """Return True if a function is a method that a trainer calls with each batch."""
    names = [argument.arg for argument in node.args.args]
    return bool(path and isinstance(path[-1], ast.ClassDef) and _HOOK.match(node.name)) and "batch" in names


def _trains(node: ast.For | ast.While) -> bool:
    """Return True for a loop of training steps: the innermost loop over data around `backward`, or the innermost of
    all.
    """
    inner = [part for part in _below(node) if isinstance(part, _LOOPS)]
    if goes_through_data(node):
        deeper = [part for part in inner if goes_through_data(part) and _has_backward(part)]
        return _has_backward(node) and not deeper
    return _is_direct(node)


def goes_through_data(node: ast.stmt) -> bool:
    """Return True if a loop iterates over something other than numbers."""
    return isinstance(node, ast.For) and not _is_counted(node.iter)


def _is_counted(node: ast.expr) -> bool:
    while isinstance(node, ast.Call) and node.args and _last(node.func) not in _COUNTS:
        if not _last(node.func).islower():
            return False  # a class instance: `DataLoader([1, 2, 3])` yields batches
        node = node.args[0]
    if isinstance(node, (ast.List, ast.Tuple)):
        return not any(isinstance(part, ast.Call) for part in ast.walk(node))
    return isinstance(node, ast.Call) and _last(node.func) in _COUNTS


def _below(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below a node, without those inside functions and classes."""
    stack: list[ast.AST] = list(ast.iter_child_nodes(node))
    while stack:
        part = stack.pop()
        yield part
        if not isinstance(part, (*_DEFINITIONS, ast.Lambda)):
            stack.extend(ast.iter_child_nodes(part))


def _has_backward(node: ast.AST) -> bool:
    return any(isinstance(part, ast.stmt) and loss_of(part) is not None for part in _below(node))


def _is_direct(node: ast.AST) -> bool:
    """Return True if a node calls `backward` outside of its inner loops."""
    stack: list[ast.AST] = list(ast.iter_child_nodes(node))
    while stack:
        part = stack.pop()
        if isinstance(part, ast.stmt) and loss_of(part) is not None:
            return True
        if not isinstance(part, (*_DEFINITIONS, ast.Lambda, *_LOOPS)):
            stack.extend(ast.iter_child_nodes(part))
    return False


def _computes(node: ast.FunctionDef) -> bool:
    """Return True if a function computes the loss that it calls `backward` on."""
    losses = [loss for part in _below(node) if isinstance(part, ast.stmt) and (loss := loss_of(part)) is not None]
    stored = {part.id for part in _below(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    read = {part.id for loss in losses for part in ast.walk(loss) if isinstance(part, ast.Name)}
    return node.name != "backward" and bool(read & stored or any(isinstance(loss, ast.Call) for loss in losses))


def _evaluates(node: ast.For | ast.While) -> bool:
    """Return True if a loop passes batches to a model or a loss, and reads values of the result."""
    if not isinstance(node, ast.For) or not goes_through_data(node) or _has_backward(node):
        return False
    batch = _names(node.target)
    derived = _derived_from(batch, node.body)
    parts = (part for statement in _statements(node.body) for part in _header(statement))
    calls = [part for part in parts if isinstance(part, ast.Call)]
    applied = [call for call in calls if _names(*call.args, *(k.value for k in call.keywords)) & derived]
    models = [call for call in applied if _is_model(call.func) and _names(call.func).isdisjoint(batch)]
    losses = [call for call in applied if _LOSS.search(_last(call.func))]
    return bool(models and (losses or results_of(node.body)))


def _derived_from(names: Collection[str], body: Sequence[ast.stmt]) -> set[str]:
    """Return the names that hold values derived from `names`, as the statements of a body assign them."""
    derived = {*names}
    for statement in _statements(body):
        parts = [part for part in _header(statement) if isinstance(part, ast.Name)]
        if any(part.id in derived for part in parts if isinstance(part.ctx, ast.Load)):
            derived |= {part.id for part in parts if isinstance(part.ctx, ast.Store)}
    return derived


def _is_model(function: ast.expr) -> bool:
    """Return True if a function has the name of a module: `model`, `self.net`, `models[0]`."""
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
    """Yield the nodes of a statement outside of its nested statements, without the variables of comprehensions."""
    stack: list[tuple[ast.AST, frozenset[str]]] = [(part, frozenset()) for part in ast.iter_child_nodes(node)]
    while stack:
        part, inner = stack.pop()
        if isinstance(part, ast.stmt) or (isinstance(part, ast.Name) and part.id in inner):
            continue
        yield part
        if isinstance(part, _COMPREHENSIONS):
            inner |= _names(*(generator.target for generator in part.generators))
        elif isinstance(part, ast.Lambda):
            inner |= {argument.arg for argument in ast.walk(part.args) if isinstance(argument, ast.arg)}
        stack.extend((child, inner) for child in ast.iter_child_nodes(part))


def _names(*nodes: ast.AST) -> set[str]:
    return {part.id for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name)}


def _last(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def outermost_functions(block: Sequence[ast.stmt], around: str = "") -> Iterator[tuple[FunctionNode, str]]:
    """Yield the functions of a block that are in no other function, with their qualified names."""
    for node in block:
        name = f"{around}.{node.name}" if isinstance(node, DEFINITIONS) and around else getattr(node, "name", "")
        if isinstance(node, FUNCTIONS):
            yield node, name
        else:
            for inner in blocks_of(node):
                yield from outermost_functions(inner, name if isinstance(node, ast.ClassDef) else around)


def blocks_of(node: ast.stmt) -> list[list[ast.stmt]]:
    """Return the blocks of a compound statement in their order."""
    handlers = [handler.body for handler in getattr(node, "handlers", ())]
    cases = [case.body for case in getattr(node, "cases", ())]
    blocks = [getattr(node, "body", []), *handlers, *cases, getattr(node, "orelse", []), getattr(node, "finalbody", [])]
    return [block for block in blocks if block]


def loss_of(node: ast.stmt) -> ast.expr | None:
    """Return the expression of `backward`: `loss` of `scaler.scale(loss).backward()` and `self.manual_backward(loss)`.

    None for any other statement.
    """
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr not in _BACKWARD:
        return None
    receiver = call.func.value
    if _last(receiver).endswith("autograd"):
        return _losses_given(call)
    plain = len(call.args) == 1 and isinstance(receiver, ast.Name) and isinstance(call.args[0], ast.Name)
    if call.func.attr == "manual_backward" or (plain and not call.keywords and _LOSS.search(_last(call.args[0]))):
        return call.args[0] if call.args else None
    scaled = isinstance(receiver, ast.Call) and _last(receiver.func) == "scale" and len(receiver.args) == 1
    return receiver.args[0] if scaled and isinstance(receiver, ast.Call) else receiver


def _losses_given(call: ast.Call) -> ast.expr | None:
    """Return the losses of a call of `autograd.backward`: a list as a tuple, a single loss as it is."""
    listed = next((argument for argument in call.args if isinstance(argument, (ast.List, ast.Tuple))), None)
    if listed is None:
        return next(iter(call.args), None)
    return listed.elts[0] if len(listed.elts) == 1 else ast.copy_location(ast.Tuple(listed.elts, ast.Load()), call)


def results_of(body: Sequence[ast.stmt]) -> list[ast.expr]:
    """Return the results of a body without `backward`: the expressions that it sums, collects or reads values of."""
    results = [result for node in _straight(body) for result in _taken(node, body)]
    return list({ast.dump(result): result for result in results if _names(result)}.values())


def _straight(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a body that run exactly once."""
    for node in body:
        yield from _straight(node.body) if isinstance(node, (ast.With, ast.AsyncWith)) else [node]


def _taken(node: ast.stmt, body: Sequence[ast.stmt]) -> list[ast.expr]:
    """Return the results whose values a statement reads, adds to an outer variable, or appends to a list."""
    if isinstance(node, ast.AugAssign):
        inside = _bound_names([part for part in body if part is not node])
        if isinstance(node.op, ast.Add) and _names(node.target).isdisjoint(inside):
            return _tensors_in(node.value) or _unless_numbers(node.value, body)
    elif isinstance(node, (ast.Assign, ast.Expr)):
        appended = node.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else None
        if appended is not None and _last(appended.func) == "log" and len(appended.args) > 1:
            return _tensors_in(appended.args[1]) or [appended.args[1]]
        if appended is not None and _last(appended.func) == "append" and len(appended.args) == 1:
            return _tensors_in(appended.args[0]) or _unless_numbers(appended.args[0], body)
        return _tensors_in(node.value)
    return []


def _unless_numbers(node: ast.expr, body: Sequence[ast.stmt]) -> list[ast.expr]:
    """Return a summed expression as a list; empty if it is computed from values read from tensors before."""
    taking = (part for part in _straight(body) if isinstance(part, ast.Assign) and _tensors_in(part.value))
    numbers = {name.id for part in taking for name in _header(part) if _is_store(name)}
    return [node] if _names(node).isdisjoint(numbers) else []


def _bound_names(body: Sequence[ast.stmt]) -> set[str]:
    """Return the names that a body assigns, except by augmented assignment."""
    assigning = (node for node in _statements(body) if not isinstance(node, ast.AugAssign))
    parts = (part for node in assigning for part in _header(node) if isinstance(part, ast.Name))
    return {part.id for part in parts if isinstance(part.ctx, ast.Store)}


def _tensors_in(node: ast.expr) -> list[ast.expr]:
    """Return the expressions whose values an expression reads: `loss` in `loss.item() * len(x)`."""
    if isinstance(node, ast.Call):
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in _VALUES and not node.args:
            return [_without_moves(function.value)]
        if isinstance(function, ast.Name) and function.id in _TO_NUMBERS and len(node.args) == 1:
            return _tensors_in(node.args[0]) or [node.args[0]]
    if isinstance(node, _COMPREHENSIONS):
        values = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        tensors = [tensor for value in values for tensor in _tensors_in(value)]
        return [ast.copy_location(ast.ListComp(tensor, node.generators), node) for tensor in tensors]
    children = (child for child in ast.iter_child_nodes(node) if isinstance(child, (ast.expr, ast.keyword)))
    return [
        tensor for child in children for tensor in _tensors_in(child.value if isinstance(child, ast.keyword) else child)
    ]


def _without_moves(node: ast.expr) -> ast.expr:
    """Return `x` of `x.detach().cpu()` and `x.data`."""
    while True:
        inner = node.func if isinstance(node, ast.Call) and not node.args else node
        if not isinstance(inner, ast.Attribute) or inner.attr not in _ON_THE_WAY:
            return node
        node = inner.value


def wanted_by(region: Region) -> Callable[[ast.stmt], set[str]]:
    """Return a function that maps each statement in a step to the names that its result needs."""
    trains = _has_backward(region)
    returns = not trains and any(isinstance(node, ast.Return) and node.value is not None for node in region.body)

    def names(node: ast.stmt) -> set[str]:
        loss = loss_of(node)
        results = [loss] if loss is not None else [] if trains or returns else _taken(node, region.body)
        if returns and isinstance(node, ast.Return) and node.value is not None:
            results = [node.value]
        return _names(*results)

    return names


def as_functions(tree: ast.Module, line: int, name: str, inputs: Collection[str] = ()) -> ast.Module:
    """Return a copy of a module in which the step at `line` is a function that returns its losses.

    The function has the last part of `name`, after a blank if it was a loop; the code around it returns it instead of
    running it. Names in `inputs` that it reads or gets from data become parameters; statements that bind them from data
    are dropped.
    """
    tree = copy.deepcopy(tree)
    path = _path_to(tree.body, line)
    if path is None:
        return tree
    *around, region = path
    assert isinstance(region, (*_LOOPS, ast.FunctionDef))
    for node in [node for node in _closed_statements(region) if _fresh_names(node) & {*inputs}]:
        region.body = _without(region.body, node)
    _drop_heads(tree.body, around, region)
    block = _block_with(tree.body, around, region)
    index = block.index(region)
    if isinstance(region, ast.FunctionDef):
        region.body = _returning(region.body)
        _take_apart(region)
        parameters = {argument.arg for argument in ast.walk(region.args) if isinstance(argument, ast.arg)}
        region.args.kwonlyargs += [
            ast.copy_location(ast.arg(name), region) for name in inputs if name not in parameters
        ]
        region.args.kw_defaults += [None for name in inputs if name not in parameters]
        statements: list[ast.stmt] = [region]
    else:
        statements = _function_of(region, around, STEP.format(name.rpartition(".")[2]), inputs)
    outer = [position for position, node in enumerate(around) if isinstance(node, ast.FunctionDef)]
    if outer:
        (function, *_) = statements
        assert isinstance(function, ast.FunctionDef)
        returned = ast.Return(ast.Name(function.name, ast.Load()))
        statements.append(ast.copy_location(returned, region))
    elif isinstance(region, ast.FunctionDef):
        statements += block[index + 1 :]
    elif any(isinstance(node, _LOOPS) for node in around):
        statements.append(ast.copy_location(ast.Break(), region))
    block[index:] = statements
    for position in outer[1:]:
        _return_call(_block_with(tree.body, around[:position], around[position]), around[position])
    return ast.fix_missing_locations(tree)


def bound_from_data(tree: ast.Module, step: int, is_stop: Callable[[ast.stmt], bool]) -> tuple[str, ...]:
    """Return the names that a step gets from data in the first of its statements that satisfies `is_stop`.

    These include `x`, `y` of `x, y = next(batches)`, but not the result of a model.
    """
    path = _path_to(tree.body, step)
    region = path[-1] if path is not None else None
    if not isinstance(region, (*_LOOPS, ast.FunctionDef)):
        return ()
    stop = next((node for node in _straight(region.body) if is_stop(node)), None)
    is_closed = any(node is stop for node in _closed_statements(region))
    return tuple(sorted(_fresh_names(stop))) if stop is not None and is_closed else ()


@dataclass(frozen=True)
class Draw:
    """Describe a statement of a step that draws from an iterator, `x, y = next(batches)`, and the names it binds."""

    statement: ast.stmt
    iterator: ast.expr
    bound: tuple[str, ...]


def draws_of(tree: ast.Module, step: int) -> Iterator[Draw]:
    """Yield the statements of a step that draw from an iterator and read no variable of the step itself."""
    path = _path_to(tree.body, step)
    region = path[-1] if path is not None else None
    if not isinstance(region, (*_LOOPS, ast.FunctionDef)):
        return
    for node in _closed_statements(region):
        calls = (part for part in ast.walk(node) if isinstance(part, ast.Call) and _is_named(part.func, "next"))
        call, bound = next(calls, None), tuple(sorted(_fresh_names(node)))
        if call is not None and call.args and bound:
            yield Draw(node, call.args[0], bound)


def _is_named(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _closed_statements(region: Region) -> Iterator[ast.stmt]:
    """Yield the statements of a step that read no input and no variable of the step itself."""
    own = _names(region.target) - _counted_in(region) if isinstance(region, ast.For) else set[str]()
    own |= {argument.arg for argument in ast.walk(region) if isinstance(argument, ast.arg)} - {"self"}
    for node in _straight(region.body):
        if own.isdisjoint(_names(node) - _fresh_names(node)):
            yield node
        own |= _bound_names([node]) - _begun_again(node)


def _begun_again(node: ast.stmt) -> set[str]:
    """Return the names that a statement, or one in it, assigns only new iterators: `batches = iter(loader)`."""
    assigned: dict[str, list[bool]] = {}
    for part in _statements([node]):
        value = part.value if isinstance(part, ast.Assign) else None
        begins = isinstance(value, ast.Call) and _is_named(value.func, "iter")
        for name in (name.id for name in _header(part) if isinstance(name, ast.Name) and _is_store(name)):
            assigned.setdefault(name, []).append(begins)
    return {name for name, beginnings in assigned.items() if all(beginnings)}


def _fresh_names(node: ast.stmt) -> set[str]:
    """Return the names that a statement binds and does not read."""
    parts = [part for part in ast.walk(node) if isinstance(part, ast.Name)]
    return {part.id for part in parts if _is_store(part)} - {part.id for part in parts if not _is_store(part)}


def _without(body: list[ast.stmt], dropped: ast.stmt) -> list[ast.stmt]:
    """Return a body without `dropped`, one of the statements that run exactly once."""
    rest = [node for node in body if node is not dropped]
    for node in rest:
        if isinstance(node, (ast.With, ast.AsyncWith)):
            node.body = _without(node.body, dropped)
    return rest or [ast.copy_location(ast.Pass(), dropped)]


def functions_around(tree: ast.Module, line: int) -> list[int]:
    """Return the first lines of the functions around a line."""
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return [node.lineno for node in functions if node.lineno < line <= (node.end_lineno or node.lineno)]


def _return_call(block: list[ast.stmt], function: ast.stmt) -> None:
    """Make a block return the result of a function in it, called with None for each required parameter."""
    assert isinstance(function, ast.FunctionDef)
    arguments = function.args
    required = len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults)
    call = ast.Call(ast.Name(function.name, ast.Load()), [ast.Constant(None) for _ in range(required)], [])
    block[block.index(function) + 1 :] = [ast.copy_location(ast.Return(call), function)]


def _drop_heads(body: list[ast.stmt], around: list[ast.stmt], region: ast.stmt) -> None:
    """Replace the statements around a step by their bodies if their heads bind no name that is read there."""
    read = _names(region)
    for depth in range(len(around) - 1, -1, -1):
        node = around[depth]
        block = _block_with(body, around[:depth], node)
        inner = next(inner for inner in blocks_of(node) if (*around, region)[depth + 1] in inner)
        read |= _names(*(part for part in inner if part is not (*around, region)[depth + 1]))
        if has_idle_head(node, read):
            around[depth] = ast.copy_location(ast.If(ast.Constant(True), inner, []), node)
            block[block.index(node)] = around[depth]
        else:
            read |= {part.id for part in _header(node) if isinstance(part, ast.Name)}


def has_idle_head(node: ast.stmt, read: Collection[str]) -> bool:
    """Return True if the head of a `for` or a `with` around a step need not run: it binds none of the names `read`."""
    if isinstance(node, ast.For):
        return _names(node.target).isdisjoint(read)
    if not isinstance(node, ast.With) or any(is_mode(item.context_expr) for item in node.items):
        return False
    return all(item.optional_vars is None or _names(item.optional_vars).isdisjoint(read) for item in node.items)


def _path_to(body: Sequence[ast.stmt], line: int) -> tuple[ast.stmt, ...] | None:
    """Return the statements around the loop or function that begins at a line, followed by that statement; None if
    there is none.
    """
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


def _function_of(
    region: ast.For | ast.While, around: Sequence[ast.stmt], name: str, inputs: Collection[str]
) -> list[ast.stmt]:
    """Return the function for the body of a loop, and the statement that sets its batches."""
    body = _returning(region.body)
    read = _read_names(body)
    heads = [region.target] if isinstance(region, ast.For) else []
    targets = [part.id for head in heads for part in ast.walk(head) if isinstance(part, ast.Name)]
    in_use = [target for target in dict.fromkeys(targets) if target in read]
    counted = [target for target in in_use if target in _counted_in(region)]
    carried = [name for name in _carried(body, targets, around, region) if name not in inputs]
    parts = _parts(body, [target for target in in_use if target not in counted], region)
    (function,) = parse("def _(): pass").body
    assert isinstance(function, ast.FunctionDef)
    function.name, function.body = name, _tried(body, around)
    function.args.args = [ast.arg(parameter) for parameter in (*parts, *inputs)]
    defaults: list[ast.expr] = [ast.Constant(0) for _ in counted]
    defaults += [ast.Name(variable, ast.Load()) for variable in carried]
    function.args.kwonlyargs = [ast.arg(target) for target in (*counted, *carried)]
    function.args.kw_defaults = list(defaults)
    for part in (function, *ast.walk(function.args)):
        ast.copy_location(part, region.target if isinstance(region, ast.For) else region)
    function.lineno, function.col_offset = region.lineno, region.col_offset
    if not isinstance(region, ast.For):
        return [function]
    return [function, _batches_of(region, name, parts)]


def _batches_of(region: ast.For, name: str, parts: Mapping[str, ast.expr]) -> ast.stmt:
    """Return the statement that sets the generator of arguments of a loop's function, one dict per iteration."""
    keys: list[ast.expr | None] = [ast.Constant(parameter) for parameter in parts]
    batches = ast.Dict(keys, list(parts.values()))
    several = ast.GeneratorExp(batches, [ast.comprehension(region.target, region.iter, [], 0)])
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    attribute = ast.Attribute(ast.Name(name, ast.Load()), BATCHES, ast.Store())
    return ast.copy_location(ast.Assign([attribute], ast.Lambda(nothing, several)), region)


def _read_names(body: Sequence[ast.stmt]) -> set[str]:
    """Return the names that a body reads."""
    parts = (part for node in body for part in ast.walk(node) if isinstance(part, ast.Name))
    return {part.id for part in parts if not _is_store(part)}


def _take_apart(function: ast.FunctionDef) -> None:
    """Replace the parameter `batch` of a method by its parts, if the method reads only parts of it."""
    arguments = [argument.arg for argument in function.args.args]
    batches = [name for name in arguments if name == "batch"]
    parts = _parts(function.body, batches, function)
    if batches and batches != list(parts):
        index = arguments.index(batches[0])
        arguments_of_parts = [ast.copy_location(ast.arg(name), function.args.args[index]) for name in parts]
        function.args.args[index : index + 1] = arguments_of_parts


def _parts(body: list[ast.stmt], batches: Sequence[str], region: Region) -> dict[str, ast.expr]:
    """Return the parameters of a step, each with its expression in terms of the loop's variables.

    A batch of which the body reads only parts (`x, y = batch`, `batch["image"]`) becomes these parts.
    """
    parts: dict[str, ast.expr] = {}
    parameters = {part.arg for part in ast.walk(region) if isinstance(part, ast.arg)}
    for batch in batches:
        names_by_key = _taken_apart(body, batch, parameters)
        if names_by_key is None:
            parts[batch] = ast.copy_location(ast.Name(batch, ast.Load()), region)
            continue
        read = _read_names(body)
        for key, name in names_by_key.items():
            value = ast.Subscript(ast.Name(batch, ast.Load()), ast.Constant(key), ast.Load())
            if name in read:
                parts[name] = ast.copy_location(value, region)
    return parts


def _taken_apart(body: list[ast.stmt], batch: str, parameters: Collection[str]) -> dict[int | str, str] | None:
    """Replace the parts of a batch in a body by variables; return the variable of each key. None if the body reads it
    whole.

    No variable has the name of one of the `parameters`.
    """
    reads = [part for node in body for part in ast.walk(node) if isinstance(part, ast.Name) and part.id == batch]
    unpacked = [node for node in _statements(body) if _unpacks(node, batch)]
    selected = [part for node in body for part in ast.walk(node) if _selects(part, batch)]
    if not reads or len(unpacked) + len(selected) < len(reads):
        return None
    names = _names_of_parts(body, batch, unpacked, [_key_of(part) for part in selected], parameters)
    replacement = _PartsByName(batch, names)
    body[:] = [replacement.visit(node) for node in body if node not in unpacked]
    for node in _statements(body):
        for block in blocks_of(node):
            block[:] = [inner for inner in block if inner not in unpacked] or [ast.copy_location(ast.Pass(), node)]
    return names


def _names_of_parts(
    body: Sequence[ast.stmt],
    batch: str,
    unpacked: Sequence[ast.stmt],
    keys: Sequence[int | str],
    parameters: Collection[str],
) -> dict[int | str, str]:
    """Return a variable for each part of a batch, by its key: the body's own variable for it, or a free name.

    The body unpacks the batch in the `unpacked` statements, and by subscripts with these `keys`.
    """
    names: dict[int | str, str] = {}
    for node in unpacked:
        assert isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Tuple, ast.List))
        names |= {number: element.id for number, element in enumerate(node.targets[0].elts) if _is_store(element)}
    bound = _read_names(body) | _bound_names(body) | {*parameters}
    for node in _statements(body):
        for target, value in _pairs(node):
            part = _without_casts(value)
            if _selects(part, batch) and keys.count(_key_of(part)) == 1:
                names.setdefault(_key_of(part), target)
        here = (part for part in _header(node) if isinstance(part, ast.Subscript) and _selects(part, batch))
        own = [_key_of(part) for part in sorted(here, key=lambda part: (part.lineno, part.col_offset))]
        for key in own:
            if key not in names:
                names[key] = _free_variable(key, batch, bound | {*names.values()})
    return names


def _free_variable(key: int | str, batch: str, bound: Collection[str]) -> str:
    """Return a variable for a part of a batch: its key if that is a free identifier."""
    is_name = isinstance(key, str) and key.isidentifier() and not keyword.iskeyword(key)
    name = str(key) if is_name else f"{batch}_{key}"
    while name in bound:
        name = f"{batch}_{name}"
    return name


def _without_casts(node: ast.expr) -> ast.expr:
    """Return `x` of `x.to(device).float()`."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CASTS:
        node = node.func.value
    return node


def _pairs(node: ast.stmt) -> list[tuple[str, ast.expr]]:
    """Return the variables of `a = x` and of `a, b = x, y` with their values."""
    target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
    if isinstance(node, ast.Assign) and isinstance(target, ast.Name):
        return [(target.id, node.value)]
    if not isinstance(node, ast.Assign) or not isinstance(target, ast.Tuple) or not isinstance(node.value, ast.Tuple):
        return []
    pairs = zip(target.elts, node.value.elts, strict=False)
    return [(name.id, value) for name, value in pairs if isinstance(name, ast.Name)]


def _unpacks(node: ast.stmt, batch: str) -> bool:
    """Return True if a statement is `x, y = batch`."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Name) or node.value.id != batch:
        return False
    target = node.targets[0]
    return isinstance(target, (ast.Tuple, ast.List)) and all(isinstance(element, ast.Name) for element in target.elts)


def _selects(node: ast.AST, batch: str) -> bool:
    """Return True if a node is `batch[0]` or `batch["image"]`."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name) or node.value.id != batch:
        return False
    return isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, (int, str))


def _key_of(node: ast.AST) -> int | str:
    assert isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)
    key = node.slice.value
    assert isinstance(key, (int, str))
    return key


class _PartsByName(ast.NodeTransformer):
    """Replace the parts of a batch by variables."""

    def __init__(self, batch: str, names: Mapping[int | str, str]) -> None:
        self._batch, self._names = batch, names

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Replace `batch[key]`."""
        if not _selects(node, self._batch):
            return self.generic_visit(node)
        return ast.copy_location(ast.Name(self._names[_key_of(node)], ast.Load()), node)


def _counted_in(region: ast.For | ast.While) -> set[str]:
    """Return the variables of a loop that are numbers: of `range`, and the first of `enumerate`."""
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
    """Return the loop-carried variables: those that a body reads before it assigns them."""
    bound: set[str] = set(targets)
    early: dict[str, None] = {}
    for node in body:
        early.update(dict.fromkeys(name for name in _read_first(node) if name not in bound))
        bound |= {part.id for part in _header(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
        if isinstance(node, ast.With):
            bound |= _bound_names(node.body)
    stored = {part.id for node in _statements(body) for part in _header(node) if _is_store(part)}
    outside = _outside(around, region)
    return [name for name in early if name in stored and (outside is None or name in outside)]


def _read_first(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement reads, except those that the same nested block has bound before."""
    yield from (part.id for part in _header(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load))
    if isinstance(node, ast.AugAssign):
        yield from _names(node.target)
    for block in blocks_of(node) if not isinstance(node, _DEFINITIONS) else ():
        bound: set[str] = {part.id for part in _header(node) if _is_store(part)}
        for inner in block:
            yield from (name for name in _read_first(inner) if name not in bound)
            bound |= {part.id for part in _header(inner) if _is_store(part)}


def _outside(around: Sequence[ast.stmt], region: Region) -> set[str] | None:
    """Return the names that the function around a step binds outside of the step; None at the top level of a file."""
    functions = [node for node in around if isinstance(node, ast.FunctionDef)]
    if not functions:
        return None
    inside = {id(part) for part in ast.walk(region)}
    names = {argument.arg for argument in ast.walk(functions[-1].args) if isinstance(argument, ast.arg)}
    return names | {part.id for part in _below(functions[-1]) if _is_store(part) and id(part) not in inside}


def _is_store(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _tried(body: list[ast.stmt], around: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return a body wrapped in the `torch.no_grad()` and similar modes around its loop."""
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
    """Return True for `torch.no_grad()`, `autocast(…)` or another mode of autograd."""
    return isinstance(node, ast.Call) and _last(node.func) in _MODES


def _returning(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return a body up to its last `backward`, or without statements that read values, that returns its results."""
    losses: list[ast.expr] = []
    cut = _cut(body, losses)
    if isinstance(body[-1], ast.Return) and body[-1].value is not None:
        return [node for node in body if not _is_dropped(node, body)]
    if not losses:
        losses = results_of(body)
        cut = [node for node in body if not _is_dropped(node, body)]
    value = losses[0] if len(losses) == 1 else ast.Tuple(losses, ast.Load())
    last = losses[-1] if losses else body[-1]
    return [*cut, ast.copy_location(ast.Return(value), last)]


def _is_dropped(node: ast.stmt, body: Sequence[ast.stmt]) -> bool:
    """Return True if a statement only reads values of tensors, and no other statement reads the names that it binds."""
    bound = {part.id for part in _header(node) if _is_store(part)}
    others = (part for other in body if other is not node for part in ast.walk(other) if isinstance(part, ast.Name))
    read = {part.id for part in others if isinstance(part.ctx, ast.Load)}
    return bool(_taken(node, body)) and (isinstance(node, ast.Expr) or bound.isdisjoint(read))


def _cut(block: Sequence[ast.stmt], losses: list[ast.expr]) -> list[ast.stmt]:
    """Return the statements of a block up to its last `backward`, each `backward` replaced by its loss, added to
    `losses`.

    If only one branch calls `backward`, that branch is kept.
    """
    ends = [index for index, node in enumerate(block) if loss_of(node) is not None or _has_backward(node)]
    cut: list[ast.stmt] = []
    for node in block[: ends[-1] + 1] if ends else ():
        loss = loss_of(node)
        if loss is not None:
            loss = _checked(node, loss)
            later = _bound_names(block[block.index(node) + 1 :])
            if node is block[ends[-1]] or _names(loss).isdisjoint(later):
                losses.append(loss)
            else:
                hidden = f"loss {len(losses)}"
                cut.append(ast.copy_location(ast.Assign([ast.Name(hidden, ast.Store())], loss), node))
                losses.append(ast.copy_location(ast.Name(hidden, ast.Load()), loss))
            cut += _kept_for_backward(node, block[: ends[-1] + 1])
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


def _kept_for_backward(node: ast.stmt, block: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield copies of the variables that a block changes in place after `node` has called `backward`.

    The program computes the gradients at `node`; here all losses are differentiated at the end.
    """
    place = block.index(node)
    later = {name: part for part in block[place + 1 :] for name in _changed_in_place(part)}
    for name in sorted(later.keys() & _bound_names(block[:place])):
        copied = ast.Call(ast.Attribute(ast.Name(name, ast.Load()), "clone", ast.Load()), [], [])
        yield ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], copied), later[name])


def _changed_in_place(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement changes in place: `label` of `label.fill_(0)`."""
    match node:
        case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), method))) if method.endswith("_"):
            yield name
        case _:
            pass


def _checked(node: ast.stmt, loss: ast.expr) -> ast.expr:
    """Return a loss, passed to `BACKWARD` if `backward` is called on it without a gradient."""
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.args:
        return loss
    if loss is not call.func.value or any(keyword.arg == "gradient" for keyword in call.keywords):
        return loss
    return ast.copy_location(ast.Call(ast.copy_location(ast.Name(BACKWARD, ast.Load()), call), [loss], []), call)


def _calls_backward(block: Sequence[ast.stmt]) -> bool:
    return any(loss_of(node) is not None or _has_backward(node) for node in block)
