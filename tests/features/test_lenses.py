from dataclasses import replace

import pytest
from inline_snapshot import snapshot
from samples import BROKEN, FAILURE, TRACE, F

from fx_lsp.features.lenses import Lens, in_menu, lenses, with_menu
from fx_lsp.features.wording.uris import BENCHMARK
from fx_lsp.model import Span, StageInfo


def titles(*args, stale: bool = False) -> list[str]:
    return [lens.title for lens in lenses(*args, stale)]


def test_a_traced_function_says_what_it_costs_and_offers_its_graphs():
    found = lenses(F, TRACE, stale=False)
    assert [(lens.title, lens.stage) for lens in found] == snapshot(
        [
            ("3 ops forward · 2 backward · saves ~128 B", "forward"),
            ("show forward graph", "forward"),
            ("show backward graph", "backward"),
            ("show joint graph", "joint"),
            ("passes", "passes"),
            ("why not fused", "fusion"),
            ("generate Triton kernel", "triton"),
        ]
    )
    assert {(lens.span, lens.name) for lens in found} == {(F.name_span, "f")}


def test_nothing_to_differentiate():
    trace = replace(TRACE, stages=(StageInfo("inference", 9, 12),), saved=())
    assert titles(F, trace) == snapshot(
        [
            "9 ops · nothing to differentiate",
            "show inference graph",
            "passes",
            "why not fused",
            "generate Triton kernel",
        ]
    )


def test_what_pytorch_cannot_differentiate():
    trace = replace(TRACE, stages=(StageInfo("inference", 9, 12),), saved=(), refused=True)
    assert titles(F, trace)[0] == "9 ops · cannot be differentiated"


def test_a_failure_has_one_lens():
    (lens,) = lenses(BROKEN, FAILURE, stale=False)
    assert (lens.title, lens.action) == snapshot(("not traced: line 12", "show failure"))


@pytest.mark.parametrize(
    ("span", "title"),
    [
        (None, "not traced"),
        (BROKEN.name_span, "not traced"),
        (Span("/w/layers.py", 12, 4, 12, 9), "not traced: layers.py:12"),
    ],
)
def test_why_is_left_to_the_problem(span: Span | None, title: str):
    assert titles(BROKEN, replace(FAILURE, span=span)) == [title]


def test_stale_lenses_say_so_once():
    assert titles(F, TRACE, stale=True)[:2] == snapshot(
        ["stale · 3 ops forward · 2 backward · saves ~128 B", "show forward graph"]
    )


def test_no_lens_before_anything_is_known():
    assert lenses(F, None, stale=False) == ()


def test_no_lens_over_what_runs_no_operation():
    assert titles(F, replace(TRACE, stages=(StageInfo("inference", 0, 2),), saved=())) == []


def test_a_graph_that_is_built_by_hand_is_there_to_be_read():
    stages = (StageInfo("graph", 9, 12), StageInfo("table", 0, 0), StageInfo("code", 0, 0))
    found = lenses(replace(F, kind="graph"), replace(TRACE, stages=stages, saved=()), stale=False)
    assert [(lens.title, lens.stage, lens.work) for lens in found] == snapshot(
        [
            ("12 nodes", "graph", ""),
            ("show graph", "graph", ""),
            ("show table", "table", ""),
            ("show code", "code", ""),
            ("TorchScript", "torchscript", "torchscript"),
        ]
    )


def test_by_default_a_target_has_its_cost_and_a_menu_of_the_rest():
    shown = lenses(F, TRACE, stale=False)
    assert [lens.title for lens in with_menu(shown)] == ["3 ops forward · 2 backward · saves ~128 B", "graphs"]
    assert [lens.title for lens in in_menu(shown)] == [lens.title for lens in shown[1:]]


def test_a_measurement_stays_in_sight():
    measured = Lens(F.name_span, "1.2× compile", "show stage", "f", BENCHMARK, BENCHMARK)
    titles = [lens.title for lens in with_menu([*lenses(F, TRACE, stale=False), measured])]
    assert titles == ["3 ops forward · 2 backward · saves ~128 B", "graphs", "1.2× compile"]


def test_a_target_is_traced_for_the_first_time():
    assert [lens.title for lens in lenses(F, None, stale=False, pending=True)] == ["tracing…"]


def test_compiled_code_offers_what_is_compiled_again():
    offered = titles(replace(F, compiled="parts"), TRACE)
    assert offered == [*titles(F, TRACE), "recompilations"]
