"""Read a function's body for facts on its parameters: ranks, dtypes, and non-tensors."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from typing import Any, TypeAlias

from fx_lsp.syntax import FunctionNode, bound_lambda
from fx_lsp.tracer.inputs.evidence.products import ranks_of_products
from fx_lsp.tracer.inputs.evidence.requirements import Requirement, expected_ranks, requirements, shape_of
from fx_lsp.tracer.inputs.evidence.uses import gone_over, held_by, visit_call, visit_loop, visit_subscript, visit_views
from fx_lsp.tracer.inputs.plan.dims import parameter_shape
from fx_lsp.tracer.inputs.plan.facts import Facts, Use
from fx_lsp.tracer.inputs.plan.values import TENSOR_ATTRIBUTES
from fx_lsp.training.step import STEP

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_Of: TypeAlias = "Callable[[ast.expr], Facts | None]"
"""Returns the facts of the parameter that an expression refers to, or None."""
_Named: TypeAlias = "Callable[[str, int], Facts | None]"
"""Returns the facts of the parameter that a name means on a line, or None."""


def body_facts(function: FunctionNode | None) -> dict[str, Facts]:
    """Return facts by parameter name; variables that only rename a parameter are not followed."""
    if function is None:
        return {}
    arguments = function.args
    names = [a.arg for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]]
    if arguments.vararg:
        names.append(arguments.vararg.arg)
    facts = {name: Facts() for name in names}
    rebound = rebound_lines(function, facts)
    elements = _elements(function, facts)
    _visit_items_by_number(function, lambda node: facts.get(node.id) if isinstance(node, ast.Name) else None)
    masks = _masks(function)
    for of, named in (_by_name(facts, rebound, elements), _by_attribute(facts, _kept_by_objects(function, facts))):
        for node in ast.walk(function):
            _visit(node, of, named, masks)
    visit_views(function, facts)
    for demand in requirements(function):
        if demand.name in facts:
            _demand(facts[demand.name], demand)
    ranks = ranks_of_products(function, facts, rebound)
    fixed = next((facts[name].rank for name in ranks if facts[name].rank is not None), None)
    for name, rank in ranks.items():
        facts[name].likely_rank = facts[name].likely_rank or fixed or rank
    docstring = ast.get_docstring(function) or ""
    for name, parameter in facts.items():
        parameter.shape = parameter_shape(docstring, name) if docstring else None
    return facts


def _item_taken(node: ast.Assign, facts: Mapping[str, Facts]) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield pairs of a sequence and its element: `starts`, `start` for `start = starts[i]`, unless `i` is a parameter
    or a number, and `edges` with each of `rows` and `columns` for `rows, columns = edges` and `rows, columns =
    edges[0], edges[1]`.
    """
    match node:
        case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)):
            pairs = list(zip(values, targets, strict=False))
        case ast.Assign([ast.Tuple(targets), *_], whole):
            yield from ((whole, part) for part in targets)
            return
        case _:
            pairs = [(node.value, node.targets[0])]
    for value, part in pairs:
        match value:
            case ast.Subscript(whole, ast.Name(counter)) if counter not in facts:
                yield whole, part
            case ast.Subscript(whole, ast.Constant(int())):
                yield whole, part
            case _:
                pass


def _elements(function: FunctionNode, facts: Mapping[str, Facts]) -> dict[str, Facts]:
    """Return the facts on elements of parameters, by the variables that are bound to them.

    These are bound by `for target in targets`, `for i, target in enumerate(targets)`, `for x, target in zip(xs,
    targets)`, by `start = starts[i]`, and by `rows, columns = edges`.
    """
    elements: dict[str, Facts] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            pairs = _item_taken(node, facts)
        elif isinstance(node, (ast.For, ast.comprehension)):
            pairs = gone_over(node)
        else:
            continue
        for whole, part in pairs:
            if isinstance(whole, ast.Name) and isinstance(part, ast.Name) and whole.id in facts:
                elements.setdefault(part.id, facts[whole.id].each())
    return {name: element for name, element in elements.items() if name not in facts}


def _visit_items_by_number(function: FunctionNode, of: _Of) -> None:
    """Record that `widths[i]`, with a loop counter `i`, shows `widths` to have several items."""
    loops = (node for node in ast.walk(function) if isinstance(node, (ast.For, ast.comprehension)))
    counters = {name.id for loop in loops for name in ast.walk(loop.target) if isinstance(name, ast.Name)}
    for node in ast.walk(function) if counters else ():
        match node:
            case ast.Subscript(value, ast.Name(counter)) if counter in counters:
                if (several := of(value)) is not None:
                    several.each()
            case _:
                pass


def constructor_facts(definition: ast.ClassDef | None) -> dict[str, Facts]:
    """Return facts by parameter of a class's constructor, including those that methods show of `self.name = name`."""
    methods = [n for n in definition.body if isinstance(n, FUNCTIONS)] if definition is not None else []
    constructor = next((m for m in methods if m.name == "__init__"), None)
    facts = body_facts(constructor)
    kept = _kept_by_objects(constructor, facts) if constructor is not None else {}
    called_by_constructor = {name for name, parameter in facts.items() if "called" in parameter.uses}
    for method in methods:
        held = kept | _held_by_variables(method, kept)
        _visit_items_by_number(method, lambda node, held=held: _kept(node, facts, held))
        of, named = _by_attribute(facts, held)
        for node in ast.walk(method):
            _visit(node, of, named)
    for name, parameter in facts.items():
        if "called" in parameter.uses and name not in called_by_constructor:
            parameter.uses.add("applied")
    return facts


def _kept_by_objects(function: FunctionNode, facts: Mapping[str, Facts]) -> dict[str, str]:
    """Return the parameter that each attribute stores: `self.name = name`, directly or in a container of modules."""
    assigned = (n for n in ast.walk(function) if isinstance(n, ast.Assign))
    pairs = ((t, _held_name(n.value)) for n in assigned for t in n.targets)
    return {ast.unparse(t): name for t, name in pairs if isinstance(t, ast.Attribute) and name in facts}


def _held_name(expression: ast.expr) -> str:
    """Return the name of the stored or contained object: `layers` of `nn.ModuleList(layers) if layers else None`."""
    if isinstance(expression, ast.IfExp):
        return _held_name(expression.body)
    held = held_by(expression) if isinstance(expression, ast.Call) else [expression]
    return held[0].id if len(held) == 1 and isinstance(held[0], ast.Name) else ""


def _held_by_variables(method: FunctionNode, kept: Mapping[str, str]) -> dict[str, str]:
    """Return the parameter of each variable of a method that is bound once, to an attribute that stores the
    parameter.
    """
    stored = [n.id for n in ast.walk(method) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    bound = (n for n in ast.walk(method) if isinstance(n, ast.Assign) and isinstance(n.value, ast.Attribute))
    pairs = ((target.id, ast.unparse(n.value)) for n in bound for target in n.targets if isinstance(target, ast.Name))
    return {name: kept[value] for name, value in pairs if value in kept and stored.count(name) == 1}


def methods_that_set(
    definition: ast.ClassDef, target: str, missing: str, instance: Any
) -> Iterator[tuple[str, list[str]]]:
    """Yield the methods of a class that assign attributes that `target` reads of its object, the most attributes first,
    with those.

    The attributes are the `missing` one, or without one, those that the constructor leaves at a plain value.
    """
    methods = {node.name: node for node in definition.body if isinstance(node, FUNCTIONS)}
    read = _own_attributes(methods[target], ast.Load) if target in methods else set[str]()
    open_names = {name for name in read if isinstance(getattr(instance, name, ...), _PLAIN)}
    wanted = {missing} if missing else open_names
    setters = {name: sorted(_own_attributes(node, ast.Store) & wanted) for name, node in methods.items()}
    able = [name for name, names in setters.items() if names and name not in (target, "__init__", *read)]
    for name in sorted(able, key=lambda name: -len(setters[name]))[:MAX_SETTERS]:
        yield name, setters[name]


MAX_SETTERS = 2
"""The most methods that are tried to set the state that another one reads."""
_PLAIN = (type(None), bool, int, float, list, dict)


def _own_attributes(method: FunctionNode, context: type[ast.expr_context]) -> set[str]:
    """Return the attributes of `self` that a method reads, or assigns."""
    attributes = (node for node in ast.walk(method) if isinstance(node, ast.Attribute))
    return {a.attr for a in attributes if isinstance(a.ctx, context) and ast.unparse(a.value) == "self"}


def lend_facts(tree: ast.Module, facts: dict[str, Facts], methods: bool) -> None:
    """Add likely ranks of parameters that are only passed on, from equally named parameters elsewhere in the file.

    Methods use those of methods, and functions those of functions; names of up to three letters are too ambiguous.
    """
    poor = {n for n, f in facts.items() if len(n) > 3 and f.rank is None and f.shape is None}
    for function in _definitions(tree.body) if poor else ():
        bodies = function.body if isinstance(function, ast.ClassDef) and methods else [function]
        for body in bodies:
            if isinstance(body, FUNCTIONS) and methods == isinstance(function, ast.ClassDef):
                shared = poor & {a.arg for a in [*body.args.args, *body.args.kwonlyargs]}
                lent = body_facts(body) if shared else {}
                for name in shared:
                    facts[name].likely_rank = facts[name].likely_rank or lent[name].rank


def _demand(facts: Facts, demand: Requirement) -> None:
    facts.uses.add("tensor")
    facts.rank = demand.rank if demand.rank is not None else facts.rank
    facts.min_rank = max(facts.min_rank, demand.min_rank)
    if demand.size is not None:
        facts.sizes.setdefault(demand.index, demand.size)
        facts.min_rank = max(facts.min_rank, demand.index + 1 if demand.index >= 0 else -demand.index)


def rebound_lines(function: FunctionNode, facts: Mapping[str, Facts]) -> dict[str, int]:
    """Return the first line on which each parameter is rebound: later uses say nothing about the argument."""
    same = {target for node in ast.walk(function) if isinstance(node, ast.Assign) for target in _still_shaped(node)}
    lines: dict[str, int] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in facts and node not in same:
            lines[node.id] = min(lines.get(node.id, node.lineno), node.lineno)
    return lines


def _still_shaped(assignment: ast.Assign) -> Iterator[ast.AST]:
    """Yield the targets whose value has their own shape: `x = x.float()`, `q, k = q.contiguous(), k.contiguous()`."""
    for target in assignment.targets:
        both = isinstance(target, ast.Tuple) and isinstance(assignment.value, ast.Tuple)
        targets = target.elts if both and isinstance(target, ast.Tuple) else [target]
        values = assignment.value.elts if both and isinstance(assignment.value, ast.Tuple) else [assignment.value]
        for name, value in zip(targets, values, strict=False):
            if isinstance(name, ast.Name) and name.id == shaped_like(value):
                yield name


def shaped_like(expression: ast.expr) -> str:
    """Return the name of the variable whose shape an expression has: `x` for `Variable(x.float())`; "" without one."""
    while isinstance(expression, ast.Call):
        called = expression.func
        if expression.args and ast.unparse(called).rpartition(".")[2] == "Variable":
            expression = expression.args[0]
        elif isinstance(called, ast.Attribute) and called.attr in _KEEP_SHAPE:
            expression = called.value
        else:
            break
    return expression.id if isinstance(expression, ast.Name) else ""


_KEEP_SHAPE = frozenset(
    {"contiguous", "clone", "detach", "to", "type", "type_as", "float", "half", "double", "bfloat16", "long", "int"}
    | {"bool", "cpu", "cuda", "requires_grad_", "clamp", "abs", "exp", "log", "sqrt", "sigmoid", "tanh", "relu"}
)


def _by_name(
    facts: Mapping[str, Facts], rebound: Mapping[str, int], variables: Mapping[str, Facts]
) -> tuple[_Of, _Named]:
    """Return a lookup of the facts of a parameter by its name; `variables` hold elements of parameters."""

    def named(name: str, line: int) -> Facts | None:
        return facts.get(name) if line <= rebound.get(name, line) else None

    def of(expression: ast.expr) -> Facts | None:
        name = expression.id if isinstance(expression, ast.Name) else ""
        return named(name, expression.lineno) or variables.get(name) or _part(expression, of)

    return of, named


def _by_attribute(facts: Mapping[str, Facts], kept: Mapping[str, str]) -> tuple[_Of, _Named]:
    """Return a lookup of the facts of a parameter by an attribute that stores it: `self.blocks`."""

    def of(expression: ast.expr) -> Facts | None:
        return _kept(expression, facts, kept) or _part(expression, of)

    return of, lambda name, line: None


def _masks(function: FunctionNode) -> Set[ast.AST]:
    """Return the comparisons that are masks: `x[keep > 0.5]` selects elements, `if keep > 0.5` does not.

    A comparison in a variable decides if the variable does.
    """
    compared = {node for node in ast.walk(function) if isinstance(node, ast.Compare) and not _compares_words(node)}
    deciding = [test for node in ast.walk(function) for test in _tests(node)]
    names = {test.id for test in deciding if isinstance(test, ast.Name)}
    bound = (node for node in ast.walk(function) if isinstance(node, ast.Assign))
    values = (node.value for node in bound for target in node.targets if getattr(target, "id", None) in names)
    return compared - {*deciding, *values}


def _tests(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions whose truth a node tests."""
    match node:
        case ast.If() | ast.IfExp() | ast.While() | ast.Assert():
            yield node.test
        case ast.comprehension():
            yield from node.ifs
        case ast.BoolOp():
            yield from node.values
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case _:
            pass


def _compares_words(node: ast.Compare) -> bool:
    """Return True if a value is compared with a word, None, True or False, or searched for in several values."""
    constants = (side.value for side in (node.left, *node.comparators) if isinstance(side, ast.Constant))
    is_membership = any(isinstance(operator, ast.In | ast.NotIn | ast.Is | ast.IsNot) for operator in node.ops)
    return is_membership or any(type(constant) not in (int, float) for constant in constants)


def _visit(node: ast.AST, of: _Of, named: _Named, masks: Set[ast.AST] = frozenset()) -> None:
    """Record the facts that one node shows."""
    visit_loop(node, of)
    match node:
        case ast.Assert():
            _visit_assertion(node, of)
        case ast.Assign([ast.Tuple(elements) | ast.List(elements)], value):
            _visit_unpacking(value, elements, of, named)
        case ast.Subscript():
            visit_subscript(node, of, named)
        case ast.Attribute():
            _visit_attribute(node, of(node.value))
        case ast.Call():
            visit_call(node, of)
        case ast.If() | ast.IfExp():
            _visit_branch(node, named)
        case ast.For() | ast.comprehension():
            _visit_iterated(node, of)
        case ast.Compare() if node in masks:
            for side in (node.left, *node.comparators):
                _note_use(of(side), "operand")
        case ast.Compare():
            _visit_comparison(node, of)
        case ast.BinOp():
            for side, other in ((node.left, node.right), (node.right, node.left)):
                _visit_operand(node.op, of(side), other)
        case _:
            pass


def _visit_iterated(node: ast.For | ast.comprehension, of: _Of) -> None:
    """Record that a loop iterates over a parameter."""
    for whole, _ in gone_over(node):
        _note_use(of(whole), "iterated")


def _note_use(facts: Facts | None, use: Use) -> None:
    if facts is not None:
        facts.uses.add(use)


def _visit_unpacking(value: ast.expr, elements: Sequence[ast.expr], of: _Of, named: _Named) -> None:
    """Record `b, t, c = x.shape`, `first, second = pair` and `x1, y1 = boxes.unbind(-1)`."""
    shaped = shape_of(value)
    subject = named(shaped, value.lineno) if shaped is not None else None
    if isinstance(value, ast.Attribute) and value.attr == "shape":
        subject = subject or of(value.value)
    whole = of(value)
    if subject is not None:
        starred = sum(isinstance(element, ast.Starred) for element in elements)
        if starred:
            subject.min_rank = max(subject.min_rank, len(elements) - starred)
        else:
            subject.rank = len(elements)
    elif whole is not None:
        whole.uses.add("iterated")
        whole.length = len(elements)
    if isinstance(value, ast.Call) and (called := of(value.func)) is not None:
        called.results = len(elements)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "unbind":
        _unbound(value, of(value.func.value), len(elements))


def _visit_branch(node: ast.If | ast.IfExp, named: _Named) -> None:
    """Record the rank that a branch is written for."""
    for expected in expected_ranks(node):
        if (facts := named(expected.name, node.lineno)) is not None:
            facts.uses.add("tensor")
            facts.likely_rank = facts.likely_rank or expected.rank


def _visit_comparison(node: ast.Compare, of: _Of) -> None:
    """Record the values that a parameter is compared with."""
    _visit_membership(node, of)
    facts = of(node.left)
    if facts is None:
        return
    for comparator in node.comparators:
        parts = comparator.elts if isinstance(comparator, (ast.Tuple, ast.List, ast.Set)) else [comparator]
        facts.uses.add("compared")
        facts.literals += [part.value for part in parts if isinstance(part, ast.Constant)]


def _visit_operand(operator: ast.operator, facts: Facts | None, other: ast.expr) -> None:
    """Record that a parameter is an operand of an arithmetic operation."""
    if isinstance(operator, ast.MatMult) and facts is not None:
        facts.uses.add("tensor")
        facts.min_rank = max(facts.min_rank, 2)
    elif isinstance(operator, (ast.Add, ast.Sub, ast.Mult, ast.Div)) and facts is not None:
        facts.uses.add("operand")
        if (rank := _stretched_rank(other)) is not None:
            facts.likely_rank = facts.likely_rank or rank
            facts.spatial = facts.spatial or (2 if rank == IMAGE_RANK else 0)


def _stretched_rank(expression: ast.expr) -> int | None:
    """Return the rank of an expression that broadcasts over several dimensions: 4 for `scale[t, None, None, None]` and
    `scale.view(-1, 1, 1, 1)`; None for any other.
    """
    match expression:
        case ast.Subscript(_, ast.Tuple(parts)) if not any(_is_constant(part, ...) for part in parts):
            stretched: object = None
        case ast.Call(ast.Attribute(_, "view" | "reshape"), parts):
            stretched = 1
        case _:
            return None
    return len(parts) if len(parts) > 2 and all(_is_constant(part, stretched) for part in parts[-2:]) else None


IMAGE_RANK = 4


def _is_constant(expression: ast.expr, value: object) -> bool:
    return isinstance(expression, ast.Constant) and expression.value is value


def _kept(expression: ast.expr, facts: Mapping[str, Facts], kept: Mapping[str, str]) -> Facts | None:
    """Return the facts on the parameter that an attribute or a variable stores, or None."""
    is_name = isinstance(expression, (ast.Attribute, ast.Name))
    return facts.get(kept.get(ast.unparse(expression), "")) if is_name else None


def _visit_attribute(node: ast.Attribute, owner: Facts | None) -> None:
    if owner is not None:
        owner.uses.add("tensor")
        owner.attributes.add(node.attr)
        owner.assigned |= {node.attr} if isinstance(node.ctx, ast.Store) else set()


def _visit_assertion(node: ast.Assert, of: Callable[[ast.expr], Facts | None]) -> None:
    """Record `assert isinstance(layers, Layers)`, `assert model.learned` and `assert not model.conditional`."""
    match node:
        case ast.Assert(ast.Call(ast.Name("isinstance"), [argument, kind])):
            if (asserted := of(argument)) is not None:
                asserted.instance_of = ast.unparse(kind)
        case ast.Assert(ast.Attribute(owner, name)) | ast.Assert(ast.UnaryOp(ast.Not(), ast.Attribute(owner, name))):
            if (asserted := of(owner)) is not None:
                asserted.part(name).literals.append(isinstance(node.test, ast.Attribute))
        case _:
            pass


def _visit_membership(node: ast.Compare, of: Callable[[ast.expr], Facts | None]) -> None:
    """Record `"mask" in batch`."""
    if isinstance(node.ops[0], (ast.In, ast.NotIn)) and isinstance(node.left, ast.Constant):
        whole = of(node.comparators[0])
        if whole is not None and isinstance(node.left.value, str):
            whole.keys.add(node.left.value)


def _part(expression: ast.expr, of: Callable[[ast.expr], Facts | None]) -> Facts | None:
    """Return the facts on `batch["image"]` and on `batch.image`, unless that is an attribute of tensors; else None."""
    if isinstance(expression, ast.Subscript) and isinstance(expression.slice, ast.Constant):
        whole, name = of(expression.value), expression.slice.value
        return whole.part(name) if whole is not None and isinstance(name, str) else None
    if isinstance(expression, ast.Subscript) and isinstance(expression.value, ast.Name):
        whole = of(expression.value)  # `targets[i]`
        return whole.element if whole is not None else None
    if isinstance(expression, ast.Attribute) and expression.attr not in TENSOR_ATTRIBUTES:
        whole = of(expression.value)
        return whole.part(expression.attr) if whole is not None else None
    return None


def _unbound(call: ast.Call, facts: Facts | None, count: int) -> None:
    """Record `x1, y1, x2, y2 = boxes.unbind(-1)`."""
    first = next((argument for argument in (*call.args, *(k.value for k in call.keywords))), ast.Constant(0))
    with suppress(ValueError):
        axis = ast.literal_eval(first)
        if facts is not None and type(axis) is int:
            facts.uses.add("tensor")
            facts.sizes.setdefault(axis, count)
            facts.min_rank = max(facts.min_rank, axis + 1 if axis >= 0 else -axis)


def find_class(tree: ast.Module, name: str) -> ast.ClassDef | None:
    """Return the definition of a class at the top level, or None."""
    return next((n for n in reversed(_definitions(tree.body)) if n.name == name and isinstance(n, ast.ClassDef)), None)


def find_function(tree: ast.Module, name: str) -> FunctionNode | None:
    """Return the definition of a qualified name, or None; a lambda that is bound to it and a step count as one."""
    body: Sequence[ast.stmt] = tree.body
    function: FunctionNode | None = None
    for part in name.split("."):
        match = [n for n in _definitions(body) if n.name in (part, STEP.format(part))]
        if not match:
            return None
        body = match[-1].body
        function = None if isinstance(match[-1], ast.ClassDef) else match[-1]
    return function


def _definitions(body: Sequence[ast.AST]) -> list[FunctionNode | ast.ClassDef]:
    definitions: list[FunctionNode | ast.ClassDef] = []
    for node in body:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            definitions.append(node)
        elif isinstance(node, ast.stmt) and (function := bound_lambda(node)) is not None:
            definitions.append(function)
        elif isinstance(node, (ast.If, ast.Try, ast.With, ast.AsyncWith, ast.ExceptHandler, ast.For, ast.While)):
            definitions += _definitions(list(ast.iter_child_nodes(node)))
    return definitions
