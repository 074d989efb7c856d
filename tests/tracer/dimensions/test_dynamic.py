"""Named sizes: they stand as names everywhere, and where the code fixes one, a remark says so."""

from __future__ import annotations

from conftest import Traced, TraceFixture
from inline_snapshot import snapshot


def remarks(traced: Traced) -> list[str]:
    """Each remark with the source that it is about."""
    return [f"{traced.at(r.span) if r.span else '?'} | {r.message}" for r in traced.trace.remarks]


def details(traced: Traced) -> list[str]:
    return [f"{i.name}: {i.spec} ({', '.join(filter(None, (i.source, i.detail)))})" for i in traced.trace.inputs]


def test_view_and_cat(trace: TraceFixture) -> None:
    traced = trace("""
        import torch

        # fx: x=f32[B, 128]
        def f(x):
            b = x.shape[0]
            y = torch.cat([x, x]).view(2 * b, 4, 32)
            return y.transpose(0, 1)
    """)
    assert traced.graph("forward") == snapshot("""\
x: f32[B, 128] = placeholder
cat: f32[2*B, 128] = aten.cat.default([x, x])
B: None = aten.sym_size.int(x, 0)
mul: None = operator.mul(2, B)
y: f32[2*B, 4, 32] = aten.view.default(cat, [2*B, 4, 32])
transpose: f32[4, 2*B, 32](32, 128, 1) = aten.transpose.int(y, 0, 1)
sym_size_int_1: None = aten.sym_size.int(cat, 0)
return (transpose, B, 2*B)\
""")
    assert traced.graph("backward") == snapshot("""\
B: None = placeholder
sym_size_int_1: None = placeholder
grad_out: f32[4, 2*B, 32] = placeholder
transpose_1: f32[2*B, 4, 32](32, 64*B, 1) = aten.transpose.int(grad_out, 0, 1)
clone: f32[2*B, 4, 32] = aten.clone.default(transpose_1, memory_format=torch.contiguous_format)
unsafe_view: f32[2*B, 128] = aten._unsafe_view.default(clone, [2*B, 128])
B_1: None = operator.add(0, B)
slice_1: f32[B, 128] = aten.slice.Tensor(unsafe_view, 0, 0, B)
add_2: None = operator.add(B, B)
B_3: None = operator.sub(2*B, B)
add_3: None = operator.add(B, B)
slice_2: f32[B, 128] = aten.slice.Tensor(unsafe_view, 0, B, 2*B)
grad_x: f32[B, 128] = aten.add.Tensor(slice_1, slice_2)
return (grad_x,)\
""")
    assert traced.trace.outputs == snapshot(("f32[4, 2*B, 32](32, 128, 1)",))
    assert remarks(traced) == []


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


def test_a_module_keeps_its_own_sizes(trace: TraceFixture) -> None:
    traced = trace(
        """
        import torch
        from torch import nn

        # fx: x=f32[B, D]
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(64, 32)

            def forward(self, x):
                return self.linear(x)
    """,
        "Net",
    )
    assert details(traced) == snapshot(["x: f32[B, D] (comment, with D = 64)"])
    assert traced.trace.outputs == snapshot(("f32[B, 32]",))
    assert remarks(traced) == snapshot(["self.linear(x) | `self.linear(x)` only works when D == 64"])


def test_a_size_that_the_code_compares(trace: TraceFixture) -> None:
    traced = trace("""
        # fx: x=f32[B, 8]
        def f(x):
            if x.shape[0] == 16:
                return x + 1
            return x * 2
    """)
    assert details(traced) == snapshot(["x: f32[B, 8] (comment, with B = 16)"])
    assert remarks(traced) == snapshot(["x.shape[0] == 16 | B becomes 16 here: the code checks `x.shape[0] == 16`"])
    assert traced.trace.outputs == snapshot(("f32[16, 8]",))


def test_the_other_way_is_remarked_too(trace: TraceFixture) -> None:
    traced = trace("""
        # fx: x=f32[B, 8]
        def f(x):
            if x.shape[0] > 100:
                return x + 1
            return x * 2
    """)
    assert details(traced) == snapshot(["x: f32[B, 8] (comment)"])
    assert remarks(traced) == snapshot(
        ["x.shape[0] > 100 | the trace is only valid when B <= 100: the code checks `x.shape[0] > 100`"]
    )


def test_asserts(trace: TraceFixture) -> None:
    traced = trace("""
        # fx: x=f32[B, N]
        def f(x):
            assert x.shape[0] % 8 == 0
            assert x.shape[1] == 33
            return x * 2
    """)
    assert details(traced) == snapshot(["x: f32[B, N] (comment, with N = 33)"])
    assert remarks(traced) == snapshot(
        [
            "x.shape[0] % 8 == 0 | the trace is only valid when B % 8 == 0: the code checks `x.shape[0] % 8 == 0`",
            "x.shape[1] == 33 | N becomes 33 here: the code checks `x.shape[1] == 33`",
        ]
    )


def test_broadcasting_with_a_fixed_tensor(trace: TraceFixture) -> None:
    traced = trace("""
        import torch

        # fx: x=f32[B, 8]
        def f(x):
            return x + torch.ones(10, 1)
    """)
    assert remarks(traced) == snapshot(["x + torch.ones(10, 1) | `x + torch.ones(10, 1)` only broadcasts when B == 10"])


def test_a_loop_needs_the_number(trace: TraceFixture) -> None:
    traced = trace("""
        # fx: x=f32[T, 8]
        def f(x):
            h = x[0]
            for i in range(x.shape[0]):
                h = h * x[i]
            return h
    """)
    assert remarks(traced) == snapshot(
        ["range(x.shape[0]) | T becomes 16 here: `range(x.shape[0])` needs a concrete number"]
    )


def test_two_names_of_one_size(trace: TraceFixture) -> None:
    traced = trace("""
        # fx: x=f32[B, 8], y=f32[T, 8]
        def f(x, y):
            return x + y
    """)
    assert details(traced) == snapshot(["x: f32[B, 8] (comment)", "y: f32[T, 8] (comment, with T = B)"])
    assert remarks(traced) == snapshot(["x + y | `x + y` only broadcasts when T == B"])
    assert traced.trace.outputs == snapshot(("f32[B, 8]",))


def test_what_is_searched_takes_the_name_of_the_size_it_fits(trace: TraceFixture) -> None:
    traced = trace("""
        import torch

        # fx: x=f32[B, 8]
        def f(x, y):
            return x @ x.T + torch.softmax(y, 0)[:, None]
    """)
    assert details(traced) == snapshot(["x: f32[B, 8] (comment)", "y: f32[B] (search, sizes that fit)"])
    assert remarks(traced) == []


def test_without_names_sizes_are_numbers(trace: TraceFixture) -> None:
    traced = trace("""
        # fx: x=f32[6, 8]
        def f(x):
            if x.shape[0] == 6:
                return x + 1
            return x
    """)
    assert (traced.trace.outputs, traced.trace.notes, traced.trace.remarks) == (("f32[6, 8]",), (), ())
