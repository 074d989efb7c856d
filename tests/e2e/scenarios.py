"""Real editors, headless: where they are, and how a scenario is run in one."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from warm import warm_python

HERE = Path(__file__).parent
REPOSITORY = HERE.parent.parent
ASKING = [sys.executable, "-m", "fx_lsp", "serve"]
SERVER = [*ASKING, "--trust"]
"""The server that asks whether it may run code, and the one that does not ask."""

BLOCKED_SECONDS = 1.0
"""No editor may stand still for longer, whatever is traced; that it waits for a processor does not count."""

DEADLINE = 600
"""Seconds that an editor waits for the end of tracing."""

STARTS = {
    "0.11": "vim.lsp.config('fx_lsp', overrides) vim.lsp.enable('fx_lsp')",
    "0.7": "require('fx_lsp').setup(overrides)",
}
"""How Neovims are told to start the server: Lua in which `overrides` are fields of the client's configuration."""

SMALL = """\
import torch
from torch import nn


def gate(x, w):
    # fx: x=f32[4, 8], w=f32[8, 16]
    h = torch.relu(x @ w)
    return h * x.sum()


class Block(nn.Module):
    # fx: init(dim=8), x=f32[4, 8]
    def __init__(self, dim):
        super().__init__()
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        return x + self.proj(x)


def mismatch(x, w):
    # fx: x=f32[4, 8], w=f32[4, 16]
    y = x.sin()
    return (y @ w).sum()
"""
"""A file with a function, a module, and a function that fails."""

GATE = """\
import torch


def gate(x):
    # fx: x=f32[2, 3]
    return torch.relu(x)
"""
"""A file with one function."""


def require(program: str | None, what: str) -> str:
    """The program, or a skipped test that says what to install."""
    if program is None:
        pytest.skip(f"{what} is not installed")
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    return program


@cache
def neovim(version: str) -> str | None:
    """A Neovim of this version ("0.11", "0.7"), in this Python's environment or on the PATH."""
    candidates = [
        os.environ.get("NVIM"),
        str(Path(sys.executable).parent / "nvim"),
        shutil.which("nvim"),
        "/usr/bin/nvim",
    ]
    for candidate in filter(None, candidates):
        if Path(candidate).is_file() and _first_line(candidate).startswith(f"NVIM v{version}."):
            return candidate
    return None


@cache
def emacs() -> str | None:
    """An Emacs that has eglot."""
    found = shutil.which("emacs")
    if found is None:
        return None
    has_eglot = subprocess.run([found, "-q", "--batch", "--eval", "(require 'eglot)"], capture_output=True, timeout=60)
    return found if has_eglot.returncode == 0 else None


def llama() -> Path:
    """`modeling_llama.py` of the installed transformers."""
    spec = importlib.util.find_spec("transformers")
    if spec is None or spec.origin is None:
        pytest.skip("transformers is not installed")
    return Path(spec.origin).parent / "models" / "llama" / "modeling_llama.py"


@dataclass(frozen=True)
class Run:
    """What a scenario found: see the scripts beside this file."""

    found: dict[str, Any]
    source: str

    def __getitem__(self, key: str) -> Any:
        return self.found[key]

    def lens(self, text: str, key: str = "lenses") -> str:
        """The titles over the first line that contains `text`, joined with ` | `; "" where there are none."""
        lenses = self.found[key]
        return lenses.get(str(self.line(text)), "")

    def line(self, text: str) -> int:
        """The number of the first line that contains `text`."""
        return next(n for n, line in enumerate(self.source.split("\n"), 1) if text in line)


def run(command: list[str], folder: Path, source: str, env: dict[str, str], seconds: float) -> Run:
    """Runs an editor until its script has written a result; fails with what it printed where there is none."""
    result = folder / "result.json"
    env = {**os.environ, **env, "FX_RESULT": str(result), "HOME": str(folder)}
    for variable in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
        env.pop(variable, None)
    done = subprocess.run(
        command, cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, text=True
    )
    assert result.exists(), f"{command[0]} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    found = json.loads(result.read_text())
    assert not found.get("error"), f"{found['error']}\n{found.get('messages')}\n{done.stderr}"
    return Run({**found, "printed": done.stdout + done.stderr}, source)


def run_neovim(
    version: str,
    script: str,
    file: Path,
    folder: Path,
    start: str | None = None,
    cache: Path | None = None,
    server: list[str] = SERVER,
    all_lenses: bool = True,
    **variables: str,
) -> Run:
    """Runs a script of `nvim/` in a Neovim of this version, with a `start` like those of `STARTS`.

    A Neovim starts at once, so that each script has one of its own, and with it a server that knows of no other; what
    takes long are interpreters, which are forked, and traces, which stay in `cache`.
    """
    nvim = require(neovim(version), f"Neovim {version}")
    options = {
        "interpreter": warm_python(),
        "cache": {"path": str(cache or folder / "cache.db")},
        "codeLens": {"all": all_lenses},
    }
    init = folder / "init.lua"
    init.write_text(
        f"vim.opt.runtimepath:append({json.dumps(str(REPOSITORY / 'editors' / 'nvim'))})\n"
        f"vim.o.columns, vim.o.lines = 200, 60\n"
        f"local overrides = vim.fn.json_decode([=[{json.dumps({'cmd': server, 'init_options': options})}]=])\n"
        f"{start or STARTS[version]}\n"
    )
    env = {
        "FX_DRIVE": str(HERE / "nvim" / "drive.lua"),
        "FX_FILE": str(file),
        "FX_DEADLINE": str(DEADLINE),
        # The server of this source tree, wherever the editor starts it.
        "PYTHONPATH": str(REPOSITORY),
        **variables,
    }
    script_path = str(HERE / "nvim" / script)
    command = [nvim, "--headless", "-u", str(init), "-i", "NONE", "-n", "-c", f"luafile {script_path}"]
    return run(command, folder, file.read_text(), env, DEADLINE + 120)


Neovim = Callable[..., Run]
"""The type of `run_neovim`."""


def run_emacs(script: str, file: Path, folder: Path, server: list[str], **variables: str) -> Run:
    """Runs a script of `emacs/` in an Emacs with this server; it ends with the script, as every batch does."""
    program = require(emacs(), "Emacs with eglot")
    env = {
        "FX_FILE": str(file),
        "FX_SERVER": "\n".join(server),
        "FX_PYTHON": warm_python(),
        "PYTHONPATH": str(REPOSITORY),
        **variables,
    }
    plugin, scripts = REPOSITORY / "editors" / "emacs" / "fx-lsp.el", HERE / "emacs"
    load = [word for file in (plugin, scripts / "common.el", scripts / script) for word in ("-l", str(file))]
    return run([program, "-q", "--batch", *load], folder, file.read_text(), env, 900)


def _first_line(program: str) -> str:
    return subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30).stdout.split("\n")[0]
