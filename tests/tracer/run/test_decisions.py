"""Code that a value decides: the trace goes the way that goes on, and says so at the condition."""

from __future__ import annotations

import pytest
from conftest import TraceFixture
from inline_snapshot import snapshot

TAKEN = "the trace assumes that the check "
FOLLOWED = "the trace runs the loop to its end: "
WHY = ": it depends on a tensor's value, and torch.compile breaks the graph here"

SOURCE = """
import logging
import sys
import warnings

import torch
from torch.distributions import Normal

log = logging.getLogger(__name__)

# fx: x=f32[4, 8], low=0.0
def either(x, low):
    if torch.min(x) < low or not (
        (x < 10)
        .all()
    ):
        raise ValueError("out of range")
    return x.sqrt()

# fx: x=f32[4, 8]
def asserted(x):
    assert not x.isnan().any() and (x > 0).all(), "bad"
    return x.log()

# fx: x=f32[4, 8]
def otherwise(x):
    if x.max() <= 1:
        y = x * 2
    else:
        raise ValueError
    return y

# fx: x=f32[4, 8]
def told(x):
    if x.abs().max() > 1e4:
        warnings.warn("large")
        log.warning("large")
    return x * 2

# fx: x=f32[4, 8]
def counted(x):
    total = x.sum().item()
    if total < 0:
        raise ValueError(total)
    return x * 2

# fx: x=f32[4, 8], mask=b8[4]
def chosen(x, mask):
    inside = x[mask]
    if inside.min() < 0:
        raise ValueError
    out = torch.zeros_like(x)
    out[mask] = inside.sqrt()
    return out

# fx: x=f32[4, 8], mean=f32[8], std=f32[8]
def inside_of_torch(x, mean, std):
    normal = Normal(mean, std, validate_args=True)
    return normal.log_prob(x)

# fx: x=f32[4, 8]
def settles(x):
    for _ in range(3):
        before = x
        x = x.tanh()
        if (x - before).abs().max() < 1e-3:
            break
    return x

# fx: x=f32[4, 8]
def until(x):
    while True:
        x = x.tanh()
        if x.max() < 1:
            break
    return x

# fx: x=f32[4, 8]
def until_it_returns(x):
    while True:
        x = x.tanh()
        if x.max() < 1:
            return x

# fx: x=f32[4, 8]
def while_it_holds(x):
    while not (x.max() < 1 or x.min() > 0):
        x = x.tanh()
    for _ in range(2):
        while x.norm() > 1:
            x = x.sin()
    return x

# fx: x=f32[4, 8]
def must_settle(x):
    for _ in range(3):
        x = x.tanh()
        if x.max() < 1e-3:
            break
    else:
        raise RuntimeError("it did not settle")
    return x

# fx: x=f32[4, 8]
def remembers(x):
    for column in range(3):
        x = x.tanh()
        if x.max() < 1e-3:
            settled = column
            break
    return x + settled

# fx: x=f32[4, 8]
def skips(x):
    for _ in range(3):
        if x.max() < 0:
            continue
        x = x.tanh()
    return x

# fx: x=f32[4, 8]
def branch(x):
    if x.sum() > 0:
        x = x.sin()
    else:
        x = x.cos()
    return x

# fx: x=f32[4, 8]
def returns_early(x):
    if not (x > 0).any():
        return x
    return x.sin()

# fx: x=f32[4, 8]
def returns_or_nothing(x):
    if (x > 0).any():
        return x.sin()

# fx: x=f32[4, 8]
def otherwise_returns(x):
    if x.max() > 0 and len(x) > 2:
        x = x.sin()
    else:
        return x
    return x.cos()

# fx: x=f32[4, 8]
def exits(x):
    if x.isnan().any():
        print("nan")
        sys.exit(1)
    return x.sin()

# fx: x=f32[4, 8]
def conditional(x):
    chosen = [row for row in x if row.sum() > 0]
    both = x.sum() > 0 and x.sin()
    either = x.sum() < 0 or x.cos()
    return chosen[0] + both if x.mean() > 0 else either

# fx: x=f32[4, 8]
def inside_of_a_check(x):
    if (x if x.sum() > 0 else -x).max() > 1:
        raise ValueError
    return x.sin()

# fx: x=f32[4, 8]
def compares_a_number(x):
    largest = x.max().item()
    print(f"{largest:.3f}", round(largest, 2), float(x.min()), x.tolist()[0], x.detach().numpy())
    if largest + 1 > 10 or largest:
        x = x.sin()
    return x

# fx: x=f32[4, 8]
def never_ends(x):
    waiting = [0]
    while waiting:
        if x.max() > 0:
            waiting.append(1)
    return x

# fx: x=f32[4, 8]
def both_raise(x):
    if x.sum() > 0:
        raise ValueError
    else:
        raise TypeError
"""


def taken(trace: TraceFixture, name: str) -> list[str]:
    traced = trace(SOURCE, name)
    return [f"{traced.at(r.span)}: {r.message.removeprefix(TAKEN).removesuffix(WHY)}" for r in traced.trace.remarks]


def operations(trace: TraceFixture, name: str) -> list[str]:
    nodes = trace(SOURCE, name).stage("forward").nodes
    called = (node.target.split(".")[1] for node in nodes if node.op == "call_function")
    return [each for each in called if each not in ("detach", "alias")]


@pytest.mark.parametrize(
    ("name", "called", "checks"),
    [
        ("either", ["sqrt"], ["`torch.min(x) < low or not (x < 10).all()` passes"]),
        ("asserted", ["log"], ["`not x.isnan().any() and (x > 0).all()` passes"]),
        ("otherwise", ["mul"], ["`x.max() <= 1` passes"]),
        ("told", ["mul"], ["`x.abs().max() > 10000.0` passes"]),
        ("exits", ["sin"], ["`x.isnan().any()` passes"]),
        ("settles", ["tanh"] * 3, [FOLLOWED + "`(x - before).abs().max() < 0.001` may end it earlier"]),
        ("chosen", ["index", "zeros_like", "sqrt", "index_put"], ["`inside.min() < 0` passes"]),
    ],
)
def test_a_check_leaves_nothing_in_the_graph(
    trace: TraceFixture, name: str, called: list[str], checks: list[str]
) -> None:
    assert [remark.partition(": ")[2] for remark in taken(trace, name)] == checks
    assert operations(trace, name) == called


WAYS = {
    "until": snapshot(
        [
            "the trace leaves the loop in its second iteration, at `x.max() < 1`",
            ["tanh", "tanh"],
        ]
    ),
    "until_it_returns": snapshot(
        [
            "the trace leaves the loop in its second iteration, at `x.max() < 1`",
            ["tanh", "tanh"],
        ]
    ),
    "while_it_holds": snapshot(
        [
            "the trace runs two iterations of the loop, however long `not (x.max() < 1 or x.min() > 0)` is true",
            "the trace runs two iterations of the loop, however long `x.norm() > 1` is true",
            ["tanh", "tanh", "sin", "sin", "sin", "sin"],
        ]
    ),
    "must_settle": snapshot(
        [
            "the trace leaves the loop in its second iteration, at `x.max() < 0.001`",
            ["tanh", "tanh"],
        ]
    ),
    "remembers": snapshot(
        [
            "the trace leaves the loop in its second iteration, at `x.max() < 0.001`",
            ["tanh", "tanh", "add"],
        ]
    ),
    "skips": snapshot(
        [
            "the trace assumes that `x.max() < 0` is false",
            ["tanh", "tanh", "tanh"],
        ]
    ),
    "branch": snapshot(
        [
            "the trace assumes that `x.sum() > 0` is true",
            ["sin"],
        ]
    ),
    "returns_early": snapshot(
        [
            "the trace assumes that `not (x > 0).any()` is false",
            ["sin"],
        ]
    ),
    "returns_or_nothing": snapshot(
        [
            "the trace assumes that `(x > 0).any()` is true",
            ["sin"],
        ]
    ),
    "otherwise_returns": snapshot(
        [
            "the trace assumes that `x.max() > 0 and len(x) > 2` is true",
            ["sin", "cos"],
        ]
    ),
    "conditional": snapshot(
        [
            "the trace assumes that `row.sum() > 0` is true",
            "the trace assumes that `x.sum() > 0` is true",
            "the trace assumes that `x.sum() < 0` is false",
            "the trace assumes that `x.mean() > 0` is true",
            ["unbind", "getitem", "sin", "add"],
        ]
    ),
    "inside_of_a_check": snapshot(
        [
            "the trace assumes that `x.sum() > 0` is true",
            "`(x if x.sum() > 0 else -x).max() > 1` passes",
            ["sin"],
        ]
    ),
    "counted": snapshot(
        [
            "`total < 0` passes",
            "the value of `x.sum().item()` is assumed: a trace has shapes but no values",
            ["mul"],
        ]
    ),
    "compares_a_number": snapshot(
        [
            "the trace assumes that `largest + 1 > 10 or largest` is true",
            "the value of `x.max().item()` is assumed: a trace has shapes but no values",
            "the value of `float(x.min())` is assumed: a trace has shapes but no values",
            "the value of `x.tolist()` is assumed: a trace has shapes but no values",
            "the value of `x.detach().numpy()` is assumed: a trace has shapes but no values",
            ["sin"],
        ]
    ),
}


@pytest.mark.parametrize("name", WAYS)
def test_the_way_that_goes_on(trace: TraceFixture, name: str) -> None:
    said = [remark.partition(": ")[2] for remark in taken(trace, name)]
    assert [*said, operations(trace, name)] == WAYS[name]


@pytest.mark.parametrize("name", ["both_raise", "never_ends"])
def test_where_no_way_goes_on(trace: TraceFixture, name: str) -> None:
    assert trace(SOURCE, name).failure.kind == "data-dependent"


def test_the_reason_is_what_no_symbol_stands_in_for(trace: TraceFixture) -> None:
    remarks = trace("""
        # fx: x=f32[4, 8]
        def f(x):
            scale = x.max().item()
            y = x * scale
            return y / max(y.sum(), y.max())
    """).trace.remarks
    assert any(r.message.startswith("`max(y.sum(), y.max())` compares the values of tensors") for r in remarks)
