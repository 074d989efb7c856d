"""`fx-lsp check --watch` checks again after each change."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from checking import start_check

pytestmark = pytest.mark.torch

MODEL = """\
import torch
from sizes import WIDTH


def f(x: torch.Tensor):
    return torch.ones(2, WIDTH) @ torch.ones(4, 2)
"""
STEADY = "import torch\n\n\ndef steady(x: torch.Tensor):\n    return torch.relu(x)\n"


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A check that watches a model without mistakes, whose first report is not read yet."""
    (tmp_path / "sizes.py").write_text("WIDTH = 4\n")
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "steady.py").write_text(STEADY)
    process = start_check(tmp_path, "model.py", "steady.py", "--watch")
    yield process
    process.kill()
    process.communicate()


def report(process: subprocess.Popen[str]) -> str:
    """The next report: all lines up to the one with the counts."""
    assert process.stdout is not None
    lines: list[str] = []
    while " found in " not in "".join(lines[-1:]):
        line = process.stdout.readline()
        assert line, lines
        lines.append(line)
    return "".join(lines)


def test_a_check_that_watches(watching: subprocess.Popen[str], tmp_path: Path):
    assert " · 2 traced · 0 not · 0 problems · " in report(watching)

    (tmp_path / "sizes.py").write_text("WIDTH = 5\n")  # a file that the model imports, which is not checked itself
    second = report(watching)
    assert "model.py:6: error (shape): " in second
    assert "\x1b" not in second

    (tmp_path / "model.py").write_text("def f(:\n")
    assert "model.py:1: error (syntax): " in report(watching)

    (tmp_path / "model.py").unlink()
    (tmp_path / "model.py").write_text(STEADY.replace("steady", "again"))
    last = report(watching)
    while "again" not in last:  # the file may be seen while it is missing or empty
        last = report(watching)
    assert " · 2 traced · 0 not · 0 problems · " in last

    watching.send_signal(signal.SIGINT)
    _, errors = watching.communicate(timeout=300)
    assert watching.returncode == 130
    assert errors.count("watching for changes; Ctrl-C ends\n") >= 4
    assert "Traceback" not in errors


def test_a_module_that_appears(tmp_path: Path):
    (tmp_path / "model.py").write_text(MODEL)
    process = start_check(tmp_path, ".", "--watch")
    try:
        assert "not traced (import): " in report(process)
        (tmp_path / "sizes.py").write_text("WIDTH = 4\n")
        last = report(process)
        while " · 1 traced · " not in last:  # the file may be seen while it is empty
            last = report(process)
    finally:
        process.kill()
        process.communicate()
