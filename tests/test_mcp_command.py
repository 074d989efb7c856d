"""`fx-lsp mcp`: what a coding agent sees of it, through the client of the protocol's own SDK."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from warm import warm_python

import fx_lsp
from fx_lsp.cli import main

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

from mcp import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client

pytestmark = pytest.mark.torch

PACKAGE = str(Path(fx_lsp.__file__).parents[1])
MODEL = """\
import torch
from torch import nn

print("printed on import")


# fx: x=f32[4, 8], w=f32[8, 3]
def product(x, w):
    return torch.relu(x @ w)


class Block(nn.Module):
    def __init__(self, width: int = 32):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    # fx: x=f32[2, 32]
    def forward(self, x):
        h = torch.tanh(self.up(x))
        return x + self.down(h)
"""
WRONG = MODEL.replace("w=f32[8, 3]", "w=f32[3, 8]")
ABSENT = "import torch\nimport absent\n\n\ndef f(x: torch.Tensor):\n    return absent.g(torch.relu(x))\n"
MARKING = """\
#!/bin/sh
echo "interpreter $*" >> {marker}
exit 3
"""


@dataclass
class Agent:
    """A client of a server that runs, for files in `folder`."""

    session: ClientSession
    folder: Path

    async def call(self, tool: str, path: str = "model.py", **arguments: object) -> str:
        """The text of an answer."""
        result = await self.session.call_tool(tool, {"path": str(self.folder / path), **arguments})
        assert not result.is_error, result.content
        return result.content[0].text

    async def refused(self, tool: str, path: str = "model.py", **arguments: object) -> str:
        """The text of an error."""
        result = await self.session.call_tool(tool, {"path": str(self.folder / path), **arguments})
        assert result.is_error, result.content
        return result.content[0].text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project; the user's settings are beside it."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text('[project]\nname = "project"\n')
    (project / "model.py").write_text(MODEL)
    return project


@asynccontextmanager
async def server(folder: Path, *options: str) -> AsyncIterator[Agent]:
    base = folder.parent
    env = {"PYTHONPATH": PACKAGE, "XDG_CONFIG_HOME": str(base / "config"), "XDG_CACHE_HOME": str(base / "cache")}
    command = StdioServerParameters(command=sys.executable, args=["-m", "fx_lsp", "mcp", *options], env=env)
    unread: list[Exception] = []

    async def hear(message: object) -> None:
        unread.extend([message] if isinstance(message, Exception) else [])

    async with stdio_client(command) as streams, ClientSession(*streams, message_handler=hear) as session:
        await session.initialize()
        yield Agent(session, folder)
    assert unread == [], "standard output has nothing but the protocol"


def trusting(folder: Path):
    return server(folder, "--trust", "--python", warm_python())


def trust(folder: Path) -> None:
    """What `fx-lsp trust FOLDER` stores."""
    store = folder.parent / "config" / "fx-lsp" / "trusted.json"
    store.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
    store.write_text(json.dumps({"folders": {str(folder.resolve()): "trusted"}}))
    store.chmod(0o600)


async def test_tools_are_listed_with_what_they_do_and_take(folder: Path):
    async with server(folder) as agent:
        listed = {tool.name: tool for tool in (await agent.session.list_tools()).tools}
    assert [*listed] == ["check", "targets", "shapes", "graph", "saved", "kernel", "bench"]
    assert all(tool.description and len(tool.description) > 100 for tool in listed.values())
    assert listed["graph"].input_schema["required"] == ["path", "name"]
    assert listed["bench"].input_schema["required"] == ["path", "name", "host"]
    for name, tool in listed.items():
        assert {"detail", "full"} & tool.input_schema["properties"].keys(), name


async def test_a_wrong_edit_is_found_before_it_is_written_and_what_cannot_be_traced_is_none(folder: Path):
    async with trusting(folder) as agent:
        assert await agent.call("check") == "no mistakes in 2 functions and modules"
        answer = await agent.call("check", text=WRONG)
        assert answer.splitlines()[0] == "1 mistake in 2 functions and modules"
        assert answer.splitlines()[1].startswith("9:23 error [shape] product was not traced: matrices of 4×8 and 3×8")
        assert (folder / "model.py").read_text() == MODEL
        assert await agent.call("check") == "no mistakes in 2 functions and modules"
        assert await agent.call("check", text=WRONG, only="modules") == "no mistakes in 1 function or module"
        assert "mistake in 2" in await agent.call("check", "new.py", text=WRONG), "a file that is not on disk yet"
        assert "x: f32[2, 32]" in await agent.call("check", detail=True)
        first, second = (await agent.call("check", text=ABSENT)).splitlines()
        assert first == "no mistakes in 1 function or module; 1 not traced"
        assert second.startswith("not traced: 2:1 import: f was not traced: the package `absent` is not installed")


async def test_other_files_see_what_is_on_disk(folder: Path):
    (folder / "helper.py").write_text("def twice(x, w):\n    return x @ w + x @ w\n")
    uses = "from helper import twice\n\n\n# fx: x=f32[4, 8], w=f32[8, 3]\ndef f(x, w):\n    return twice(x, w)\n"
    (folder / "uses.py").write_text(uses)
    broken = "def twice(x, w):\n    return x @ w.T\n"
    async with trusting(folder) as agent:
        assert (await agent.call("check", "uses.py")).startswith("no mistakes")
        await agent.call("check", "helper.py", text=broken)
        assert (await agent.call("check", "uses.py")).startswith("no mistakes")
        (folder / "helper.py").write_text(broken)
        answer = await agent.call("check", "uses.py")
        assert answer.startswith("1 mistake") and f"{folder / 'helper.py'}:2" in answer


async def test_graphs_shapes_and_saved_tensors_are_short_unless_all_is_requested(folder: Path):
    (folder / "deep.py").write_text(
        textwrap.dedent("""\
        import torch


        # fx: x=f32[4]
        def deep(x):
        """)
        + "".join(f"    x = torch.{name}(x)\n" for name in ("sin", "exp", "tanh", "cos") * 10)
        + "    return x\n"
    )
    async with trusting(folder) as agent:
        targets = await agent.call("targets")
        assert targets.splitlines()[0] == "product (function, line 8): 6 ops forward · 3 backward · saves 48 B"
        assert "parameters" in await agent.call("targets", detail=True) and "parameters" not in targets

        graph = await agent.call("graph", name="product")
        assert "mm: f32[4, 3] = aten.mm.default(x, w)" in graph
        backward = await agent.call("graph", name="product", stage="backward")
        assert backward.startswith("# model.py::product · backward graph") and "threshold_backward" in backward
        short = await agent.call("graph", "deep.py", name="deep")
        full = await agent.call("graph", "deep.py", name="deep", full=True)
        assert short.splitlines()[-1].endswith("more lines: pass full=true for all") and len(short) < len(full)

        shapes = (await agent.call("shapes", line=20)).splitlines()
        assert shapes == [
            "in Block:",
            "h: f32[2, 128]",
            "torch.tanh(self.up(x)): f32[2, 128]",
            "self.up(x): f32[2, 128]",
        ]
        column = MODEL.splitlines()[19].index("tanh(") + 1
        assert "f32[2, 128]" in await agent.call("shapes", line=20, column=column)
        assert "aten.tanh.default" in await agent.call("shapes", line=20, column=column, detail=True)
        assert "3×8" in await agent.call("shapes", line=9, text=WRONG)
        assert "no function or module" in await agent.call("shapes", line=1)

        saved = await agent.call("saved", name="Block")
        assert "1 KiB  h: f32[2, 128]  line 20 `h = torch.tanh(self.up(x))`, read in backward by " in saved
        assert "aten.mm.default of `down`, aten.tanh_backward.default of `tanh`" in saved
        assert "up_weight" not in saved and "parameter" in await agent.call("saved", name="Block", detail=True)


async def test_kernels_are_generated_with_options(folder: Path):
    pytest.importorskip("triton")
    async with trusting(folder) as agent:
        assert "@triton.jit" in await agent.call("kernel", name="Block", full=True)
        assert "choose one of yes, no" in await agent.refused("kernel", name="Block", choices={"fuse": "maybe"})
        assert "no option speed" in await agent.refused("kernel", name="Block", choices={"speed": "yes"})


@pytest.mark.skipif(sys.platform == "win32", reason="the interpreter is a shell script")
async def test_nothing_of_a_folder_runs_that_the_user_does_not_trust(folder: Path):
    marker, python = folder.parent / "ran.txt", folder / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(MARKING.format(marker=marker))
    python.chmod(0o755)
    async with server(folder) as agent:
        for tool, arguments in (
            ("check", {}),
            ("check", {"text": MODEL}),
            ("targets", {}),
            ("shapes", {"line": 9}),
            ("graph", {"name": "Block"}),
            ("saved", {"name": "Block"}),
            ("kernel", {"name": "Block"}),
            ("bench", {"name": "Block", "host": "local"}),
        ):
            assert f"the user can run `fx-lsp trust {folder}` in a terminal" in await agent.refused(tool, **arguments)
        assert not marker.exists()
        trust(folder)
        await agent.call("check")
        assert marker.read_text().startswith("interpreter "), "it would have run"


async def test_wrong_requests_are_errors_that_say_what_is_there(folder: Path):
    config = folder.parent / "config" / "fx-lsp"
    config.mkdir(parents=True, mode=0o700)
    (config / "hosts.toml").write_text('[hosts.h200]\nssh = "gpu-box"\n')
    async with trusting(folder) as agent:
        answer = await agent.call("check", text="def f(:\n")
        assert answer == "the file was not checked\n1:7 error [syntax] syntax error: invalid syntax."
        assert "syntax error" in await agent.refused("graph", name="f", text="def f(:\n")
        assert "No such file or directory" in await agent.refused("check", "missing.py")
        assert "Did you mean `Block`?" in await agent.refused("graph", name="Blok")
        assert "Did you mean `joint`?" in await agent.refused("graph", name="Block", stage="join")
        assert "has 21 lines" in await agent.refused("shapes", line=99)
        absent = await agent.refused("bench", name="Block", host="a100")
        assert "there is no host a100; there are: local, h200" in absent
        refusal = await agent.refused("bench", name="Block", host="h200")
        assert f"the user can run `fx-lsp bench {folder / 'model.py'}::Block --host h200` in a terminal" in refusal


def test_without_the_sdk_one_sentence_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(sys.modules, "mcp", None)
    assert main(["mcp"]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and 'pip install "mcp>=2,<3"' in shown.err and shown.err.count("\n") == 1


def test_the_server_imports_no_torch():
    loaded = "import sys, fx_lsp.commands.agents.tools; print('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", loaded], env={"PYTHONPATH": PACKAGE}, text=True) == "False\n"
