from collections.abc import Iterator

from samples import BACKWARD, FILE, FORWARD, RELU, SOURCE, TRACE, span

from fx_lsp.features.picture import Picture, picture
from fx_lsp.model import Node, Span, Stage

LOOP = """\
def block(x):
    y = x.sin()
    return y + x


def f(x):
    x = x.exp()
    for layer in layers:
        x = layer(x)
    return x.sum()
"""
EXP, CALL, SIN, ADD, SUM = (span(code, LOOP) for code in ("x.exp()", "layer(x)", "x.sin()", "y + x", "x.sum()"))


def text_of(source: str):
    def text(place: Span) -> str | None:
        rows = source.splitlines()[place.line - 1 : place.end_line]
        return "\n".join(rows)[place.col :][: place.end_col - place.col] if len(rows) == 1 else None

    return text


def call(name: str, target: str, of: str, *spans: Span) -> Node:
    return Node(name, "call_function", f"aten.{target}.default", (of,), (of,), spec="f32[4]", spans=spans)


def loop(rounds: int) -> Iterator[Node]:
    yield Node("x", "placeholder", "primals_1", spec="f32[4]")
    yield call("exp", "exp", "x", EXP)
    last = "exp"
    for i in range(rounds):
        yield call(f"sin_{i}", "sin", last, SIN, CALL)
        yield call(f"add_{i}", "add", f"sin_{i}", ADD, CALL)
        last = f"add_{i}"
    yield call("sum", "sum", last, SUM)
    yield Node("output", "output", "output", ("sum",), ("sum",))


def paths(drawn: Picture) -> dict[str, str]:
    """For each node its groups, the outer ones first."""
    found: dict[str, str] = {}
    for box in drawn.boxes:
        titles: list[str] = []
        at = box.group
        while at >= 0:
            group = drawn.groups[at]
            titles.insert(0, f"{group.title} {group.round}" if group.round else group.title)
            at = group.parent
        found[box.name] = " / ".join(titles)
    return found


def test_each_round_of_a_call_in_a_loop_is_a_group():
    found = paths(picture(TRACE, Stage("inference", tuple(loop(3))), text_of(LOOP)))
    assert found["x"] == ""
    assert found["exp"] == "model.py:7  x = x.exp()"
    assert found["sin_0"] == "layer 1 / model.py:2  y = x.sin()"
    assert found["add_0"] == "layer 1 / model.py:3  return y + x"
    assert found["add_2"] == "layer 3 / model.py:3  return y + x"


def test_a_call_that_is_made_once_has_no_number():
    found = paths(picture(TRACE, Stage("inference", tuple(loop(1))), text_of(LOOP)))
    assert found["sin_0"] == "layer / model.py:2  y = x.sin()"


def test_a_call_around_everything_is_no_group():
    outer = Span(FILE, 40, 0, 40, 9)
    nodes = [Node(**{**vars(n), "spans": (*n.spans, outer)}) if n.spans else n for n in loop(1)]
    found = paths(picture(TRACE, Stage("inference", tuple(nodes)), text_of(LOOP)))
    assert found["sin_0"] == "layer / model.py:2  y = x.sin()"


def test_edges():
    drawn = picture(TRACE, Stage("inference", tuple(loop(1))), text_of(LOOP))
    names = [box.name for box in drawn.boxes]
    assert [(names[a], names[b]) for a, b in drawn.edges] == [
        ("x", "exp"),
        ("exp", "sin_0"),
        ("sin_0", "add_0"),
        ("add_0", "sum"),
        ("sum", "output"),
    ]


def test_what_forward_keeps_is_marked():
    relu = next(box for box in picture(TRACE, FORWARD, text_of(SOURCE)).boxes if box.name == "relu")
    assert (relu.kind, relu.label, relu.saved, relu.bytes, relu.span) == ("op", "relu", 128, 128, RELU)
    assert all(box.saved is None for box in picture(TRACE, BACKWARD, text_of(SOURCE)).boxes)


def test_what_depends_on_a_gradient_is_backward_in_a_joint_graph():
    nodes = (
        Node("x", "placeholder", "primals_1"),
        Node("grad_out", "placeholder", "tangents_1"),
        call("exp", "exp", "x", EXP),
        call("mul", "mul", "grad_out", EXP),
        call("grad_x", "neg", "mul", EXP),
    )
    drawn = picture(TRACE, Stage("joint", nodes), text_of(LOOP))
    assert [box.name for box in drawn.boxes if box.backward] == ["grad_out", "mul", "grad_x"]
    assert drawn.boxes[2].group != drawn.boxes[3].group


def test_an_input_is_its_name_and_spec() -> None:
    boxes = picture(TRACE, Stage("forward", tuple(loop(1))), text_of(LOOP)).boxes
    assert [box.text for box in boxes[:2]] == ["x: f32[4]", "exp: f32[4] = aten.exp.default(x)"]
