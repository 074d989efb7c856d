"""Find what can be traced in a file: functions, methods and `nn.Module` classes. Reads syntax only, runs nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from fx_lsp.model import Failure, Span, Target, TargetKind
from fx_lsp.specs import FX_COMMENT
from fx_lsp.tracing.evidence import Look, collect_imports, dotted, is_stdlib, look_at, parameters, receives_parameter
from fx_lsp.tracing.parsing import end_of, is_main_guard, parse, split_lines, start_of, walk


@dataclass(frozen=True)
class Discovery:
    """The targets of a file in source order; `failure` (kind "syntax") says why there are none."""

    targets: tuple[Target, ...]
    failure: Failure | None


def discover(file: str, text: str, tree: ast.Module | None = None, asked: Collection[str] = frozenset()) -> Discovery:
    """Find the targets in `text`. Pass `tree` when the text is parsed already.

    `asked` names functions that are targets whatever they look like. A guess that is wrong runs somebody's script, so
    that other functions which look like programs are left out.
    """
    if tree is None:
        parsed = parse(file, text)
        if isinstance(parsed, Failure):
            return Discovery((), parsed)
        tree = parsed
    outline = _outline(tree)
    looks = _looks(outline)
    accepted = _accept(outline, looks)
    modules = _target_classes(outline)
    lines = split_lines(text)
    accepted |= _asked_for(outline, lines) | (outline.functions.keys() & asked) - outline.excluded
    targets = [
        _target(file, lines, name, outline.functions[name].node, _kind(outline.functions[name])) for name in accepted
    ]
    targets += [_target(file, lines, name, outline.classes[name].node, "module") for name in modules]
    targets += [_target(file, lines, name, outline.classes[name].node, "function") for name in outline.autograd]
    return Discovery(tuple(sorted(targets, key=lambda t: (t.span.line, t.span.col))), None)


def _asked_for(outline: _Outline, lines: list[str]) -> set[str]:
    """Functions with a `# fx:` comment: what they look like does not matter, their author wants them traced."""
    marked = [number for number, line in enumerate(lines, 1) if FX_COMMENT.search(line)]
    asked: set[str] = set()
    for name, function in outline.functions.items():
        first = start_of(function.node)[0]
        while first > 1 and lines[first - 2].lstrip().startswith("#"):
            first -= 1
        if name not in outline.excluded and any(first <= number <= function.node.body[0].lineno for number in marked):
            asked.add(name)
    return asked


@dataclass(frozen=True)
class _Function:
    """`owner` is the class of a method; `outer` the qualified name of the function around a nested one."""

    node: ast.FunctionDef
    owner: str | None
    params: list[ast.arg]
    outer: str | None = None


@dataclass(frozen=True)
class _Class:
    node: ast.ClassDef
    bases: tuple[str, ...]
    forward: ast.FunctionDef | None
    layers: frozenset[str]


@dataclass
class _Outline:
    imports: dict[str, str]
    classes: dict[str, _Class] = field(default_factory=dict[str, _Class])
    functions: dict[str, _Function] = field(default_factory=dict[str, _Function])
    modules: set[str] = field(default_factory=set[str])
    excluded: set[str] = field(default_factory=set[str])
    autograd: set[str] = field(default_factory=set[str])


_SKIPPED_DECORATORS = frozenset(
    {"overload", "abstractmethod", "abstractproperty", "property", "cached_property", "setter", "getter", "deleter"}
)
_WORD = re.compile(rb"[\w\x80-\xff]+")
_NO_FORWARD = re.compile(r"torch\.nn\.(modules\.\w+\.)*(Module|ModuleList|ModuleDict|ParameterList|ParameterDict)$")


def _outline(tree: ast.Module) -> _Outline:
    outline = _Outline(collect_imports(walk(tree)))
    for node in _definitions(tree.body):
        if isinstance(node, ast.ClassDef):
            outline.classes[node.name] = _describe_class(node, outline.imports)
        else:
            _add_function(outline, node, None)
    outline.modules.update(name for name, found in outline.classes.items() if _is_module(found, outline))
    for name, found in outline.classes.items():
        if _is_autograd_function(found):
            outline.autograd.add(name)
        if _is_autograd_function(found) or _holds_no_code(found):
            continue
        for node in found.node.body:
            if isinstance(node, ast.FunctionDef):
                _add_function(outline, node, name)
    for name, function in list(outline.functions.items()):
        _add_nested(outline, name, function.node)
    for name in outline.modules:
        if (forward := outline.classes[name].forward) is not None:
            _add_nested(outline, f"{name}.forward", forward)
    return outline


def _add_nested(outline: _Outline, outer: str, node: ast.FunctionDef) -> None:
    """The functions directly inside a function: `outer.inner`."""
    for inner in _definitions(node.body):
        if isinstance(inner, ast.FunctionDef):
            name = f"{outer}.{inner.name}"
            outline.functions[name] = _Function(inner, None, parameters(inner, skip_first=False), outer)
            if _is_no_target(inner, outline.functions[name].params, outline.imports):
                outline.excluded.add(name)


def _definitions(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    """Definitions at the top level of a file, also inside its `if`, `try` and `with` blocks."""
    stack = body[::-1]
    while stack:
        node = stack.pop()
        blocks: list[list[ast.stmt]] = []
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node
        elif isinstance(node, ast.If) and not is_main_guard(node) and not _is_type_checking(node):
            blocks = [node.body, node.orelse]
        elif isinstance(node, ast.Try):
            blocks = [node.body, *(handler.body for handler in node.handlers), node.orelse]
        elif isinstance(node, ast.With):
            blocks = [node.body]
        for block in reversed(blocks):
            stack.extend(reversed(block))


def _is_type_checking(node: ast.If) -> bool:
    return any(isinstance(n, (ast.Name, ast.Attribute)) and _last_name(n) == "TYPE_CHECKING" for n in walk(node.test))


def _describe_class(node: ast.ClassDef, imports: Mapping[str, str]) -> _Class:
    bases = tuple(name for base in node.bases if (name := dotted(_unsubscripted(base), imports)))
    methods = {m.name: m for m in node.body if isinstance(m, ast.FunctionDef)}
    forward = methods.get("forward")
    if forward is not None and (_decorators(forward) & {"staticmethod", "classmethod", "abstractmethod"}):
        forward = None
    constructor = methods.get("__init__")
    layers = frozenset(_layers(constructor, imports)) if constructor else frozenset[str]()
    return _Class(node, bases, forward, layers)


def _layers(constructor: ast.FunctionDef, imports: Mapping[str, str]) -> Iterator[str]:
    """Attributes that a constructor fills with something built by a class: `self.up = nn.Linear(dim, dim)`."""
    for node in walk(*constructor.body):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            name = dotted(node.value.func, imports)
            if name and name.rpartition(".")[2][:1].isupper() and not is_stdlib(name):
                for target in node.targets:
                    if isinstance(target, ast.Attribute) and _last_name(target.value) == "self":
                        yield target.attr


def _is_module(found: _Class, outline: _Outline) -> bool:
    family = _family(found, outline)
    outside = {base for member in family for base in member.bases if base not in outline.classes}
    if any(base.startswith("torch.nn.") or base.rpartition(".")[2].endswith("Module") for base in outside):
        return True
    imported = any("." in base and not is_stdlib(base) and not base.startswith("torch.") for base in outside)
    return imported and any(m.forward for m in family) and any(_calls_super(m.node) for m in family)


def _family(found: _Class, outline: _Outline) -> list[_Class]:
    """A class and its bases in this file, nearest first."""
    family = [found]
    for member in family:
        local = (outline.classes[base] for base in member.bases if base in outline.classes)
        family.extend(base for base in local if base not in family)
    return family


def _target_classes(outline: _Outline) -> set[str]:
    return {name for name in outline.modules if _has_forward(outline.classes[name], outline)}


def _has_forward(found: _Class, outline: _Outline) -> bool:
    family = _family(found, outline)
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


def _holds_no_code(found: _Class) -> bool:
    last = {base.rpartition(".")[2] for base in found.bases}
    return bool(last & {"Protocol", "TypedDict", "Enum", "TestCase"})


def _is_autograd_function(found: _Class) -> bool:
    """Whether a class is a `torch.autograd.Function`, which runs when its `apply` is called."""
    bases = {base.replace("torch.autograd.function.", "torch.autograd.") for base in found.bases}
    return "torch.autograd.Function" in bases


def _add_function(outline: _Outline, node: ast.FunctionDef, owner: str | None) -> None:
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
    outline.functions[name] = _Function(node, owner, params)
    if _is_no_target(node, params, outline.imports):
        outline.excluded.add(name)


def _is_no_target(node: ast.FunctionDef, params: list[ast.arg], imports: Mapping[str, str]) -> bool:
    return (
        not params
        or bool(_decorators(node) & _SKIPPED_DECORATORS)
        or _is_foreign_kernel(node, imports)
        or _is_stub(node)
        or any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in walk(*node.body))
    )


def _is_foreign_kernel(node: ast.FunctionDef, imports: Mapping[str, str]) -> bool:
    """Whether another compiler's `jit` decorates the function, so that it is not Python that PyTorch runs."""
    for decorator in node.decorator_list:
        name = dotted(decorator.func if isinstance(decorator, ast.Call) else decorator, imports) or ""
        if name.rpartition(".")[2] in ("jit", "njit") and not name.startswith("torch."):
            return True
    return False


def _looks(outline: _Outline) -> dict[str, Look]:
    uses_torch = any(name.partition(".")[0] == "torch" for name in outline.imports.values())
    looks: dict[str, Look] = {}
    for name, function in outline.functions.items():
        layers = outline.classes[function.owner].layers if function.owner else frozenset[str]()
        looks[name] = look_at(function.node, function.params, outline.imports, layers, uses_torch)
    return looks


def _accept(outline: _Outline, looks: Mapping[str, Look]) -> set[str]:
    programs = {name for name, look in looks.items() if look.program}
    programs |= {name for name, function in outline.functions.items() if function.outer in programs}
    while True:
        callers = {name for name in looks if name not in programs and _callees(name, outline, looks) & programs}
        if not callers:
            break
        programs |= callers
    candidates = [name for name in looks if name not in programs and name not in outline.excluded]
    accepted = {name for name in candidates if looks[name].tensors}
    modules = _target_classes(outline)
    while True:
        callees = accepted | modules
        more = {
            name
            for name in candidates
            if name not in accepted
            and _callees(name, outline, looks) & accepted
            and (
                _self_callees(name, outline, looks) & accepted
                or receives_parameter(outline.functions[name].node, outline.functions[name].params, callees)
            )
        }
        if not more:
            return accepted
        accepted |= more


def _callees(name: str, outline: _Outline, looks: Mapping[str, Look]) -> set[str]:
    return set(looks[name].calls) | _self_callees(name, outline, looks)


def _self_callees(name: str, outline: _Outline, looks: Mapping[str, Look]) -> set[str]:
    owner = outline.functions[name].owner
    return {f"{owner}.{method}" for method in looks[name].self_calls} if owner else set()


def _is_stub(node: ast.FunctionDef) -> bool:
    body = node.body
    if (
        isinstance(body[0], ast.Expr)
        and isinstance(body[0].value, ast.Constant)
        and isinstance(body[0].value.value, str)
    ):
        body = body[1:]
    return all(isinstance(n, ast.Pass) or _is_ellipsis(n) or _raises_not_implemented(n) for n in body)


def _is_ellipsis(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.value.value is ...


def _raises_not_implemented(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Raise) or node.exc is None:
        return False
    raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    return _last_name(raised) == "NotImplementedError"


def _decorators(node: ast.FunctionDef) -> set[str]:
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


def _kind(function: _Function) -> TargetKind:
    return "method" if function.owner else "function"


def _target(file: str, lines: list[str], name: str, node: ast.FunctionDef | ast.ClassDef, kind: TargetKind) -> Target:
    return Target(file, name, kind, _name_span(file, lines, node), Span(file, *start_of(node), *end_of(node)))


def _name_span(file: str, lines: list[str], node: ast.FunctionDef | ast.ClassDef) -> Span:
    """The identifier after `def` or `class`, which may stand on a continuation line."""
    name = node.name.encode()
    col = node.col_offset + len("def" if isinstance(node, ast.FunctionDef) else "class")
    for line in range(node.lineno, min(node.lineno + 3, len(lines) + 1)):
        for found in _WORD.finditer(lines[line - 1].encode("utf-8", "surrogatepass"), col):
            if found[0] == name:
                return Span(file, line, found.start(), line, found.end())
        col = 0
    return Span(file, node.lineno, node.col_offset, node.lineno, node.col_offset + 3)
