"""A small file and its trace, built by hand: features are tested without torch."""

from fx_lsp.model import Failure, InputSpec, Node, ObservedValue, Saved, Span, Stage, StageInfo, Target, Trace

FILE = "/project/model.py"

SOURCE = """\
import torch


def f(x, w, n=4):
    y = x @ w
    for _ in range(n):
        y = y.relu() + 1
    return y.sum(dim=-1)


def broken(x):
    return x @ x
"""


def span(code: str, source: str = SOURCE, file: str = FILE) -> Span:
    """The span of the first occurrence of `code`."""
    start = source.index(code)
    before, inside = source[:start], source[: start + len(code)]
    return Span(file, *_place(before), *_place(inside))


def _place(text: str) -> tuple[int, int]:
    line = text.rpartition("\n")[2]
    return text.count("\n") + 1, len(line.encode())


def function(name: str, code: str, source: str = SOURCE, file: str = FILE) -> Target:
    """The target `name` whose definition is `code`."""
    whole = span(code, source, file)
    name_span = Span(file, whole.line, whole.col + 4, whole.line, whole.col + 4 + len(name))
    return Target(file, name, "function", name_span, whole)


F = function("f", SOURCE[SOURCE.index("def f") : SOURCE.index("\n\n\ndef broken")])
BROKEN = function("broken", "def broken(x):\n    return x @ x")

MATMUL, RELU, ADD, SUM = span("x @ w"), span("y.relu()"), span("y.relu() + 1"), span("y.sum(dim=-1)")

TRACE = Trace(
    target=f"{FILE}::f",
    inputs=(
        InputSpec("x", "f32[8, 128]", "search", guessed=True),
        InputSpec("w", "f32[128, 4]", "call site", "line 12"),
        InputSpec("n", "4", "default"),
    ),
    stages=(StageInfo("joint", 9, 13), StageInfo("forward", 3, 6), StageInfo("backward", 2, 5)),
    saved=(
        Saved("x", "f32[8, 128]", 4096, None, "input", ("mm_1",)),
        Saved("relu", "f32[8, 4]", 128, RELU, "activation", ("where",)),
    ),
    values=(
        ObservedValue(span("y = x @ w"), "y", "f32[8, 4]"),
        ObservedValue(MATMUL, "", "f32[8, 4]"),
        ObservedValue(span("y = y.relu() + 1"), "y", "f32[8, 4]", varies=True),
        ObservedValue(span("return y.sum(dim=-1)"), "return", "f32[8]"),
        ObservedValue(SUM, "", "f32[8]"),
    ),
    outputs=("f32[8]",),
    seconds=0.0612,
    torch="2.13.0",
    notes=("the whole module was imported, because `x` is global",),
)

FORWARD = Stage(
    "forward",
    (
        Node("x", "placeholder", "x", spec="f32[8, 128]"),
        Node("w", "placeholder", "w", spec="f32[128, 4]"),
        Node("mm", "call_function", "aten.mm.default", ("x", "w"), (), (), "f32[8, 4]", (MATMUL,), "", 8192, 6272),
        Node("relu", "call_function", "aten.relu.default", ("mm",), (), (), "f32[8, 4]", (RELU, ADD), "", 0, 256),
        Node("loss", "call_function", "aten.sum.default", ("relu",), spec="f32[]", spans=(SUM,), comment="keepdim"),
        Node("output", "output", "output", ("loss", "x", "relu")),
    ),
)

BACKWARD = Stage(
    "backward",
    (
        Node("relu", "placeholder", "relu", spec="f32[8, 4]"),
        Node("where", "call_function", "aten.where.self", ("relu", "0"), spec="f32[8, 4]", spans=(RELU,)),
        Node("grad_w", "call_function", "aten.mm.default", ("x", "where"), spec="f32[128, 4]", spans=(MATMUL,)),
        Node("output", "output", "output", ("(None, grad_w)",)),
    ),
)

FAILURE = Failure(
    "shape",
    "matmul of f32[8, 128] and f32[8, 128]: 128 and 8 differ",
    span("x @ x"),
    "Write the shapes down in a comment",
    "error",
    "",
    (InputSpec("x", "f32[8, 128]", "search", guessed=True),),
)


def graph_of(name: str, *lines: str) -> Stage:
    """A stage of lines like `y: f32[4] = aten.mul.Tensor(x, 2)`; `x: f32[4]` is an input, `return y` the end."""
    nodes: list[Node] = []
    for line in lines:
        left, equals, call = line.partition(" = ")
        node, _, spec = left.partition(": ")
        if line.startswith("return "):
            nodes.append(Node("output", "output", "output", (line.removeprefix("return "),)))
        elif not equals:
            nodes.append(Node(node, "placeholder", f"primals_{len(nodes)}", spec=spec))
        else:
            target, _, args = call.removesuffix(")").partition("(")
            nodes.append(Node(node, "call_function", target, tuple(args.split(", ")), spec=spec))
    return Stage(name, tuple(nodes))
