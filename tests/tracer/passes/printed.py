"""Graphs as they are printed, by torch and by fx-lsp, read back so that they can be compared."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from fx_lsp.model import Stage

_LOGGED = re.compile(r"^[IV]\d{4} \S+ \d+ \S+\] (?:\[\S+\] )?\[__\w+\] (?P<text>.*)$")
_TITLE = re.compile(r"^ ===== (.*?)(?: \d+)? =====$")
_NAME = re.compile(r"\b_(\d+)\b")
_SPEC = re.compile(r"^(?P<dtype>\w+)\[(?P<sizes>[\d, ]*)\](?:[\[(](?P<strides>[\d, ]*)[\])])?(?:cpu)?$")


@dataclass(frozen=True)
class Row:
    """A node: its operation, what it calls, its arguments with `_3` for the fourth node, and its spec.

    The target of a placeholder is "tangent" where it is a gradient; the spec is "" where the log has none: of what is
    no tensor, and of results.
    """

    op: str
    target: str
    args: tuple[str, ...]
    spec: str = ""


def logged_graphs(log: str) -> Iterator[tuple[str, list[Row]]]:
    """The graphs of a log, each with its title: `Joint graph`, `Forward graph`, `AFTER POST GRAD`."""
    title, code = "", list[str]()
    for line in [*log.splitlines(), ""]:
        found = _LOGGED.match(line)
        text = found["text"] if found else ""
        head = _TITLE.match(text)
        if head or not found or text[:1] not in ("", " "):
            if code:
                yield title, rows_of_code("\n".join(code))
            title, code = (head[1] if head else ""), []
        elif title:
            code.append(text)
    assert not code


def rows_of_code(code: str) -> list[Row]:
    """The nodes of a graph module as `print_readable` writes it."""
    source = re.sub(r"^ .*?class .*?\(", "class Graph(", code, count=1)
    function = next(n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef))
    names: dict[str, str] = {}
    rows: list[Row] = []

    def add(name: str, op: str, target: str, args: Sequence[ast.expr], annotation: ast.expr | None) -> None:
        spec = annotation.value if isinstance(annotation, ast.Constant) else ""
        rows.append(Row(op, target, tuple(_argument(a, names) for a in args), _spec(str(spec))))
        names[name] = f"_{len(names)}"

    for argument in function.args.args[1:]:
        if argument.annotation is not None:
            add(argument.arg, "placeholder", _input(argument.arg), (), argument.annotation)
    for statement in function.body:
        if isinstance(statement, ast.Return):
            value = statement.value
            assert value is not None
            if isinstance(value, ast.Call):  # pytree.tree_unflatten(outputs, spec)
                value = value.args[0]
            add("", "output", "", [value], None)
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            if statement.value is None:
                add(statement.target.id, "placeholder", _input(statement.target.id), (), statement.annotation)
            else:
                add(statement.target.id, *_called(statement.value), statement.annotation)
        elif isinstance(statement, ast.Assign) and isinstance(name := statement.targets[0], ast.Name):
            called = statement.value
            if ast.unparse(called) != "None":
                add(name.id, *_called(called), None)
    return rows


def rows_of_stage(stage: Stage) -> list[Row]:
    """The nodes of a stage, in the same form."""
    names: dict[str, str] = {}
    rows: list[Row] = []
    for node in stage.nodes:
        parsed = ast.parse(f"f({', '.join(node.args)})", mode="eval").body
        assert isinstance(parsed, ast.Call)
        args = tuple(_argument(a, names) for a in (*parsed.args, *parsed.keywords))
        target = {"placeholder": _input(node.target), "output": ""}.get(node.op, node.target)
        spec = "" if (node.spec or "").startswith("(") or node.op == "output" else _spec(node.spec or "")
        rows.append(Row(node.op, target, args, spec))
        names[node.name] = f"_{len(names)}"
    return rows


def in_order_of_use(graphs: Sequence[list[Row]]) -> list[list[Row]]:
    """Joint, forward and backward graph, or an inference graph, as if the inputs came in the order in which they are
    used first, without those that nobody uses; gradients, what is saved for backward, and what is written back to
    inputs come in that order, too."""
    if len(graphs) == 1:
        return [_reordered(graphs[0], lambda results: results)]
    joint, forward, backward = graphs
    inputs = [i for i, row in enumerate(joint) if row.op == "placeholder" and row.target != "tangent"]
    order = [inputs.index(i) for i in _used(joint) if i in inputs]
    outputs = len(_results(joint[-1])) - len(inputs)

    def of_joint(results: list[str]) -> list[str]:
        return [*results[:outputs], *(results[outputs:][i] for i in order)]

    def of_forward(results: list[str]) -> list[str]:
        return [*results[:outputs], *sorted(results[outputs:])]

    def of_backward(results: list[str]) -> list[str]:
        return [results[i] for i in order]

    return [_reordered(joint, of_joint), _reordered(forward, of_forward), _reordered(backward, of_backward)]


def _reordered(rows: list[Row], results: Callable[[list[str]], list[str]]) -> list[Row]:
    order = [i for i in _used(rows) if rows[i].op == "placeholder"]
    kept = [*order, *(i for i, row in enumerate(rows) if row.op != "placeholder")]
    numbers = {old: new for new, old in enumerate(kept)}

    def renamed(text: str) -> str:
        return _NAME.sub(lambda found: f"_{numbers[int(found[1])]}", text)

    found = [replace(rows[i], args=tuple(map(renamed, rows[i].args))) for i in kept]
    last = len(found) - 1
    while found[last - 1].target == "aten.copy_.default":
        last -= 1
    written = sorted(found[last:-1], key=lambda row: row.args)
    return [*found[:last], *written, replace(found[-1], args=tuple(results(_results(found[-1]))))]


def _used(rows: list[Row]) -> list[int]:
    """The numbers of the nodes that others use, those first that are used first."""
    return list(dict.fromkeys(int(n) for row in rows for argument in row.args for n in _NAME.findall(argument)))


def _results(output: Row) -> list[str]:
    parsed = ast.parse(output.args[0], mode="eval").body
    assert isinstance(parsed, ast.List)
    return [ast.unparse(item) for item in parsed.elts]


def _input(name: str) -> str:
    return "tangent" if name.startswith("tangents") else ""


def _called(value: ast.expr) -> tuple[str, str, list[ast.expr]]:
    """Operation, target and arguments of the right-hand side of a node."""
    if isinstance(value, ast.Subscript):
        return "call_function", "operator.getitem", [value.value, value.slice]
    if isinstance(value, ast.Attribute):
        return "get_attr", value.attr, []
    assert isinstance(value, ast.Call), ast.dump(value)
    target = ast.unparse(value.func).removeprefix("torch.ops.")
    return "call_function", target, [*value.args, *value.keywords]  # type: ignore[list-item]


class _Normal(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in ("inf", "nan"):
            return ast.Constant(node.id)
        return ast.Name(self.names.get(node.id, node.id))

    def visit_Tuple(self, node: ast.Tuple) -> ast.expr:
        return ast.List([self.visit(item) for item in node.elts])

    def visit_Call(self, node: ast.Call) -> ast.expr:
        value = [*node.args, *(k.value for k in node.keywords)][0]
        if ast.unparse(node.func) in ("device", "torch.device") and isinstance(value, ast.Constant):
            return ast.Constant(value.value)
        if ast.unparse(node.func) == "float" and isinstance(value, ast.Constant):
            return self.visit(ast.parse(str(value.value), mode="eval").body)
        return self.generic_visit(node)  # type: ignore[return-value]


def _argument(value: ast.AST, names: dict[str, str]) -> str:
    return ast.unparse(_Normal(names).visit(value))


def _spec(text: str) -> str:
    """A spec with its strides, unless they are those of a contiguous tensor."""
    found = _SPEC.match(text)
    if found is None:
        return text
    sizes, strides = ([int(n) for n in (found[g] or "").split(",") if n.strip()] for g in ("sizes", "strides"))
    shown = "" if found["strides"] is None or _is_contiguous(sizes, strides) else f"({', '.join(map(str, strides))})"
    return f"{found['dtype']}[{', '.join(map(str, sizes))}]{shown}"


def _is_contiguous(sizes: list[int], strides: list[int]) -> bool:
    expected = 1
    for size, stride in reversed(list(zip(sizes, strides, strict=True))):
        if size != 1 and stride != expected:
            return 0 in sizes
        expected *= size
    return True
