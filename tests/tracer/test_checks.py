"""Checks of values that only stop the program: taken for granted, and said so where they stand."""

from __future__ import annotations

import pytest
from conftest import TraceFixture
from inline_snapshot import snapshot

TAKEN = "the trace takes for granted that the check "
FOLLOWED = "the trace follows the loop to its end: "

SOURCE = """
import logging
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
    settled = False
    for _ in range(3):
        x = x.tanh()
        if x.max() < 1e-3:
            settled = True
            break
    return x if settled else -x

# fx: x=f32[4, 8]
def branch(x):
    if x.sum() > 0:
        x = x * 2
    return x

# fx: x=f32[4, 8]
def inside_of_a_check(x):
    if (x if x.sum() > 0 else -x).max() > 1:
        raise ValueError
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
    assert all(remark.message.startswith((TAKEN, FOLLOWED)) for remark in traced.trace.remarks)
    return [f"{traced.at(r.span)}: {r.message.removeprefix(TAKEN)}" for r in traced.trace.remarks]


@pytest.mark.parametrize(
    ("name", "operations", "checks"),
    [
        ("either", ["sqrt"], ["`torch.min(x) < low or not (x < 10).all()` passes"]),
        ("asserted", ["log"], ["`not x.isnan().any() and (x > 0).all()` passes"]),
        ("otherwise", ["mul"], ["`x.max() <= 1` passes"]),
        ("told", ["mul"], ["`x.abs().max() > 10000.0` passes"]),
        ("counted", ["mul"], ["`total < 0` passes"]),
        ("settles", ["tanh"] * 3, [FOLLOWED + "`(x - before).abs().max() < 0.001` may end it sooner"]),
        ("chosen", ["index", "zeros_like", "sqrt", "index_put"], ["`inside.min() < 0` passes"]),
    ],
)
def test_a_check_leaves_nothing_in_the_graph(
    trace: TraceFixture, name: str, operations: list[str], checks: list[str]
) -> None:
    found = [remark.partition(": ")[2] for remark in taken(trace, name)]
    assert list(dict.fromkeys(found)) == checks
    nodes = trace(SOURCE, name).stage("forward").nodes
    called = [node.target.split(".")[1] for node in nodes if node.op == "call_function"]
    assert [each for each in called if each != "detach"] == operations


def test_where_it_is_said(trace: TraceFixture) -> None:
    assert taken(trace, "counted") == snapshot(["total < 0: `total < 0` passes"])
    assert taken(trace, "inside_of_torch") == snapshot(
        [
            "Normal(mean, std, validate_args=True): `not torch._is_all_true(valid)` in distribution.py passes",
            "normal.log_prob(x): `not torch._is_all_true(valid)` in distribution.py passes",
        ]
    )


def test_no_name_stands_for_a_number_that_is_only_checked(trace: TraceFixture) -> None:
    assert trace(SOURCE, "counted").trace.notes == ()


@pytest.mark.parametrize("name", ["branch", "both_raise", "until", "must_settle", "remembers", "inside_of_a_check"])
def test_a_branch_is_no_check(trace: TraceFixture, name: str) -> None:
    assert trace(SOURCE, name).failure.kind == "data-dependent"


def test_the_reason_is_what_no_symbol_stands_in_for(trace: TraceFixture) -> None:
    failure = trace("""
        # fx: x=f32[4, 8]
        def f(x):
            scale = x.max().item()
            y = x * scale
            if y.sum() > 0:
                y = y.tanh()
            return y
    """).failure
    assert failure.message.startswith("`if y.sum() > 0:` branches on a tensor's value")
