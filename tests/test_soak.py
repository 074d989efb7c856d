"""A short day of `benchmarks/soak.py`: typing, undo, renames, branches; the answers are those of a fresh server."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import soak

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc"),
    pytest.mark.skipif(shutil.which("git") is None, reason="branches need git"),
]

MODULE = "import torch\n\n\ndef f{0}(x: torch.Tensor):\n    y = torch.relu(x) * {0}\n    return y + 1\n"


@pytest.mark.parametrize("messages", [40, pytest.param(200, marks=pytest.mark.release)])
async def test_the_answers_are_those_of_a_fresh_server_and_nothing_is_left(
    messages: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(soak, "MEASUREMENTS", 2)
    modules = messages // 50 + 1
    report = await soak.day({f"m{n}.py": MODULE.format(n) for n in range(modules)}, messages, modules, 1, 0)
    assert report.messages >= messages and report.requests > messages // 4
    assert {"insert", "undo", "number", "view", "cancel", "save"} <= {*report.actions} or messages < 200
    assert report.compared >= modules
    assert report.differences == []
    assert (report.silences, report.left) == (0, [])


def test_memory_that_grows_is_noticed():
    report = soak.Report(memory={"server": [10, 50, 50, 50, 50, 51, 52, 60]})
    assert report.growth("server") == pytest.approx(1.12)
    assert report.is_wrong
    assert not soak.Report(memory={"server": [10, 50, 50, 50, 50, 51, 52, 53]}).is_wrong


def test_an_answer_that_differs_is_noticed():
    assert soak.Report(differences=["m.py, lenses"]).is_wrong
    assert not soak.Report().is_wrong


def test_a_guess_of_an_earlier_text_is_no_difference():
    fresh = "x: ~f32[4, 64]   (search)\nsaves 1 KiB"
    assert soak.without_sizes(fresh.replace("4, 64", "8, 16").replace("1 KiB", "512 B")) == soak.without_sizes(fresh)
    assert soak.without_sizes(fresh.replace("f32", "i64")) != soak.without_sizes(fresh)
