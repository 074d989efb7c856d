"""`fx-lsp compare`: graphs of targets, stages and variants beside each other."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from inline_snapshot import snapshot
from terminal import Done, fx_lsp

from fx_lsp.commands.pages import Compared, read_graphs
from fx_lsp.errors import TargetError

SOURCE = """\
import torch


# fx: x=f32[4, 8]
def f(x, scale: torch.Tensor | None = None):
    y = torch.relu(x) + 1
    return y if scale is None else y * scale


# fx: x=f32[4, 8]
def g(x):
    h = torch.relu(x)
    return h + 2
"""


def test_a_stage_and_a_variant_alone_are_of_the_first_target():
    assert read_graphs(["a/m.py::A.f@mask:joint:cse", ":joint", "@drop=True", "m.py::g"]) == [
        Compared("a/m.py::A.f", "joint:cse", "mask"),
        Compared("a/m.py::A.f", "joint", ""),
        Compared("a/m.py::A.f", "", "drop=True"),
        Compared("m.py::g", "", ""),
    ]


@pytest.mark.parametrize("graphs", [["m.py::f"], [":joint", "m.py::f"], ["m.py::f", "joint"]])
def test_what_is_no_comparison(graphs: list[str]):
    with pytest.raises(TargetError):
        read_graphs(graphs)


@pytest.fixture
def compare(tmp_path: Path) -> Callable[..., Done]:
    (tmp_path / "m.py").write_text(SOURCE)
    return lambda *arguments: fx_lsp(tmp_path, "compare", *arguments)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("graphs", "page"),
    [
        (
            ("m.py::f:forward", "@scale:forward"),
            snapshot("""\
  m.py::f · forward                                 │ m.py::f with scale · forward
  ───────────────────────────────────────────────── │ ──────────────────────────────────────────
  x: f32[4, 8]                                      │ x: f32[4, 8]
≠                                                   │ scale: f32[8]
  relu: f32[4, 8] = aten.relu.default(x)            │ relu: f32[4, 8] = aten.relu.default(x)
≠ detach: f32[4, 8] = aten.detach.default(relu)     │
  y: f32[4, 8] = aten.add.Tensor(relu, 1)           │ y: f32[4, 8] = aten.add.Tensor(relu, 1)
≠ detach_1: f32[4, 8] = aten.detach.default(detach) │
≠                                                   │ mul: f32[4, 8] = aten.mul.Tensor(y, scale)
≠ return (y, detach_1)                              │ return (mul, scale, relu)
"""),
        ),
        (
            ("m.py::f:forward", "m.py::g:forward"),
            snapshot("""\
  m.py::f · forward                                 │ m.py::g · forward
  ───────────────────────────────────────────────── │ ─────────────────────────────────────────
  x: f32[4, 8]                                      │ x: f32[4, 8]
  relu: f32[4, 8] = aten.relu.default(x)            │ relu: f32[4, 8] = aten.relu.default(x)
  detach: f32[4, 8] = aten.detach.default(relu)     │ h: f32[4, 8] = aten.detach.default(relu)
≠ y: f32[4, 8] = aten.add.Tensor(relu, 1)           │ add: f32[4, 8] = aten.add.Tensor(relu, 2)
  detach_1: f32[4, 8] = aten.detach.default(detach) │ h_1: f32[4, 8] = aten.detach.default(h)
  return (y, detach_1)                              │ return (add, h_1)
"""),
        ),
    ],
)
def test_a_variant_and_another_function_are_compared(compare: Callable[..., Done], graphs: tuple[str, ...], page: str):
    assert compare(*graphs) == (0, page, "")


@pytest.mark.torch
def test_a_page_and_json_have_all_graphs(compare: Callable[..., Done], tmp_path: Path):
    graphs = ("m.py::f:forward", ":joint")
    assert compare(*graphs, "--html", "page.html").returncode == 0
    assert (tmp_path / "page.html").read_text().count("<th>") == 2
    done = compare(*graphs, "--json")
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert found["graphs"] == ["m.py::f · forward", "m.py::f · joint"]
    assert [row["nodes"][0]["name"] for row in found["rows"] if row["unlike"] == [False, False]] == snapshot(
        ["x", "relu", "detach", "y", "detach_1"]
    )


@pytest.mark.torch
def test_a_stage_that_is_missing_is_named(compare: Callable[..., Done]):
    done = compare("m.py::f:forward", ":jiont")
    assert (done.returncode, "has no stage jiont. " in done.stderr) == (1, True)
