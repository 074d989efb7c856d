"""Every pass of `examples/passes/` on its targets, in Neovim."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest
from scenarios import REPOSITORY, Neovim, Run

pytest_plugins = ["shared_editors"]
pytestmark = pytest.mark.torch

FOLDER = REPOSITORY / "examples" / "passes"


class Case(NamedTuple):
    """A pass, what it is run on, and what has to be seen of that."""

    file: str
    name: str
    target: str
    shown: tuple[str, ...]
    fails: str = ""
    marks: str = ""


CASES = [
    Case(
        "in_place.py",
        "relu_to_gelu",
        "scaled",
        ("-    relu: f32[4, 16] = aten.relu.default(x)\n+    relu: f32[4, 16] = aten.gelu.default(x)",),
    ),
    Case(
        "in_place.py",
        "clamp_after_relu",
        "scaled",
        ("+    clamp_default: f32[4, 16] = aten.clamp.default(relu, None, 6.0)", "aten.add.Tensor(clamp_default, 1.0)"),
    ),
    Case("in_place.py", "drop_detach", "biased", ("-    detach: f32[8, 64] = aten.detach.default(again)",)),
    Case("in_place.py", "forgets_its_users", "scaled", ("# inference ",), fails="still had 1 users"),
    Case("transformers.py", "AddToSub", "scaled", ("+    y: f32[4, 16] = aten.sub.Tensor(relu, 1.0)",)),
    Case(
        "transformers.py", "SigmoidToExp", "scaled", ("aten.exp.default(", "+    sigmoid: f32[4, 16] = aten.reciprocal")
    ),
    Case("transformers.py", "NoDropout", "scaled", ("-    native_dropout: ",)),
    Case("transformers.py", "ScalarToTensor", "scaled", ("aten.full.default([], 0.5)",)),
    Case(
        "patterns.py", "fuse_bias", "biased", ("# match 2", "aten.addmm.default(b, x, w)"), marks="match 1 of fuse_bias"
    ),
    Case(
        "patterns.py",
        "fuse_bias_before_relu",
        "biased",
        ("# match 1", "# near misses", "the filter feeds_relu rejects the match"),
    ),
    Case("patterns.py", "relu_of_sum", "biased", ("# match 1", "hidden = aten.relu.default(add)"), marks="match 1"),
    Case(
        "managers.py",
        "pipeline",
        "scaled",
        ("pass:pipeline:SubToAdd", "pass:pipeline:relu_to_tanh"),
        fails="the check of",
    ),
    Case("managers.py", "SubToAdd", "scaled", ("pass:SubToAdd",)),
    Case("managers.py", "relu_to_tanh", "Mlp", ("aten.tanh.default(",)),
    Case(
        "managers.py",
        "MatmulsAndSums",
        "biased",
        ("# partition 1", "self.fused_0(", "aten.relu.default is not supported"),
    ),
]


@pytest.fixture(scope="module")
def seen(neovim: Neovim, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("own_passes")
    runs = [
        {
            "file": str(FOLDER / case.file),
            "pass": case.name,
            "target": case.target,
            "fails": bool(case.fails),
            "marks": bool(case.marks),
        }
        for case in CASES
    ]
    return neovim("0.11", "own_passes.lua", FOLDER / "model.py", folder, FX_RUNS=json.dumps(runs))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_a_pass_does_is_shown(seen: Run, case: Case) -> None:
    for text in case.shown:
        assert text in seen["views"][case.name]
    if case.fails or case.marks:
        problem = seen["problems"][case.name]
        assert (case.fails or case.marks) in problem["message"]
        assert problem["line"] > 1


def test_every_pass_of_the_examples_is_here() -> None:
    from fx_lsp.tracing.slicing.passes import find_passes
    from fx_lsp.tracing.source.index import ModuleIndex
    from fx_lsp.tracing.source.parsing import parse

    found = set[tuple[str, str]]()
    for path in Path(FOLDER).glob("*.py"):
        text = path.read_text()
        tree = parse(str(path), text)
        found |= {(path.name, p.name) for p in find_passes(str(path), text, ModuleIndex(tree))}  # type: ignore[arg-type]
    assert found - {("patterns.py", "bias_pattern")} == {(case.file, case.name) for case in CASES}
