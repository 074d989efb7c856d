"""Every file in examples/, as it is: no annotations, no comments, no settings."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from warm import warm_python

from fx_lsp.model import Failure, Outcome, Trace
from fx_lsp.tracing.engine import Engine, EngineSettings

pytestmark = pytest.mark.torch

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"

TRAINABLE = [
    "attention.py::attention",
    "attention.py::merge_heads",
    "attention.py::SelfAttention",
    "norms.py::rms_norm",
    "norms.py::layer_norm",
    "norms.py::RMSNorm",
    "resnet_block.py::Bottleneck",
    "lif_neuron.py::lif_step",
    "lif_neuron.py::LIFLayer",
    "kernelbench_style.py::Model",
]

WRONG = {
    "shape_bug.py::Classifier": ("shape", "self.hidden(features.flatten(1))"),
    "shape_bug.py::Embedder": ("dtype", "self.project(embedded)"),
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    return asyncio.run(trace([*TRAINABLE, *WRONG], str(tmp_path_factory.mktemp("cache") / "traces.sqlite3")))


async def trace(targets: list[str], cache: str) -> dict[str, Outcome]:
    settings = EngineSettings(interpreter=warm_python(), cache_path=cache, trace_on_open=False)
    engine = Engine(settings, lambda file: None, lambda status: None)
    try:
        for file in EXAMPLES.glob("*.py"):
            engine.open(str(file), file.read_text(), (str(EXAMPLES),))
        places = [target.split("::") for target in targets]
        found = await asyncio.gather(*(engine.outcome(str(EXAMPLES / file), name) for file, name in places))
    finally:
        await engine.shutdown()
    return dict(zip(targets, found, strict=True))


@pytest.mark.parametrize("target", TRAINABLE)
def test_graphs(outcomes: dict[str, Outcome], target: str):
    outcome = outcomes[target]
    assert isinstance(outcome, Trace), outcome
    assert {stage.name for stage in outcome.stages} == {"forward", "backward", "joint"}
    assert not outcome.notes


@pytest.mark.parametrize("target", WRONG)
def test_mistakes(outcomes: dict[str, Outcome], target: str):
    failure = outcomes[target]
    assert isinstance(failure, Failure)
    kind, code = WRONG[target]
    assert (failure.kind, failure.severity) == (kind, "error")
    assert failure.span is not None
    line = (EXAMPLES / "shape_bug.py").read_text().split("\n")[failure.span.line - 1]
    assert line[failure.span.col : failure.span.end_col] == code
