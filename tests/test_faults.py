"""Some of the faults of `benchmarks/faults.py`: each step has an answer or a sentence, and nothing is left."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import faults

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc"),
]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for an answer as long as a busy machine needs for it."""
    monkeypatch.setattr(faults, "SECONDS", 600.0)


@pytest.mark.parametrize(
    ("victim", "hurt", "step"),
    [
        ("zygote", "killed", "view"),
        pytest.param("tracer", "killed", "first lens", marks=pytest.mark.release),
        pytest.param("server", "stopped", "edit", marks=pytest.mark.release),
    ],
)
async def test_a_process_that_is_hurt(victim: str, hurt: str, step: str):
    row = await faults.hurt_at(victim, hurt, [step])
    assert row.steps >= 4 and row.answers + row.sentences == row.steps, row.details
    assert row.left == []


@pytest.mark.parametrize("fault", [pytest.param("no descriptors", marks=pytest.mark.release), "clock jumps"])
async def test_surroundings_that_fail(fault: str):
    row = await faults.surrounded(fault)
    assert row.steps >= 7 and not row.silences, row.details
    assert row.left == []


async def test_a_step_without_an_answer_is_a_silence():
    async def silent() -> str:
        raise faults.Silent("nothing")

    row = faults.Row()
    await faults.tried(row, "open", silent())
    assert row.silences == 1 and row.is_wrong


def test_a_view_without_a_sentence_is_no_answer():
    assert faults.kind_of("a graph with 1000 in it", "1000") == "answer"
    assert faults.kind_of("# **Not traced** (crash): the process ended.", "1000") == "sentence"
    with pytest.raises(faults.Silent):
        faults.kind_of("", "1000")
