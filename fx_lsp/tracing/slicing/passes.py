"""Find the passes in a file: definitions that rewrite graph modules, or match parts of them. Reads syntax only."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from fx_lsp import files
from fx_lsp.messages.requests import CORRECT_PASSES, NO_FILE_OF_PASS, NO_PASS_AT_ALL, NO_SUCH_PASS, UNREADABLE_PASS
from fx_lsp.model import Failure, Pass, PassKind, PassSource, Span, TraceRequest, read_work
from fx_lsp.syntax import FUNCTIONS, FunctionNode, assigned
from fx_lsp.tracing.slicing.module_slice import SourceGraph
from fx_lsp.tracing.source.index import ModuleIndex
from fx_lsp.tracing.source.parsing import module_name, parse, split_lines, walk

_FX = re.compile(r"\btorch\.(fx|_inductor|export|ao)\b")
_GRAPHS = frozenset({"GraphModule", "Graph"})
_ANSWERS = _GRAPHS | {"PassResult", "Module", "None", "bool", "Any"}
_CLASSES: dict[str, PassKind] = {
    "Transformer": "transformer",
    "PassBase": "transformer",
    "ExportPass": "transformer",
    "OperatorSupport": "support",
    "OperatorSupportBase": "support",
}
_MAKERS: dict[str, PassKind] = {
    "PassManager": "manager",
    "SubgraphMatcher": "matcher",
    "SubgraphMatcherWithNameNodeMap": "matcher",
    "OperatorSupport": "support",
    "chain": "support",
    "any_chain": "support",
    "create_op_support": "support",
}
_REWRITES = frozenset(
    {"erase_node", "replace_all_uses_with", "replace_input_with", "inserting_before", "inserting_after", "recompile"}
)
_FIELDS = frozenset({"target", "args", "kwargs"})
_REPLACE = frozenset({"replace_pattern", "replace_pattern_with_filters"})


def find_passes(file: str, text: str, index: ModuleIndex) -> tuple[Pass, ...]:
    """Return the passes at the top level of a file, in source order; empty if it imports nothing of torch.fx."""
    names = set(index.all_imports.values())
    if not any(_FX.match(name) for name in names) and not ("torch" in names and _FX.search(text)):
        return ()
    lines = split_lines(text)
    by_name: dict[str, Pass] = {}
    for name, node, kind, uses in _candidates(index):
        end = (node.end_lineno or node.lineno, node.end_col_offset or 0)
        whole = Span(file, node.lineno, node.col_offset, *end)
        by_name.setdefault(name, Pass(file, name, kind, whole, _name_span(file, lines, node.lineno, name), uses))
    used = {use for item in by_name.values() for use in item.uses} | _checks(index.tree)
    return tuple(sorted((p for p in by_name.values() if p.name not in used), key=lambda p: p.name_span.line))


_Candidate = tuple[str, ast.stmt, PassKind, tuple[str, ...]]


def _candidates(index: ModuleIndex) -> Iterator[_Candidate]:
    functions = index.functions
    classes: dict[str, PassKind] = {}
    for node in index.body:
        if isinstance(node, ast.ClassDef):
            kind_by_base: dict[str, PassKind] = {**_CLASSES, **classes}
            kinds: list[PassKind] = [kind_by_base[base] for base in map(_last, node.bases) if base in kind_by_base]
            if kinds:
                classes[node.name] = kinds[0]
                yield node.name, node, kinds[0], ()
        elif isinstance(node, FUNCTIONS) and _takes_graph(node):
            yield node.name, node, "function", ()
        for name, value in assigned(node):
            if isinstance(value, ast.Call) and (kind := _made(value, functions, classes)) is not None:
                yield name, node, kind, ()
            elif isinstance(value, ast.Tuple) and _is_rewriting(value, functions):
                yield name, node, "rewrite", ()
    yield from _pairs(index.tree, functions)


def _made(call: ast.Call, functions: Mapping[str, FunctionNode], classes: Mapping[str, PassKind]) -> PassKind | None:
    """Return the kind of pass that a call creates: an object of a class of the file, a partial pass, or one of
    torch.fx.
    """
    maker = _last(call.func)
    if maker in classes:
        return "function" if classes[maker] == "transformer" else classes[maker]
    if maker == "partial" and call.args:
        function = functions.get(_last(call.args[0]))
        return "function" if function is not None and _takes_graph(function, {k.arg for k in call.keywords}) else None
    return _MAKERS.get(maker)


def _checks(tree: ast.Module) -> set[str]:
    """Return the functions that are passed to a pass manager as checks."""
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and _last(n.func) == "add_checks"]
    return {_last(argument) for call in calls for argument in call.args}


def _takes_graph(node: FunctionNode, bound: Collection[str | None] = ()) -> bool:
    """Return True if a function rewrites the graph module that it receives, by its annotations or its body.

    All its other required arguments are `bound`, and it returns the result of a pass.
    """
    arguments = [*node.args.posonlyargs, *node.args.args]
    required = arguments[1 : max(1, len(arguments) - len(node.args.defaults))]
    named = [a for a, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if default is None]
    if not arguments or any(a.arg not in bound for a in (*required, *named)):
        return False
    if node.returns is not None and not _ANSWERS & _names(node.returns):
        return False
    first = arguments[0]
    if first.annotation is not None:
        return _last(first.annotation) in _GRAPHS
    nodes = list(walk(node))
    reads = any(
        isinstance(n, ast.Attribute) and n.attr == "graph" and isinstance(n.value, ast.Name) and n.value.id == first.arg
        for n in nodes
    )
    return reads and any(
        isinstance(n, ast.Attribute) and (n.attr in _REWRITES or (n.attr in _FIELDS and isinstance(n.ctx, ast.Store)))
        for n in nodes
    )


def _is_rewriting(value: ast.Tuple, functions: Mapping[str, FunctionNode]) -> bool:
    names = [e.id for e in value.elts if isinstance(e, ast.Name)]
    if len(names) < 2 or names[0] not in functions or names[1] not in functions:
        return False
    pattern, replacement = (functions[name].args for name in names[:2])
    return len(pattern.args) == len(replacement.args)


def _pairs(tree: ast.Module, functions: Mapping[str, FunctionNode]) -> Iterator[_Candidate]:
    """Return patterns with their replacements: named by a call of the rewriter, or by their own names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _last(node.func) in _REPLACE and len(node.args) >= 3:
            names = [a.id for a in node.args[1:3] if isinstance(a, ast.Name) and a.id in functions]
            if len(names) == 2:
                filters = _filters(node, functions)
                yield names[0], functions[names[0]], "rewrite", (names[1], *filters)
    for name, function in functions.items():
        other = re.sub(r"pattern$", "replacement", name)
        if other != name and other in functions:
            filters = [n for n in (re.sub(r"pattern$", "filter", name),) if n in functions]
            yield name, function, "rewrite", (other, *filters)


def _filters(call: ast.Call, functions: Mapping[str, FunctionNode]) -> list[str]:
    values = [*call.args[3:4], *(k.value for k in call.keywords if k.arg == "match_filters")]
    items = [e for value in values if isinstance(value, (ast.List, ast.Tuple)) for e in value.elts]
    return [e.id for e in items if isinstance(e, ast.Name) and e.id in functions]


def _last(node: ast.expr) -> str:
    """Return the last part of a dotted name, also of one in quotes, of the first of `A | None` and of `Optional[A]`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value.rpartition(".")[2]
    if isinstance(node, ast.BinOp):
        return _last(node.left)
    if isinstance(node, ast.Subscript):
        return _last(node.slice) if _last(node.value) == "Optional" else ""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _names(annotation: ast.expr) -> set[str]:
    """Return every name in an annotation."""
    nodes = [n for n in ast.walk(annotation) if isinstance(n, (ast.Name, ast.Attribute, ast.Constant))]
    return {word for n in nodes for word in re.findall(r"\w+", _last(n) or str(getattr(n, "value", "")))}


def _name_span(file: str, lines: list[str], line: int, name: str) -> Span:
    text = lines[line - 1] if line <= len(lines) else ""
    at = re.search(rf"\b{re.escape(name)}\b", text)
    start = len(text[: at.start()].encode()) if at else 0
    return Span(file, line, start, line, start + len(name.encode()) if at else 0)


def with_passes(
    request: TraceRequest, configured: Sequence[str], overlays: Mapping[str, str]
) -> TraceRequest | Failure:
    """Return a request with the passes for its work: the named one, or the `configured` ones.

    Returns a `Failure` for a missing one. `overlays` are unsaved texts by file.
    """
    work = read_work(request.work)
    wanted = [work["pass"]] if "pass" in work else list(configured) if work.keys() & {"passes", "diverge"} else []
    sources: list[PassSource] = []
    for identifier in wanted:
        source = _source(identifier, overlays, request.roots, "pass" not in work)
        if isinstance(source, Failure):
            return source
        sources.append(source)
    return replace(request, passes=tuple(sources))


def _source(
    identifier: str, overlays: Mapping[str, str], roots: tuple[str, ...], configured: bool
) -> PassSource | Failure:
    file, _, name = identifier.rpartition("::")
    hint = CORRECT_PASSES if configured else ""
    try:
        text = overlays[file] if file in overlays else files.read_python(file)
    except FileNotFoundError:
        return NO_FILE_OF_PASS.failure(hint=hint, file=file, name=name)
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        return UNREADABLE_PASS.failure(hint=hint, file=file, name=name, error=error)
    tree = parse(file, text)
    if isinstance(tree, Failure):
        return replace(tree, message=f"the file of the pass {name} does not parse: {tree.message}")
    graph = SourceGraph(text, tree)
    passes = find_passes(file, text, graph.index)
    pass_ = next((p for p in passes if p.name == name), None)
    if pass_ is None:
        if not passes:
            return NO_PASS_AT_ALL.failure(hint=hint, file=file, name=name)
        return NO_SUCH_PASS.failure(hint=hint, file=file, name=name, passes=", ".join(p.name for p in passes))
    module, package, root = module_name(file)
    part = graph.slice(name, pass_.uses)
    return PassSource(pass_, text, part.text, module, package, tuple(dict.fromkeys((root, *roots))))
