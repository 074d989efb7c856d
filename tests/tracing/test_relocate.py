from fx_lsp import wire
from fx_lsp.model import (
    Failure,
    InputSpec,
    NamedPlace,
    Node,
    ObservedValue,
    Remark,
    Saved,
    Span,
    Stage,
    StageInfo,
    Trace,
)
from fx_lsp.tracing.answers.relocation import edited_lines, relocate_outcome, relocate_stage


def span(line: int, end_line: int | None = None, file: str = "/m.py") -> Span:
    return Span(file, line, 2, end_line or line, 9)


def test_every_span_of_the_file_moves() -> None:
    trace = Trace(
        target="/m.py::f",
        inputs=(InputSpec("x", "f32[2]", "search"),),
        stages=(StageInfo("forward", 1, 3),),
        saved=(Saved("x", "f32[2]", 8, span(3)), Saved("y", "f32[2]", 8, None)),
        values=(ObservedValue(span(3, 4), "y", "f32[2]"), ObservedValue(span(7, file="/other.py"), "z", "f32[2]")),
        outputs=("f32[2]",),
        seconds=0.1,
        torch="2.13",
        remarks=(Remark("B becomes 2 here", span(4)), Remark("gone", span(5)), Remark("in the backward pass", None)),
    )
    trace = wire.outcome_from_json(wire.outcome_to_json(trace))
    assert isinstance(trace, Trace)
    moved = relocate_outcome(trace, "/m.py", {3: 13, 4: 15})
    assert isinstance(moved, Trace)
    assert [s.span for s in moved.saved] == [span(13), None]
    assert [v.span for v in moved.values] == [span(13, 15), span(7, file="/other.py")]
    assert moved.remarks == (Remark("B becomes 2 here", span(15)), Remark("in the backward pass", None))
    assert moved.inputs == trace.inputs


def test_failures_move_and_lose_a_span_that_is_gone() -> None:
    failure = Failure("shape", "sizes differ", span(3))
    assert relocate_outcome(failure, "/m.py", {3: 5}) == Failure("shape", "sizes differ", span(5))
    assert relocate_outcome(failure, "/m.py", {4: 5}) == Failure("shape", "sizes differ", None)


def test_the_lines_in_a_message_move() -> None:
    mentions = (NamedPlace("line 5", span(5)), NamedPlace("line 57", span(57)))
    failure = Failure("shape", "line 57 differs from line 5", span(3), mentions=mentions)
    moved = relocate_outcome(failure, "/m.py", {3: 4, 5: 57, 57: 60})
    assert isinstance(moved, Failure) and moved.message == "line 60 differs from line 57"
    assert moved.mentions == (NamedPlace("line 57", span(57)), NamedPlace("line 60", span(60)))
    assert relocate_outcome(moved, "/m.py", {4: 3, 57: 5, 60: 57}) == failure


def test_stages_move_and_values_on_lines_that_are_gone_are_dropped() -> None:
    stage = Stage(
        "forward", (Node("a", "call_function", "aten.relu", spans=(span(3), span(9))), Node("b", "output", ""))
    )
    moved = relocate_stage(stage, "/m.py", {3: 4})
    assert [node.spans for node in moved.nodes] == [(span(4),), ()]
    assert relocate_stage(stage, "/m.py", {3: 3, 9: 9}) == stage


def test_comments_of_a_generated_text_name_the_line_where_the_code_is_now() -> None:
    nodes = (Node("a", "call_function", "aten.relu", spans=(span(3, file="/d/m.py"),)),)
    stage = Stage(
        "triton", nodes, "# m.py:3  as read\n    # m.py:3  y = f(x)\n    a = relu(x)  # m.py:3  \n", (0, 1, 1)
    )
    moved = relocate_stage(stage, "/d/m.py", {3: 14})
    assert moved.text == "# m.py:3  as read\n    # m.py:14  y = f(x)\n    a = relu(x)  # m.py:3  \n"


def test_lines_around_an_edit_keep_their_text() -> None:
    old, new = list("abcdefg"), list("abXXXefg")
    mapping = edited_lines(old, new)
    assert mapping == {1: 1, 2: 2, 5: 6, 6: 7, 7: 8}
    assert all(old[o - 1] == new[n - 1] for o, n in mapping.items())
    assert edited_lines(["a", "a"], ["a", "a", "a"]) == {1: 1, 2: 2}
    assert edited_lines(["a", "b"], ["b"]) == {2: 1}
    assert edited_lines([""], [""]) == {1: 1}
