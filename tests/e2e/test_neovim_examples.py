"""What the files in examples/ promise, in Neovim as its user sees them. All are opened in one session."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from scenarios import BLOCKED_SECONDS, REPOSITORY, Neovim, Run

pytest_plugins = ["shared_editors"]
pytestmark = pytest.mark.torch

FOLDER = REPOSITORY / "examples"

SHOWN = (
    "show forward graph | show backward graph | show joint graph "
    "| passes | why not fused | generate Triton kernel | benchmark"
)
TRAINS = f"* ops forward · * backward · saves * | {SHOWN}"
ONLY_VIEWS = (
    "* ops · nothing to differentiate | show inference graph "
    "| passes | why not fused | generate Triton kernel | benchmark"
)
WRONG = "not traced: *"


@dataclass(frozen=True)
class Look:
    """A look at `at`: two arguments of the function in `nvim/drive.lua`, and parts of what it shows."""

    at: tuple[str, str]
    shows: tuple[str, ...]


@dataclass(frozen=True)
class Example:
    """`lenses` are patterns of what stands over a definition; `hints` begin a line that contains the key.

    `problems` are the marked expressions, and specs that their messages name.
    """

    lenses: dict[str, str]
    hover: Look
    hints: dict[str, str] = field(default_factory=dict[str, str])
    graph: Look | None = None
    problems: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])


EXAMPLES = {
    "attention.py": Example(
        lenses={
            "def attention": TRAINS,
            "def split_heads": ONLY_VIEWS,
            "def merge_heads": TRAINS,
            "class SelfAttention": TRAINS,
        },
        hover=Look(
            ("F.softmax(scores", "softmax"), ("forward", "aten._softmax.", "backward", "aten._softmax_backward_data.")
        ),
        hints={"q @ k.transpose": "scores: ~f32[", "torch.ones(q.size": "keep: ~b8[", "F.softmax(": "weights: ~f32["},
        graph=Look(
            ("def attention", "show backward graph"),
            (
                "# attention.py:13  weights = F.softmax(",
                "aten._softmax_backward_data.",
                "return (grad_q, grad_k, grad_v)",
            ),
        ),
    ),
    "kernelbench_style.py": Example(
        lenses={"class Model": TRAINS},
        hover=Look(
            ("class Model", "Model"),
            (
                "Model(in_features=1024, out_features=512, divisor=10.0)",
                "x: f32[128, 1024]",
                "get_inputs()",
                "-> f32[128]\n",
            ),
        ),
        hints={"F.mish(x)": "x: f32[128, 512] = "},
    ),
    "lif_neuron.py": Example(
        lenses={"class Spike": TRAINS, "def lif_step": TRAINS, "class LIFLayer": TRAINS},
        hover=Look(("Spike.apply(voltage", "apply"), ("aten.gt.Scalar(", "aten.abs.default(", "aten.div.Tensor(")),
        hints={"Spike.apply(": "spike: ~f32[", "= lif_step(": "spike: ~f32[8, 64], voltage: ~f32[8, 64] = "},
        graph=Look(
            ("def lif_step", "show backward graph"), ("aten.div.Tensor(", "return (grad_current, grad_voltage)")
        ),
    ),
    "norms.py": Example(
        lenses={"def rms_norm": TRAINS, "def layer_norm": TRAINS, "class RMSNorm": TRAINS},
        hover=Look(("def rms_norm", "rms_norm"), ("def rms_norm(x: ~f32[", "eps=1e-06", "saved for backward")),
        hints={"scale = ": "scale: ~f32[", "variance = ": "variance: ~f32["},
        graph=Look(("def rms_norm", "show joint graph"), ("grad_x: f32[", "grad_weight: f32[")),
    ),
    "resnet_block.py": Example(
        lenses={"class Bottleneck": TRAINS},
        hover=Look(("self.conv(y)", "conv"), ("aten.convolution.default(", "aten.convolution_backward.default(")),
        hints={"self.conv(y)": "y: ~f32[4, 64, ", "self.expand(y)": "y: ~f32[4, 256, "},
    ),
    "shape_bug.py": Example(
        lenses={"class Classifier": WRONG, "class Embedder": WRONG},
        hover=Look(("self.hidden(features", "hidden"), ("**Not traced** (shape)", "`images: ~f32[")),
        problems={
            "self.hidden(features.flatten(1))": ("input: f32[4, 256]", "weight: f32[128, 64]"),
            "self.project(embedded)": ("input: f32[4, 8, 64]", "weight: bf16[64, 64]"),
        },
    ),
}


@pytest.fixture(scope="module")
def session(neovim: Neovim, answers: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One Neovim that opens them all."""
    folder = tmp_path_factory.mktemp("examples")
    plan = folder / "plan.json"
    plan.write_text(json.dumps([steps(FOLDER / name, example) for name, example in EXAMPLES.items()]))
    return neovim("0.11", "examples.lua", plan, folder, cache=answers)


def steps(file: Path, example: Example) -> dict[str, object]:
    """What `nvim/examples.lua` does with a file."""
    return {
        "path": str(file),
        "lenses": list(example.lenses),
        "hints": list(example.hints),
        "problems": len(example.problems),
        "hover": example.hover.at,
        "graph": example.graph and example.graph.at,
    }


@pytest.fixture(params=EXAMPLES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def example(name: str) -> Example:
    return EXAMPLES[name]


@pytest.fixture
def seen(session: Run, name: str) -> Run:
    """What Neovim showed of the file."""
    return Run(session["files"][list(EXAMPLES).index(name)], (FOLDER / name).read_text())


def test_every_example_is_here() -> None:
    assert {file.name for file in FOLDER.glob("*.py")} == EXAMPLES.keys()


def test_lenses_stand_over_what_is_traced_and_nothing_else(seen: Run, example: Example) -> None:
    assert seen["lenses"].keys() == {str(seen.line(definition)) for definition in example.lenses}
    for definition, pattern in example.lenses.items():
        assert fnmatchcase(seen.lens(definition), pattern)


def test_only_what_is_wrong_is_marked(seen: Run, example: Example) -> None:
    assert [(p["text"], p["severity"]) for p in seen["problems"]] == [(code, "ERROR") for code in example.problems]
    for problem, specs in zip(seen["problems"], example.problems.values(), strict=True):
        assert all(spec in problem["message"] for spec in specs), problem["message"]


def test_a_hover_and_hints(seen: Run, example: Example) -> None:
    assert [part for part in example.hover.shows if part not in seen["hover"]] == []
    for code, start in example.hints.items():
        assert seen["hints"][str(seen.line(code))].lstrip().startswith(start)


@pytest.mark.parametrize("name", [name for name, example in EXAMPLES.items() if example.graph])
def test_a_graph(seen: Run, name: str, example: Example) -> None:
    assert example.graph is not None
    definition, title = example.graph.at
    target, stage = definition.split()[1], title.split()[1]
    assert seen["graph"]["name"].endswith(f"/{name}/{target}.{stage}.py")
    assert [part for part in example.graph.shows if part not in seen["graph"]["text"]] == []


def test_nothing_is_complained_about(session: Run, seen: Run) -> None:
    assert seen["health"] == "ok"
    assert session["messages"].strip() == ""
    assert session["gap"] < BLOCKED_SECONDS
