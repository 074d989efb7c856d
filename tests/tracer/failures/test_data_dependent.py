"""Code that needs the values of tensors: traced with names in their place, or explained."""

from __future__ import annotations

import pytest
from conftest import TraceFixture
from inline_snapshot import snapshot

from fx_lsp.model import Trace


def test_nonzero(trace: TraceFixture) -> None:
    traced = trace("""
        import torch

        # fx: x=f32[4, 8], m=b8[4]
        def f(x, m):
            rows = torch.nonzero(m).squeeze(-1)
            return x.index_add(0, rows, x[rows] * 2)
    """)
    assert traced.graph("forward") == snapshot("""\
x: f32[4, 8] = placeholder
m: b8[4] = placeholder
nonzero: i64[num_nonzero, 1] = aten.nonzero.default(m)
rows: i64[num_nonzero] = aten.squeeze.dim(nonzero, -1)
index: f32[num_nonzero, 8] = aten.index.Tensor(x, [rows])
mul: f32[num_nonzero, 8] = aten.mul.Tensor(index, 2)
index_add: f32[4, 8] = aten.index_add.default(x, 0, rows, mul)
num_nonzero: None = aten.sym_size.int(nonzero, 0)
return (index_add, nonzero, num_nonzero)\
""")
    assert [f"{s.name}: {s.spec}" for s in traced.trace.saved] == snapshot(["nonzero: i64[num_nonzero, 1]"])


SPLIT = """
    import torch

    # fx: x=f32[6, 8]
    def f(x):
        lengths = torch.nn.functional.dropout(x, 0.5).sum(1).exp().clamp(1, 3).round().long()
        rows = [r.expand(int(n), 8) for r, n in zip(x, lengths) if n > 0]
        return torch.cat(rows)
"""


def test_what_goes_on_only_with_values_has_some_that_are_drawn(trace: TraceFixture) -> None:
    traced = trace(SPLIT)
    assert traced.trace.outputs == snapshot(("f32[12, 8]",))
    assert traced.trace.notes == snapshot(("traced with random values: the code needs the values of tensors",))
    assert [r.message.partition(DRAWN)[0] for r in traced.trace.remarks] == snapshot(
        [
            "the value of `n > 0` is assumed: True, computed from random values",
            "the value of `int(n)` is assumed: 3, computed from random values",
            "`rows = [r.expand(int(n), 8) for r, n in zip(x, lengths) if n > 0]` turns a tensor into a Python number",
        ]
    )
    assert trace(SPLIT).trace.outputs == traced.trace.outputs


def test_a_layer_that_is_drawn_has_a_backward_graph(trace: TraceFixture) -> None:
    traced = trace(
        """
        import torch
        from torch import nn

        class Repeat(nn.Module):
            def __init__(self):
                super().__init__()
                self.lengths = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Dropout(0.1), nn.Linear(8, 1))

            def forward(self, x):
                counts = self.lengths(x).squeeze(-1).exp().round().long()
                rows = [torch.cat([row.expand(max(int(n), 1), 8) for row, n in zip(*pair)]) for pair in zip(x, counts)]
                return nn.utils.rnn.pad_sequence(rows, batch_first=True)
    """,
        "Repeat",
    )
    assert traced.trace.ops("backward")
    assert traced.trace.outputs == snapshot(("f32[4, 31, 8]",))


EXPLAINED = {
    "a branch": (
        """
        import torch

        # fx: x=f32[4]
        def f(x):
            if torch.equal(x, x.abs()):
                return x * 2
            return x
        """,
        snapshot("""\
torch.equal(x, x.abs())
`if torch.equal(x, x.abs()):` branches on a tensor's value
Use `torch.where` (both sides are computed) or `torch.cond`, or branch on shapes.\
"""),
    ),
    "a number in an operation": (
        """
        # fx: x=f32[4]
        def f(x):
            n = x.sum().item()
            return x * n / max(x.sum(), n)
        """,
        snapshot("""\
max(x.sum(), n)
`max(x.sum(), n)` compares the values of tensors
Use `torch.maximum`, or stack the tensors and use `amax`: the result stays a tensor.\
"""),
    ),
    "an array in an operation": (
        """
        import numpy as np
        import torch

        # fx: x=f32[4]
        def f(x):
            y = torch.from_numpy(np.log(x.detach().numpy()) + x.detach().numpy())
            return x * torch.from_numpy(x.detach().numpy() + 0.0)
        """,
        snapshot("""\
x.detach().numpy()
`y = torch.from_numpy(np.log(x.detach().numpy()) + x.detach().numpy())` turns a tensor into Python numbers
Keep it a tensor, or pass the numbers as an argument.\
"""),
    ),
    "a loop until": (
        """
        # fx: x=f32[4]
        def f(x):
            while max(x.min(), x.max()) > 1:
                x = x / 2
            return x
        """,
        snapshot("""\
max(x.min(), x.max())
`while max(x.min(), x.max()) > 1:` loops depending on a tensor's value
Loop a fixed number of times and use `torch.where` to leave finished elements unchanged.\
"""),
    ),
    "the larger of two": (
        """
        # fx: x=f32[4], y=f32[4]
        def f(x, y):
            return x / max(x.sum(), y.sum())
        """,
        snapshot("""\
max(x.sum(), y.sum())
`max(x.sum(), y.sum())` compares the values of tensors
Use `torch.maximum`, or stack the tensors and use `amax`: the result stays a tensor.\
"""),
    ),
    "a range": (
        """
        # fx: x=f32[4], n=i64[]
        def f(x, n):
            for _ in range(n):
                x = x * 2
            return x
        """,
        snapshot("""\
range(n)
`for _ in range(n):` runs a number of iterations that depends on a tensor's value
Use a fixed number of iterations, or pass the number as an argument.\
"""),
    ),
    "int as a size": (
        """
        # fx: x=i64[4]
        def f(x):
            return x.new_zeros(int(x.max()), 4)
        """,
        snapshot("""\
int(x.max())
`int(x.max())` turns a tensor into a Python number, used as a size in `x.new_zeros(int(x.max()), 4)`
Pass the number as an argument, or keep the full size and mask the unused elements.\
"""),
    ),
    "an assert": (
        """
        import torch

        # fx: x=f32[4]
        def f(x):
            y = x.log()
            assert torch.equal(x, y)
            return y
        """,
        snapshot("""\
torch.equal(x, y)
`assert torch.equal(x, y)` checks a tensor's value
Check it outside of the traced function, or with `torch._assert_async`.\
"""),
    ),
    "a bound of a slice": (
        """
        # fx: x=f32[8, 4], i=i64[2]
        def f(x, i):
            return x[i[0] : i[1]] * 2
        """,
        snapshot("""\
x[i[0] : i[1]]
`x[i[0]:i[1]]` uses a tensor as the bound of a slice
Pass the number as an argument, or keep the full size and mask the unused elements.\
"""),
    ),
    "numpy": (
        """
        # fx: x=f32[4]
        def f(x):
            return (x > 0).numpy()
        """,
        snapshot("""\
(x > 0).numpy()
`(x > 0).numpy()` turns a tensor into Python numbers
Keep it a tensor, or pass the numbers as an argument.\
"""),
    ),
    "equal": (
        """
        import torch

        def f(x):
            same = torch.equal(x, x.T)
            return x * 2 if same else x
        """,
        snapshot("""\
torch.equal(x, x.T)
`torch.equal(x, x.T)` compares the values of tensors
Compare with `torch.eq`: the result stays a tensor.\
"""),
    ),
}


NO_VALUES = ", and a trace has shapes but no values"
DRAWN = f"{NO_VALUES}; the trace continues with random values. "


@pytest.mark.parametrize("case", EXPLAINED)
def test_what_a_value_was_needed_for(trace: TraceFixture, case: str) -> None:
    source, expected = EXPLAINED[case]
    traced = trace(source)
    if isinstance(traced.outcome, Trace):
        remark = next(r for r in traced.trace.remarks if DRAWN in r.message)
        told = [traced.at(remark.span), *remark.message.split(DRAWN)]
    else:
        failure = traced.failure
        assert (failure.kind, failure.severity) == ("data-dependent", "information")
        told = [traced.at(failure.span), failure.message.removesuffix(NO_VALUES), failure.hint]
    assert "\n".join(told) == expected


ALIKE = """
import torch

# fx: out=f32[4, 8], batch=f32[4, 8]
def alike(out, batch):
    return out[(batch > 0) & (out < 1)] - batch.masked_select((batch > 0) & (out < 1))

# fx: out=f32[4, 8], batch=f32[4, 8]
def changed(out, batch):
    mask = batch > 0
    first = out[mask.clone()]
    mask[0] = True
    return first.sum() + batch[mask].sum()
"""


def test_equal_masks_select_equally_many(trace: TraceFixture) -> None:
    assert trace(ALIKE, "alike").trace.remarks == ()
    assert trace(ALIKE, "alike").graph("forward").count("f32[num_nonzero]") == 3
    assert "f32[num_nonzero_1]" in trace(ALIKE, "changed").graph("forward")
