from samples import FILE

from fx_lsp.features.costs.memory import bytes_of, memory
from fx_lsp.model import Node, Saved, Span, Stage, StageInfo, Trace

FORWARD = Stage(
    "forward",
    (
        Node("x", "placeholder", "x", spec="f32[256]"),
        Node("sin", "call_function", "aten.sin.default", ("x",), ("x",), spec="f32[256]"),
        Node("view", "call_function", "aten.view.default", ("sin", "[16, 16]"), ("sin",), spec="f32[16, 16]"),
        Node("exp", "call_function", "aten.exp.default", ("view",), ("view",), spec="f32[16, 16]"),
        Node("sum_1", "call_function", "aten.sum.default", ("exp",), ("exp",), spec="f32[]"),
        Node("output", "output", "output", ("sum_1", "view"), ("sum_1", "view")),
    ),
)
BACKWARD = Stage(
    "backward",
    (
        Node("view", "placeholder", "view", spec="f32[16, 16]"),
        Node("grad_out", "placeholder", "tangents_1", spec="f32[]"),
        Node("mul", "call_function", "aten.mul.Tensor", ("view", "grad_out"), ("view", "grad_out"), spec="f32[16, 16]"),
        Node("grad_x", "call_function", "aten.cos.default", ("mul",), ("mul",), spec="f32[16, 16]"),
        Node("output", "output", "output", ("grad_x",), ("grad_x",)),
    ),
)
SAVED = Saved("view", "f32[16, 16]", 1024, Span(FILE, 5, 8, 5, 13), "activation", ("mul",))
TRACE = Trace("f", (), (StageInfo("forward", 4, 6), StageInfo("backward", 2, 5)), (SAVED,), (), (), 0.1, "2.13")


def test_a_view_takes_no_memory_and_what_is_kept_stays():
    found = memory(TRACE, FORWARD, BACKWARD)
    assert [(s.name, s.live, s.kept, s.made) for s in found.steps] == [
        ("sin", 1024, 1024, 1024),  # the memory of `view`, which is kept
        ("view", 1024, 1024, 0),
        ("exp", 2048, 1024, 1024),
        ("sum_1", 2052, 1024, 4),
        ("mul", 2048, 1024, 1024),
        ("grad_x", 2048, 0, 1024),  # `view` was used for the last time
    ]
    assert found.peak == 3


def test_a_kept_value_knows_when_it_is_made_and_used_last():
    (kept,) = memory(TRACE, FORWARD, BACKWARD).kept
    assert (kept.saved, kept.made, kept.last) == (SAVED, 1, 4)


def test_without_a_backward_nothing_is_kept():
    trace = Trace("f", (), (StageInfo("inference", 4, 6),), (), (), (), 0.1, "2.13")
    found = memory(trace, Stage("inference", FORWARD.nodes), None)
    assert {step.kept for step in found.steps} == {0} and found.kept == ()


def test_bytes_of_specs():
    assert bytes_of("f32[8, 128]") == 4096
    assert bytes_of("(bf16[4], i64[2](1))") == 24
    assert bytes_of("b8[3]@cuda") == 3
    assert bytes_of("f32[B, 4]") is None
    assert bytes_of(None) == bytes_of("4") == 0
