"""List the definitions of a file by qualified name, without judging what they do. Reads syntax only."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fx_lsp.syntax import FUNCTIONS, FunctionNode, assigned, bound_lambda, is_main_guard
from fx_lsp.tracing.source.index import ModuleIndex
from fx_lsp.tracing.source.parsing import walk
from fx_lsp.tracing.source.tensor_code import dotted, imports_torch, is_stdlib, parameters


@dataclass(frozen=True)
class Function:
    """Describe a function: `owner` is the class of a method; `outer` the qualified name of the function around a nested
    one.
    """

    node: FunctionNode
    owner: str | None
    params: list[ast.arg]
    outer: str | None = None


@dataclass(frozen=True)
class Class:
    """Describe a class: `layers` maps attributes that its constructor fills with an instance to the instance's
    class.
    """

    node: ast.ClassDef
    bases: tuple[str, ...]
    forward: FunctionNode | None
    layers: dict[str, str]


@dataclass(frozen=True)
class Partial:
    """Describe `name = functools.partial(of, …)`: the statement `node` with its call."""

    node: ast.stmt
    of: str
    call: ast.Call

    def left(self, params: list[ast.arg]) -> list[ast.arg]:
        """Return the parameters of `of` that are not yet bound."""
        named = {keyword.arg for keyword in self.call.keywords}
        return [param for param in params[len(self.call.args) - 1 :] if param.arg not in named]


@dataclass
class Outline:
    """Hold the definitions of a file. `modules` are classes of `nn.Module`s, `excluded` functions that are never
    targets.
    """

    imports: Mapping[str, str]
    classes: dict[str, Class] = field(default_factory=dict[str, Class])
    functions: dict[str, Function] = field(default_factory=dict[str, Function])
    partials: dict[str, Partial] = field(default_factory=dict[str, Partial])
    modules: set[str] = field(default_factory=set[str])
    excluded: set[str] = field(default_factory=set[str])
    autograd: set[str] = field(default_factory=set[str])

    @property
    def uses_torch(self) -> bool:
        """Return True if the file imports torch."""
        return imports_torch(self.imports)

    def layers_of(self, function: Function) -> frozenset[str]:
        """Return the attributes of `self` that hold modules, for a method.

        In a module, these are all instances of classes; elsewhere, those of a class of torch, of a module class of the
        file, or of a class that is imported by its name, as models are.
        """
        if function.owner is None:
            return frozenset()
        layers = self.classes[function.owner].layers
        if function.owner in self.modules:
            return frozenset(layers)
        imported = set(self.imports.values())
        return frozenset(
            attribute
            for attribute, name in layers.items()
            if name.startswith("torch.nn.") or name in self.modules or name in imported
        )

    def members_of_modules(self) -> dict[str, frozenset[str]]:
        """Return the names of the methods and layers of each class of modules."""
        classes = ((name, self.classes[name]) for name in self.modules)
        methods = {name: [m.name for m in class_.node.body if isinstance(m, FUNCTIONS)] for name, class_ in classes}
        return {name: frozenset({*names, *self.classes[name].layers}) for name, names in methods.items()}

    def forwards(self) -> dict[str, Function]:
        """Return the `forward` of each module, which is not a separate target."""
        methods = ((f"{name}.forward", name, self.classes[name].forward) for name in self.modules)
        return {name: Function(node, owner, parameters(node, skip_first=True)) for name, owner, node in methods if node}


# fmt: off
_SKIPPED_DECORATORS = frozenset({
    "overload", "abstractmethod", "abstractproperty", "property", "cached_property", "setter", "getter", "deleter",
    "contextmanager", "asynccontextmanager", "fixture",
})
# fmt: on
_NO_FORWARD = re.compile(r"torch\.nn\.(modules\.\w+\.)*(Module|ModuleList|ModuleDict|ParameterList|ParameterDict)$")


def outline_of(index: ModuleIndex) -> Outline:
    """Return the definitions at the top level of a file, in its classes, and inside its functions."""
    outline = Outline(index.all_imports)
    for node in _statements(index.tree.body):
        if isinstance(node, ast.ClassDef):
            outline.classes[node.name] = _describe_class(node, outline.imports)
        elif (function := node if isinstance(node, FUNCTIONS) else bound_lambda(node)) is not None:
            _add_function(outline, function, None)
        else:
            _add_partial(outline, node)
    outline.modules.update(name for name, class_ in outline.classes.items() if _is_module(class_, outline))
    for name, class_ in outline.classes.items():
        if _is_autograd_function(class_):
            outline.autograd.add(name)
        if _is_autograd_function(class_) or _holds_no_code(class_):
            continue
        for node in class_.node.body:
            if isinstance(node, FUNCTIONS):
                _add_function(outline, node, name)
    for name, function in [*outline.functions.items(), *outline.forwards().items()]:
        _add_nested(outline, name, function.node)
    return outline


def target_classes(outline: Outline) -> set[str]:
    """Return the modules that can be called."""
    return {name for name in outline.modules if _has_forward(outline.classes[name], outline)}


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements at the top level of a file, and those in its `if`, `try` and `with` blocks."""
    stack = body[::-1]
    while stack:
        node = stack.pop()
        blocks: list[list[ast.stmt]] = []
        if isinstance(node, ast.If):
            blocks = [] if is_main_guard(node) or _is_type_checking(node) else [node.body, node.orelse]
        elif isinstance(node, ast.Try):
            blocks = [node.body, *(handler.body for handler in node.handlers), node.orelse]
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            blocks = [node.body]
        else:
            yield node
        for block in reversed(blocks):
            stack.extend(reversed(block))


def body_of(node: FunctionNode) -> list[ast.stmt]:
    """Return the statements of a function without its docstring."""
    return node.body if ast.get_docstring(node, clean=False) is None else node.body[1:]


def _add_nested(outline: Outline, outer: str, node: FunctionNode) -> None:
    """Add the functions inside a function, `outer.inner`, and those nested deeper."""
    for inner in _statements(node.body):
        if isinstance(inner, FUNCTIONS):
            name = f"{outer}.{inner.name}"
            outline.functions[name] = Function(inner, None, parameters(inner, skip_first=False), outer)
            if _is_no_target(inner, outline.functions[name].params, outline.imports):
                outline.excluded.add(name)
            _add_nested(outline, name, inner)


def _add_partial(outline: Outline, node: ast.stmt) -> None:
    """Record `name = functools.partial(function, …)`."""
    for name, call in assigned(node):
        if not isinstance(call, ast.Call) or not call.args or not isinstance(first := call.args[0], ast.Name):
            continue
        plain = not any(isinstance(arg, ast.Starred) for arg in call.args) and all(k.arg for k in call.keywords)
        if plain and dotted(call.func, outline.imports) == "functools.partial":
            outline.partials[name] = Partial(node, first.id, call)


def _is_type_checking(node: ast.If) -> bool:
    return any(isinstance(n, (ast.Name, ast.Attribute)) and _last_name(n) == "TYPE_CHECKING" for n in walk(node.test))


def _describe_class(node: ast.ClassDef, imports: Mapping[str, str]) -> Class:
    bases = tuple(name for base in node.bases if (name := dotted(_unsubscripted(base), imports)))
    methods = {m.name: m for m in node.body if isinstance(m, FUNCTIONS)}
    forward = methods.get("forward")
    if forward is not None and (_decorators(forward) & {"staticmethod", "classmethod", "abstractmethod"}):
        forward = None
    constructor = methods.get("__init__")
    layers = dict(_layers(constructor, imports)) if constructor else dict[str, str]()
    return Class(node, bases, forward, layers)


def _layers(constructor: FunctionNode, imports: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Return the attributes that a constructor fills with an instance of a class: `self.up = nn.Linear(dim, dim)`."""
    for node in walk(*constructor.body):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            name = dotted(node.value.func, imports)
            if name and name.rpartition(".")[2][:1].isupper() and not is_stdlib(name):
                for target in node.targets:
                    if isinstance(target, ast.Attribute) and _last_name(target.value) == "self":
                        yield target.attr, name


def _is_module(class_: Class, outline: Outline) -> bool:
    family = _family(class_, outline)
    outside = {base for member in family for base in member.bases if base not in outline.classes}
    if any(base.startswith("torch.nn.") or base.rpartition(".")[2].endswith("Module") for base in outside):
        return True
    imported = any("." in base and not is_stdlib(base) and not base.startswith("torch.") for base in outside)
    return imported and any(m.forward for m in family) and any(_calls_super(m.node) for m in family)


def _family(class_: Class, outline: Outline) -> list[Class]:
    """Return a class and its bases in this file, nearest first."""
    family, names = [class_], {class_.node.name}
    for member in family:
        local = [base for base in dict.fromkeys(member.bases) if base in outline.classes and base not in names]
        names.update(local)
        family.extend(outline.classes[base] for base in local)
    return family


def _has_forward(class_: Class, outline: Outline) -> bool:
    family = _family(class_, outline)
    forward = next((member.forward for member in family if member.forward), None)
    if forward is not None:
        return not _is_stub(forward)
    return any(base.startswith("torch.nn.") and not _NO_FORWARD.match(base) for m in family for base in m.bases)


def _calls_super(node: ast.ClassDef) -> bool:
    return any(
        isinstance(n, ast.Call)
        and isinstance(n.func, ast.Attribute)
        and n.func.attr == "__init__"
        and isinstance(n.func.value, ast.Call)
        and _last_name(n.func.value.func) == "super"
        for n in walk(node)
    )


def _holds_no_code(class_: Class) -> bool:
    last = {base.rpartition(".")[2] for base in class_.bases}
    return bool(last & {"Protocol", "TypedDict", "Enum", "TestCase"})


def _is_autograd_function(class_: Class) -> bool:
    """Return True if a class is a `torch.autograd.Function`, which runs when its `apply` is called."""
    bases = {base.replace("torch.autograd.function.", "torch.autograd.") for base in class_.bases}
    return "torch.autograd.Function" in bases


def _add_function(outline: Outline, node: FunctionNode, owner: str | None) -> None:
    name = f"{owner}.{node.name}" if owner else node.name
    decorators = _decorators(node)
    is_dunder = node.name.startswith("__") and node.name.endswith("__")
    module = owner in outline.modules
    if is_dunder and not (owner and node.name == "__call__" and not module):
        return
    if module and node.name == "forward":
        return
    outline.functions.pop(name, None)
    outline.excluded.discard(name)
    params = parameters(node, skip_first=owner is not None and "staticmethod" not in decorators)
    outline.functions[name] = Function(node, owner, params)
    if _is_no_target(node, params, outline.imports):
        outline.excluded.add(name)


def has_skipped_decorator(node: FunctionNode) -> bool:
    """Return True if a decorator turns a function into something else: a property, a context, a fixture."""
    return bool(_decorators(node) & _SKIPPED_DECORATORS)


def _is_no_target(node: FunctionNode, params: list[ast.arg], imports: Mapping[str, str]) -> bool:
    return (
        not params
        or node.name == "_"
        or has_skipped_decorator(node)
        or _is_foreign_kernel(node, imports)
        or _is_stub(node)
    )


def _is_foreign_kernel(node: FunctionNode, imports: Mapping[str, str]) -> bool:
    """Return True if another compiler's `jit` decorates the function, so that PyTorch does not run it as Python."""
    for decorator in node.decorator_list:
        name = dotted(decorator.func if isinstance(decorator, ast.Call) else decorator, imports) or ""
        if name.rpartition(".")[2] in ("jit", "njit") and not name.startswith("torch."):
            return True
    return False


def _is_stub(node: FunctionNode) -> bool:
    return all(isinstance(n, ast.Pass) or _is_ellipsis(n) or _raises_not_implemented(n) for n in body_of(node))


def _is_ellipsis(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.value.value is ...


def _raises_not_implemented(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Raise) or node.exc is None:
        return False
    raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    return _last_name(raised) == "NotImplementedError"


def _decorators(node: FunctionNode) -> set[str]:
    return {
        name
        for decorator in node.decorator_list
        if (name := _last_name(decorator.func if isinstance(decorator, ast.Call) else decorator))
    }


def _last_name(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else None


def _unsubscripted(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Subscript) else node
