"""`fx-lsp check --watch` checks again after each change."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest
from terminal import start

pytestmark = pytest.mark.torch

MODEL = """\
import torch
from sizes import WIDTH


# fx: x=f32[4]
def f(x):
    return torch.ones(2, WIDTH) @ torch.ones(4, 2)
"""
STEADY = "import torch\n\n\n# fx: x=f32[4]\ndef steady(x):\n    return torch.relu(x)\n"


def report(process: subprocess.Popen[str]) -> str:
    """The next report: all lines up to the one with the counts."""
    assert process.stdout is not None
    lines: list[str] = []
    while " found in " not in "".join(lines[-1:]):
        line = process.stdout.readline()
        assert line, lines
        lines.append(line)
    return "".join(lines)


def test_a_check_that_watches(tmp_path: Path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "inner" / "steady.py").write_text(STEADY)
    watching = start(tmp_path, "check", "model.py", "inner", "--watch")
    try:
        assert "not traced (import): " in report(watching)

        (tmp_path / "sizes.py").write_text("WIDTH = 4\n")  # a file that the model imports, which is not checked itself
        last = report(watching)
        while " · 2 traced · 0 not · 0 problems · " not in last:  # the file may be seen while it is empty
            last = report(watching)

        (tmp_path / "sizes.py").write_text("WIDTH = 5\n")
        second = report(watching)
        while "model.py:7: error (shape): " not in second:
            second = report(watching)
        assert "\x1b" not in second

        (tmp_path / "model.py").write_text("def f(:\n")
        while "model.py:1: error (syntax): " not in report(watching):
            pass

        (tmp_path / "model.py").unlink()
        (tmp_path / "model.py").write_text(STEADY.replace("steady", "again"))
        (tmp_path / "inner" / "more.py").write_text(STEADY)
        last = report(watching)
        while "again" not in last or " · 3 traced · 0 not · 0 problems · " not in last:  # also while it is missing
            last = report(watching)

        watching.send_signal(signal.SIGINT)
        _, errors = watching.communicate(timeout=300)
        assert watching.returncode == 130
        assert errors.count("watching for changes; Ctrl-C ends\n") >= 5
        assert "Traceback" not in errors
    finally:
        watching.kill()
        watching.communicate()
