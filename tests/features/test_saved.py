"""Why a value is saved, and what recomputing it would cost."""

from dataclasses import replace

from samples import FORWARD, TRACE

from fx_lsp.features.costs.memory import recomputation, why_saved
from fx_lsp.model import Saved

WIRED = replace(
    FORWARD,
    nodes=tuple(
        replace(node, inputs=tuple(name for name in node.args if name.isidentifier())) for node in FORWARD.nodes
    ),
)
RELU = Saved("relu", "f32[8, 4]", 128, None, why="cut")


def names(name: str, *saved: Saved) -> list[str]:
    return [node.name for node in recomputation(name, WIRED, saved)]


def test_a_value_is_recomputed_from_inputs_and_what_is_saved():
    assert names("relu") == ["mm", "relu"]
    assert names("relu", RELU, Saved("mm", "f32[8, 4]", 128, None)) == ["relu"]
    assert names("x") == []


def test_the_reason_comes_with_the_cost_of_the_other_choice():
    assert why_saved(RELU, WIRED, (RELU,)) == (
        "PyTorch could recompute it; by its min-cut, saving moves fewer bytes. To recompute it: 2 ops · 8.19 KFLOP, "
        "6.4 KiB read and written"
    )


def test_inputs_have_no_reason():
    assert why_saved(TRACE.saved[0], WIRED, TRACE.saved) == ""
