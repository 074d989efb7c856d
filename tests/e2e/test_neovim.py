"""The Neovim plugin in Neovim, with the real server and the real torch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scenarios import BLOCKED_SECONDS, SMALL, STARTS, Neovim, Run, llama

pytest_plugins = ["shared_editors"]
pytestmark = pytest.mark.torch

WAYS = {
    "0.11, vim.lsp.enable": STARTS["0.11"],
    "0.11, vim.lsp.start": """
        vim.api.nvim_create_autocmd('FileType', { pattern = 'python', callback = function(args)
          if vim.bo[args.buf].buftype == '' then vim.lsp.start(require('fx_lsp').config(overrides)) end
        end })""",
    "0.7, setup": STARTS["0.7"],
}

TRAINED = [
    "rotate_half",
    "apply_rotary_pos_emb",
    "repeat_kv",
    "LlamaRMSNorm",
    "LlamaMLP",
    "LlamaAttention",
    "LlamaDecoderLayer",
]
ROTARY = "LlamaRotaryEmbedding"
"""What is looked at of the large file."""


@pytest.fixture(scope="module", params=WAYS)
def start(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module", params=STARTS)
def version(request: pytest.FixtureRequest) -> str:
    """Each Neovim, started in one way: enough for what takes long."""
    return request.param


@pytest.fixture(scope="module")
def small(neovim: Neovim, start: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The small file, edited, broken and mended again."""
    folder = tmp_path_factory.mktemp("small") / "a folder, 100% full"
    folder.mkdir()
    file = folder / "small.py"
    file.write_text(SMALL)
    return neovim(start.partition(",")[0], "small.lua", file, folder, WAYS[start])


@pytest.fixture(scope="module")
def large(neovim: Neovim, version: str, answers: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A large file that others wrote. Not all of it is traced: whole models take long, and VS Code looks at one."""
    wanted = json.dumps([f"def {name}(" if name.islower() else f"class {name}(" for name in (*TRAINED, ROTARY)])
    folder = tmp_path_factory.mktemp("large")
    return neovim(version, "llama.lua", llama(), folder, cache=answers, FX_WANTED=wanted)


def test_two_lenses_and_a_menu_by_default(neovim: Neovim, version: str, tmp_path: Path) -> None:
    (file := tmp_path / "small.py").write_text(SMALL)
    found = neovim(version, "menu.lua", file, tmp_path, all_lenses=False)
    assert found["lens"].startswith("6 ops forward · ")
    assert found["lens"].endswith(" | graphs")
    assert found["graph"]["name"].endswith("/gate.backward.py")


def test_lenses_over_functions_and_modules(small: Run) -> None:
    shows = (
        "show forward graph | show backward graph | show joint graph "
        "| passes | why not fused | generate Triton kernel | benchmark"
    )
    assert small.lens("def gate").startswith("6 ops forward · ")
    assert small.lens("def gate").endswith(shows)
    assert small.lens("class Block").endswith(shows)
    assert small.lens("def mismatch").startswith("not traced: ")


def test_shape_error_on_the_expression(small: Run) -> None:
    (problem,) = small["problems"]
    assert problem["text"] == "y @ w"
    assert "4" in problem["message"] and "8" in problem["message"]


def test_hover(small: Run) -> None:
    assert "x: f32[4, 8]" in small["hover_name"]
    assert "saves" in small["hover_name"]
    assert "aten.relu.default(" in small["hover_expression"]
    assert "f32[4, 16]" in small["hover_expression"]


def test_inlay_hints(small: Run, start: str) -> None:
    if start.startswith("0.7"):
        pytest.skip("Neovim 0.7 has no inlay hints")
    assert "h: f32[4, 16] = torch.relu(x @ w)" in small["hints"][str(small.line("torch.relu"))]
    assert "-> f32[4, 16]" in small["hints"][str(small.line("return h * x.sum()"))]
    assert small["hints_toggled"] is False


def test_graph_opens_beside_the_source(small: Run) -> None:
    graph = small["graph"]
    assert graph["name"].startswith("fx-lsp:///") and graph["name"].endswith("/small.py/gate.forward.py")
    assert graph["windows"] == small["windows_after_second_click"] == 2
    assert graph["filetype"] == "python"
    assert not graph["modifiable"]
    assert "aten.relu.default(" in graph["text"]


def test_command_shows_other_stages(small: Run) -> None:
    assert small["backward"]["name"].endswith("/gate.backward.py")
    assert small["joint"]["name"].endswith("/gate.joint.py")


def test_unsaved_edit_updates_lens_and_open_graph(small: Run) -> None:
    assert not small["edited"]["saved"]
    assert "aten.relu" not in small["edited"]["graph"]
    assert "aten.tanh.default(" in small["edited"]["graph"]
    assert small["edited"]["lens"].startswith("7 ops forward · ")


def test_syntax_error_keeps_the_last_graphs(small: Run) -> None:
    broken = small["broken"]["lenses"]
    assert broken[str(small.line("def gate"))].startswith("stale · 7 ops forward")
    assert broken[str(small.line("class Block"))].startswith("stale · ")
    title, *lines = small["broken"]["graph"].splitlines()
    assert title.endswith("forward graph · 7 ops · stale: from the last version that parsed")
    assert lines[0].startswith("# torch ")
    assert any("last version that parsed" in p["message"] for p in small["broken"]["problems"])


def test_restart(small: Run) -> None:
    assert small["status_without_server"] == ""
    assert small["without_server"] == "# fx-lsp is not running: open the Python file first."
    assert "aten.tanh.default(" in small["after_restart"]
    assert "aten.exp.default(" in small["after_second_restart"]


def test_nothing_is_complained_about(small: Run) -> None:
    assert small["health"] == "ok"
    assert small["messages"].strip() == ""


def test_editor_is_never_blocked(small: Run) -> None:
    assert small["gap"] < BLOCKED_SECONDS


@pytest.mark.parametrize("name", TRAINED)
def test_llama_forward_and_backward(large: Run, name: str) -> None:
    lens = large.lens(f"def {name}(") if name.islower() else large.lens(f"class {name}(")
    assert "ops forward · " in lens
    assert lens.endswith(
        "show forward graph | show backward graph | show joint graph "
        "| passes | why not fused | generate Triton kernel | benchmark"
    )


def test_llama_inference(large: Run) -> None:
    lens = large.lens(f"class {ROTARY}(")
    assert "nothing to differentiate" in lens
    assert lens.endswith("show inference graph | passes | why not fused | generate Triton kernel | benchmark")


def test_llama_hover(large: Run) -> None:
    assert "f32[" in large["hover_name"]
    assert "aten.neg.default(" not in large["hover_name"].partition("def forward(")[0]
    assert "aten.cat.default(" in large["hover_expression"]


def test_llama_inlay_hints(large: Run, version: str) -> None:
    if version == "0.7":
        pytest.skip("Neovim 0.7 has no inlay hints")
    assert "x1: ~f32[" in large["hints"][str(large.line("x1 = x["))]


def test_llama_graph(large: Run) -> None:
    assert large["graph"]["name"].endswith("/modeling_llama.py/rotate_half.forward.py")
    assert "aten.cat.default(" in large["graph"]["text"]


def test_editor_is_never_blocked_by_a_large_file(large: Run) -> None:
    assert large["gap"] < BLOCKED_SECONDS
