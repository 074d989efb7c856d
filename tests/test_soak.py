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


async def test_the_answers_are_those_of_a_fresh_server_and_nothing_is_left(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(soak, "MEASUREMENTS", 2)
    report = await soak.day({f"m{number}.py": MODULE.format(number) for number in range(4)}, 200, 4, 1, 0)
    assert report.messages >= 200 and report.requests > 50
    assert {"insert", "undo", "number", "view", "cancel", "save"} <= {*report.actions}
    assert report.compared >= 4
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
