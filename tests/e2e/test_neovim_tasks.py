"""What users do in Neovim, one thing in each session: comments, trust, benchmarks, costs, passes, kernels."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scenarios import ASKING, GATE, REPOSITORY, SMALL, STARTS, Neovim, Run
from warm import warm_python

pytest_plugins = ["shared_editors"]
pytestmark = pytest.mark.torch

VIEWED = """\
import torch


def gate(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x.view(2, 3))
"""
DOUBLE = """\
import torch


# fx: x=f32[64, 32]
def double(x):
    return torch.relu(x) * 2
"""
SQUARES = """\
import torch


# fx: x=f32[1000, 129]
def squares(x):
    with torch.no_grad():
        return transposed(x)


def transposed(x):
    return (x * x).t().contiguous()
"""
PASS = """\
import torch
from torch import fx

aten = torch.ops.aten


# fx: x=f32[2, 3]
def gate(x):
    y = torch.relu(x)
    return torch.nn.functional.silu(y)


def relu_to_gelu(gm: fx.GraphModule) -> None:
    for node in gm.graph.nodes:
        if node.target == aten.relu.default:
            node.target = aten.gelu.default
"""
SOFT = """\
import torch


# fx: x=f32[64, 256]
def soft(x):
    with torch.no_grad():
        return torch.softmax(x, -1) * 2
"""
ENTRY = f"""
    vim.opt.runtimepath:remove({json.dumps(str(REPOSITORY / "editors" / "nvim"))})
    vim.opt.runtimepath:append({json.dumps(str(REPOSITORY / "editors" / "registries" / "nvim-lspconfig"))})
    vim.g.fx_entry = vim.lsp.config.fx_lsp
    vim.lsp.config('fx_lsp', overrides)
    vim.lsp.enable('fx_lsp')"""
"""How a user starts the server that has nvim-lspconfig; only the command is that of this source tree."""

Play = Callable[..., Run]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (found := tmp_path / "project").mkdir()
    return found


@pytest.fixture
def play(neovim: Neovim, project: Path) -> Play:
    """Run a script on a file with a text, which is all that the project has."""

    def run(script: str, text: str, version: str = "0.11", root: str = "pyproject.toml", **options: Any) -> Run:
        (project / root).touch()
        (file := project / "m.py").write_text(text)
        return neovim(version, script, file, project.parent, **options)

    return run


@pytest.mark.parametrize("version", STARTS)
def test_inputs_are_pinned_completed_and_checked(play: Play, version: str) -> None:
    shown = play("comments.lua", VIEWED, version)
    assert "Pin these inputs as a # fx: comment" in shown["action"]
    before, comment, *after = shown["pinned"].partition("# fx: x=f32[")
    assert before == VIEWED[: VIEWED.index("def gate")]
    assert comment and after[0].partition("\n")[2].rstrip() == VIEWED[VIEWED.index("def gate") :].rstrip()
    assert "from the # fx: comment" in shown["hover"].replace("`", "")
    assert shown["completion"].startswith("f32[")
    (problem,) = shown["problems"]
    assert problem["text"] == "f99"
    assert "unknown dtype" in problem["message"]


@pytest.mark.parametrize("version", STARTS)
def test_the_user_is_asked_trusts_and_revokes(play: Play, project: Path, version: str) -> None:
    shown = play("trust.lua", GATE, version, server=ASKING)
    assert f"Do you trust {project}?" in shown["question"] and warm_python() in shown["question"]
    assert [title.rpartition(". ")[2] for title in shown["titles"]] == ["Trust", "Not now", "Never"]
    assert "ops forward" in shown["lens"] and shown["questions"] == 2
    answers = json.loads((project.parent / ".config" / "fx-lsp" / "trusted.json").read_text())
    assert answers["folders"] == {str(project): "trusted"}


def test_the_entry_of_nvim_lspconfig_starts_the_server(play: Play, project: Path) -> None:
    shown = play("registry.lua", SMALL, root="setup.py", start=ENTRY)
    assert shown["own"]["cmd"] == ["fx-lsp", "serve"]
    assert shown["own"]["filetypes"] == ["python"]
    assert shown["root"] == str(project)
    assert [problem["text"] for problem in shown["problems"]] == ["y @ w"]


def test_a_benchmark_is_measured_shown_and_stopped(play: Play, tmp_path: Path) -> None:
    pytest.importorskip("execnet")
    hosts = tmp_path / ".config" / "fx-lsp"
    hosts.mkdir(parents=True, mode=0o700)
    (hosts / "hosts.toml").write_text('[hosts.box]\ncommand = "false"\n')
    shown = play("bench.lua", DOUBLE)
    assert {"local", "box", "what=", "sweep=", "fuse=no"} <= {*shown["completed"]["words"]}
    assert shown["completed"]["hosts"] == ["local"]
    assert shown["completed"]["what"] == ["what=forward,backward", "what=forward,both"]
    assert "there is no option sideways" in shown["messages"]
    assert shown["window"] == ["text", 2]
    assert "measuring" not in shown["stopped"]
    assert "forward · x: f32[32, 16]" in shown["page"]
    assert "measured without the kernels" in shown["lens"]


def test_the_share_of_each_line_is_at_the_right_edge(play: Play) -> None:
    pytest.importorskip("execnet")
    shown = play("heat.lua", SMALL)
    product, linear = shown.line("torch.relu(x @ w)"), shown.line("self.proj(x)")
    estimated = {line: (text, color) for line, text, color in shown["estimated"]}
    assert estimated[product] == estimated[linear] == ("100% █", "FxLspHeat5")
    measured = {line for line, _, _ in shown["measured"]}
    assert {product, shown.line("h * x.sum()")} <= measured, "an addition and a sum take time, without a product"
    assert shown["windows"] == 1
    assert shown["hidden"] == []


def test_passes_are_listed_run_and_run_again(play: Play) -> None:
    shown = play("passes.lua", PASS)
    stages = [step.split()[0] for step in shown["steps"]]
    assert stages[:5] == ["torch", "dynamo", "joint", "forward", "backward"]
    assert "decomposed" in stages
    assert not any(stage.startswith("pre_grad:") for stage in stages)  # they changed nothing
    assert shown["filetype"] == "diff"
    assert "@@ " in shown["diff"]
    assert "# min-cut " in shown["FxPartitions"]
    assert "# duplicated inputs" in shown["FxDebug"]
    assert "line  ops  backward" in shown["FxSummary"]
    assert "torch.compile captures the whole target" in shown["FxBreaks"]
    assert "# calls: 1, compiled again: 0" in shown["FxRecompiles"]
    assert "-    y: f32[2, 3] = aten.relu.default(x)\n+    y: f32[2, 3] = aten.gelu.default(x)\n" in shown["run"]
    assert "+    y: f32[2, 3] = aten.tanh.default(x)" in shown["again"]
    (problem,) = shown["problems"]
    assert problem["text"] == "missing"
    assert "relu_to_gelu raised NameError" in problem["message"]


def test_kernels_are_opened_compiled_and_made_again(play: Play) -> None:
    pytest.importorskip("triton")
    shown = play("kernels.lua", SQUARES)
    assert shown["filetype"] == "python"
    assert shown["listing"] == ["// ptx of squares_kernel for cuda:80 (A100)", "asm"]
    assert "return (x * x).t().contiguous()" in shown["hover"]
    assert "bits for each thread" in shown["hover"]
    assert shown["lens"].startswith("cuda:80: ")
    assert any("tl.load" in problem["text"] for problem in shown["problems"])
    assert "x * x" in shown["related"]["kernels"]
    assert "st.global" in shown["related"]["ptx"]
    assert "- 3.0" in shown["again"]
    assert "save as a file · compared with the original: right" in shown["checked"]


def test_what_was_edited_is_there_after_the_function_has_changed(play: Play) -> None:
    pytest.importorskip("triton")
    shown = play("regenerate.lua", SOFT)
    before, changed, after = (without_check(shown[when]) for when in ("before", "changed", "after"))
    assert shown["current"]
    assert before == "kernels of m.py::soft · up to date"
    assert changed == "kernels of m.py::soft · the function has changed since then: update"
    assert "cols = tl.max_contiguous(tl.arange(0, BLOCK), BLOCK)" in shown["merged"]
    assert "<<<<<<<" not in shown["merged"]
    assert after == before
    assert shown["modified"], "the file is the user's to save"
    assert shown["undone"]


def without_check(title: str) -> str:
    """The title of the line above the file, without the result of the check, which may take longer."""
    return " · ".join(title.split(" · ")[:2])
