"""Named sizes: they stand as names everywhere, and where the code fixes one, a remark says so."""

from __future__ import annotations

from conftest import Traced, TraceFixture
from inline_snapshot import snapshot


def details(traced: Traced) -> list[str]:
    return [f"{i.name}: {i.spec} ({', '.join(filter(None, (i.source, i.detail)))})" for i in traced.trace.inputs]


def test_matmul_and_what_is_saved(trace: TraceFixture) -> None:
    traced = trace("""
        # fx: x=f32[B, T, 64], w=f32[64, 32]
        def f(x, w):
            return (x @ w).relu()
    """)
    assert details(traced) == snapshot(["x: f32[B, T, 64] (comment)", "w: f32[64, 32] (comment)"])
    assert traced.graph("forward") == snapshot("""\
x: f32[B, T, 64] = placeholder
w: f32[64, 32] = placeholder
B: None = aten.sym_size.int(x, 0)
T: None = aten.sym_size.int(x, 1)
mul: None = operator.mul(B, T)
view: f32[B*T, 64] = aten.view.default(x, [B*T, 64])
mm: f32[B*T, 32] = aten.mm.default(view, w)
unsafe_view: f32[B, T, 32] = aten._unsafe_view.default(mm, [B, T, 32])
relu: f32[B, T, 32] = aten.relu.default(unsafe_view)
detach: f32[B, T, 32] = aten.detach.default(relu)
detach_1: f32[B, T, 32] = aten.detach.default(detach)
t_1: f32[32, 64](1, 32) = aten.t.default(w)
return (relu, view, detach_1, t_1, B, T)\
""")
    assert traced.graph("backward") == snapshot("""\
B: None = placeholder
T: None = placeholder
view: f32[B*T, 64] = placeholder
detach_1: f32[B, T, 32] = placeholder
t_1: f32[32, 64](1, 32) = placeholder
grad_out: f32[B, T, 32] = placeholder
threshold_backward: f32[B, T, 32] = aten.threshold_backward.default(grad_out, detach_1, 0)
sym_size_int_2: None = aten.sym_size.int(view, 0)
view_1: f32[B*T, 32] = aten.view.default(threshold_backward, [B*T, 32])
t: f32[64, B*T](1, 64) = aten.t.default(view)
grad_w: f32[64, 32] = aten.mm.default(t, view_1)
mm_2: f32[B*T, 64] = aten.mm.default(view_1, t_1)
grad_x: f32[B, T, 64] = aten.view.default(mm_2, [B, T, 64])
return (grad_x, grad_w)\
""")
    assert [f"{s.name}: {s.spec} {s.bytes}" for s in traced.trace.saved] == snapshot(
        ["view: f32[B*T, 64] 98304", "detach_1: f32[B, T, 32] 49152", "t_1: f32[32, 64](1, 32) 8192"]
    )
    assert traced.trace.notes == snapshot(("sizes in bytes count B as 16, T as 24",))


def test_expand_and_the_values_of_expressions(trace: TraceFixture) -> None:
    traced = trace("""
        # fx: x=f32[B, T, 8], y=f32[8]
        def f(x, y):
            z = y.expand(x.shape[0], x.shape[1], -1)
            return (x * z).reshape(-1, 8)
    """)
    assert [f"{v.name or traced.at(v.span)}: {v.spec}" for v in traced.trace.values] == snapshot(
        [
            "x: f32[B, T, 8]",
            "y: f32[8]",
            "y.expand(x.shape[0], x.shape[1], -1): f32[B, T, 8](0, 0, 1)",
            "z: f32[B, T, 8](0, 0, 1)",
            "x * z: f32[B, T, 8]",
            "(x * z).reshape(-1, 8): f32[B*T, 8]",
            "return: f32[B*T, 8]",
        ]
    )
