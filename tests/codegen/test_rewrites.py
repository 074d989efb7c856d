"""The list of all rewrites: what it says, and that what has to hold after each of them is looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import interpreted
import pytest
import torch
from interpreted import captured, compared, generated, loaded

from fx_lsp.choices import Choices
from fx_lsp.codegen import pipeline
from fx_lsp.codegen.graph.saved import SavedValues
from fx_lsp.codegen.pipeline import REWRITES, Graphs, Rewrite, finish, listing

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "codegen.md"


def test_the_page_has_the_list_as_it_is_printed() -> None:
    assert f"```\n{listing()}```\n" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "choices, absent",
    [
        (Choices(), []),
        (Choices(matmul="never"), ["fuse_matmuls"]),
        (Choices(deterministic="yes"), ["add_to_zeros"]),
        (
            Choices(fuse="no"),
            [
                *("batch_step_sums", "fuse_attention", "fuse_matmuls", "split_reductions", "sum_stacked_parts"),
                "write_in_copied_layout",
            ],
        ),
    ],
)
def test_choices_say_what_runs(choices: Choices, absent: list[str]) -> None:
    assert sorted({r.name for r in REWRITES if r.phase != "partition" and not r.applies(choices)}) == absent


def test_of_kernels_that_inductor_makes_only_results_that_are_views_are_taken_out() -> None:
    applied = [r.name for r in REWRITES if r.applies(Choices(engine="inductor"))]
    assert applied == ["partition_recomputing", "detach_view_results"]


@pytest.mark.parametrize("backward", ["recompute", "balance", "save"])
def test_a_graph_is_parted_once(backward: Any) -> None:
    rows = [r for r in REWRITES if r.makes[:2] == ("forward", "backward") and r.applies(Choices(backward=backward))]
    assert len(rows) == 1


def test_each_runs_in_the_order_of_the_list_on_the_graphs_that_there_are() -> None:
    ran: list[str] = []

    def note(rewrite: Rewrite, graphs: Graphs, broken: Any) -> None:
        if broken is not None:
            ran.append(f"{rewrite.phase} {rewrite.name}")

    x = torch.randn(4, 8)
    graphs = replace(captured(lambda x: x.tanh(), [x]).graphs, watch=note)
    finish(graphs, 1, None)
    phases = ("joint", "forward")
    assert ran == [f"{r.phase} {r.name}" for r in REWRITES if r.phase in phases]


def reread(x: torch.Tensor) -> torch.Tensor:
    return x.tanh().view(8, 4).view(2, 16).sum(-1)


def written(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for step in range(4):
        out[step] = x[step].tanh()
    return out * out[2]


def averaged(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([row.tanh() for row in x.unbind()]).mean(0)


def sliced(x: torch.Tensor) -> torch.Tensor:
    return x[0].tanh() + x[1].sin() + x[2].cos() + x[3]


def random(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rand_like(x)


def ordered(x: torch.Tensor) -> torch.Tensor:
    return x.sort()[0] * 2


def indexed(x: torch.Tensor) -> torch.Tensor:
    return x.tanh()[torch.tensor([0, 1, 1])]


def shown(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.tanh(), x.view(8, 4)


@pytest.mark.parametrize(
    "function, broken",
    [
        (reread, "merge_views"),
        (random, "seed_random"),
        (ordered, "save_library_results"),
        (indexed, "save_scatter_sums"),
        (indexed, "add_to_zeros"),
        (written, "join_writes"),
        (sliced, "join_slices"),
        (averaged, "sum_stacked_parts"),
        (shown, "detach_view_results"),
    ],
)
def test_a_rewrite_that_does_nothing_breaks_what_has_to_hold_after_it(
    monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any], broken: str
) -> None:
    inputs = [torch.randn(4, 8, requires_grad=True)]
    generated(captured(function, inputs))

    def lazy(*_: Any) -> dict[int, Any]:
        return {}

    lazy.__name__ = broken
    rows = tuple(replace(r, function=lazy) if r.name == broken else r for r in REWRITES)
    monkeypatch.setattr(pipeline, "REWRITES", rows)
    with pytest.raises(AssertionError, match=f"{broken}: not so in the "):
        generated(captured(function, inputs))


@pytest.mark.parametrize("part", [lambda x: x.unbind(1), lambda x: x.transpose(0, 1).split([2, 1, 1])])
def test_backward_takes_the_gradients_of_parts_of_an_input(part: Callable[..., Any]) -> None:
    """PyTorch hides from autograd that one of several parts is a view, and leaves its gradient to backward."""

    def parted(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first, second, *_, last = part(x)
        return (first[:1] * second[:1]).sum(-1), last, second

    inputs = [torch.randn(3, 4, 8, requires_grad=True)]
    function = loaded(generated(captured(parted, inputs))).f
    assert compared(function, parted, inputs) == []
    assert function(*inputs)[1].data_ptr() == parted(*inputs)[1].data_ptr()


def test_a_rewrite_that_changes_what_a_graph_computes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def merge_views(graph: Any) -> None:
        output = next(n for n in reversed(graph.nodes) if n.op == "output")
        output.args = (tuple(next(iter(graph.nodes)) for _ in output.args[0]),)

    rows = tuple(replace(r, function=merge_views) if r.name == "merge_views" else r for r in REWRITES)
    monkeypatch.setattr(pipeline, "REWRITES", rows)
    with pytest.raises(AssertionError, match="merge_views: the joint graph has other results than before"):
        generated(captured(lambda x: x.double().sum(), [torch.randn(4, 8)]))


def test_a_graph_that_is_not_well_formed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def merge_views(graph: Any) -> None:
        first, second, *_ = (n for n in graph.nodes if n.op == "call_function")
        second.append(first)

    rows = tuple(replace(r, function=merge_views) if r.name == "merge_views" else r for r in REWRITES)
    monkeypatch.setattr(pipeline, "REWRITES", rows)
    with pytest.raises(AssertionError, match="merge_views: the joint graph is not well-formed"):
        generated(captured(lambda x: x.tanh().sin(), [torch.randn(4, 8)]))


def looped(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    state, states = torch.zeros_like(x[0]), list[torch.Tensor]()
    for step in range(20):
        state = (state * weight + x[step].t()).tanh()
        states.append(state)
    return torch.stack(states)


def saved_view(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return (x.sum((0, 1)).view(2, 4).t() @ weight[:2]).exp()


@pytest.mark.parametrize("function", [looped, saved_view])
def test_forward_and_backward_agree_whatever_their_nodes_are_called(
    monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any]
) -> None:
    renamed: list[str] = []

    def rename(rewrite: Rewrite, graphs: Graphs, broken: Any) -> None:
        hold(rewrite, graphs, broken or ())
        if broken is not None and rewrite.name == "partition_recomputing":
            for graph, letter in ((graphs.forward, "f"), (graphs.backward, "b")):
                assert graph is not None
                for number, node in enumerate(graph.nodes):
                    node.name = f"{letter}{number}"
                    renamed.append(node.name)

    hold = interpreted.hold
    monkeypatch.setattr(interpreted, "hold", rename)
    inputs = [torch.randn(20, 8, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)]
    inputs = inputs if function is looped else [torch.randn(3, 5, 8, requires_grad=True), inputs[1]]
    found = loaded(generated(captured(function, inputs)))
    assert len(renamed) > 10
    assert compared(found.f, function, inputs) == []


def test_what_forward_saves_in_another_order_than_backward_takes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def save_bases(saved: SavedValues) -> None:
        saved.inputs.reverse()

    rows = tuple(replace(r, function=save_bases) if r.name == "save_bases" else r for r in REWRITES)
    monkeypatch.setattr(pipeline, "REWRITES", rows)
    inputs = [torch.randn(4, 8, requires_grad=True), torch.randn(8, 6, requires_grad=True)]
    with pytest.raises(AssertionError, match="save_bases: not so of forward and backward that"):
        captured(lambda x, y: x @ y, inputs)
