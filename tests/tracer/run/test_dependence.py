"""Which inputs the tensors of a run follow from."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from fx_lsp.tracer.run.call import RUN_CODE, Call
from fx_lsp.tracer.run.dependence import Dependence
from fx_lsp.tracer.run.observation import Run, watched_run
from fx_lsp.tracer.source.provenance import Sources

pytestmark = pytest.mark.torch


def observed(function) -> tuple[Dependence, list[object]]:
    """Return the dependence after a call with two inputs, and what the function returned."""
    run = Run()
    with FakeTensorMode():
        first, second = torch.empty(4, 6), torch.empty(6, dtype=torch.int64)
        run.dependence.begin(first, "first")
        run.dependence.begin(second, "second")
        watched_run(Sources(__file__, None), Call(function, (first, second), {}).run, RUN_CODE, None, run)
    assert run.error is None, run.error
    return run.dependence, [first, second, *run.result]


def test_what_no_operation_returns_follows_from_what_has_its_storage():
    def work(first, second):
        return (
            torch.autograd.Variable(first),
            torch.autograd.Variable(first.relu()) + 1,
            torch.autograd.Variable(second),
        )

    dependence, (_, _, *results) = observed(work)
    assert [sorted(dependence.of(value)) for value in results] == [["first"], ["first"], ["second"]]


def test_results_follow_from_all_operands_through_views_and_integers():
    def work(first, second):
        view = first.t()
        chosen = view[second]
        return view, chosen, second * 2, torch.zeros(3), first.relu().sum(0)

    dependence, (_, _, view, chosen, doubled, zeros, total) = observed(work)
    assert [sorted(dependence.of(value)) for value in (view, chosen, doubled, zeros, total)] == [
        ["first"],
        ["first", "second"],
        ["second"],
        [],
        ["first"],
    ]
    assert sorted(dependence.of([zeros, {"a": (doubled, view)}])) == ["first", "second"]


def test_an_input_and_its_views_are_told_from_what_is_computed():
    dependence, (first, _, view, computed) = observed(lambda first, second: (first[0], first + 1))
    assert [dependence.input_of(value) for value in (first, view, computed, 3)] == ["first", "first", None, None]
    assert [dependence.is_input(value) for value in (first, view, computed, 3)] == [True, False, False, False]


def test_what_decides_the_type_of_a_value():
    def work(first, second):
        parts = first.split(2)
        return parts, (parts[0], parts[1]), first.max(), "text"

    dependence, (first, _, parts, own, largest, text) = observed(work)
    assert [dependence.kind_of(value) for value in (first, parts, own, largest, text)] == [
        "input",
        "result",
        "input",
        "tensor",
        "input",
    ]
