"""The column of costs by line in VS Code, with the real server: estimated, then measured on this machine."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from scenarios import HERE
from vscode.workbench import SHOTS, Code

pytest.importorskip("execnet")
pytest_plugins = ["shared_editors"]
pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def heat(vscode: Code, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    source = HERE / "vscode" / "transformer"
    workspace = Path(shutil.copytree(source, tmp_path_factory.mktemp("heat") / source.name))
    return vscode.play("heat.mjs", workspace, workspace / "attention.py")


def cell(cells: list[dict[str, Any]], code: str) -> dict[str, Any]:
    return next(cell for cell in cells if code in cell["code"])


def test_a_line_is_as_strong_as_its_share_of_the_flops(heat: dict[str, Any]) -> None:
    cells = heat["estimated"]
    qkv, scores, softmax = (cell(cells, code) for code in ("self.qkv(x)", "q @ k.mT", "F.softmax(scores"))
    assert all(re.fullmatch(r"\d+%", item["share"]) for item in (qkv, scores))
    assert softmax["share"] == "·"
    assert qkv["opacity"] > scores["opacity"] > softmax["opacity"] == 0.0


def test_every_line_has_a_cell_so_that_the_code_stays_aligned(heat: dict[str, Any]) -> None:
    assert all(item["share"] is not None for item in heat["estimated"])


def test_the_hover_of_a_cell_has_the_numbers(heat: dict[str, Any]) -> None:
    assert re.search(r"~[\d.]+% of the FLOPs of SelfAttention, estimated from the graphs", heat["hover"])
    assert re.search(r"~[\d.]+ [KM]FLOP, ~[\d.]+ KiB read and written", heat["hover"])


def test_a_benchmark_by_line_takes_the_place_of_the_estimate(heat: dict[str, Any]) -> None:
    assert re.search(r"[\d.]+% of the time of SelfAttention, measured on local, eager", heat["measured"])
    assert re.search(r"forward [\d.,]+ µs, backward [\d.,]+ µs", heat["measured"])


def test_there_is_a_picture_in_each_theme(heat: dict[str, Any]) -> None:
    assert all((SHOTS / f"{name}.png").stat().st_size > 10_000 for name in ("heat", "heat-light", "heat-measured"))
