"""Nothing that code of a workspace writes is left: however deep it is, however the server ends, and whatever variables
of the environment say.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from fx_lsp.sandbox.removal import remove_tree
from fx_lsp.tracing.workers.launch import remove_scratch, scratch_folder, worker_environment

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="folders are removed by descriptors, and locked")
HOLDER = """
import tempfile, time
from fx_lsp.tracing.workers.launch import scratch_folder
tempfile.tempdir = {folder!r}
print(scratch_folder(), flush=True)
time.sleep(600)
"""


def test_a_deep_folder_is_removed_and_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "kept.txt").write_text("kept")
    (tmp_path / "scratch").mkdir()
    folder = os.open(tmp_path / "scratch", os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("deep", dir_fd=folder)
        os.symlink(tmp_path / "kept", "link", dir_fd=folder)
        inner = os.open("deep", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    remove_tree(str(tmp_path / "scratch"))
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept" / "kept.txt").read_text() == "kept"


def test_the_next_server_removes_what_a_killed_one_has_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    program = [sys.executable, "-c", HOLDER.format(folder=str(tmp_path))]
    killed, living = (subprocess.Popen(program, stdout=subprocess.PIPE, text=True) for _ in range(2))
    folders = [Path(holder.stdout.readline().strip()) for holder in (killed, living) if holder.stdout]
    try:
        (folders[0] / "file").touch()
        killed.kill()
        killed.wait()
        own = scratch_folder()
        assert [folder.exists() for folder in folders] == [False, True]
        remove_scratch(own)
    finally:
        living.kill()
        living.wait()
    remove_scratch(scratch_folder())
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_server_that_is_ended_leaves_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / "temporary").mkdir()
    (tmp_path / "endless.py").write_text(
        "import torch\n\ndef f(x: torch.Tensor):\n    while True:\n        x = x + 1\n"
    )
    command = [sys.executable, "-m", "fx_lsp", "check", "endless.py"]
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not [*(tmp_path / "temporary").glob("fx-lsp-scratch-*/*/home")] and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(getattr(signal, name))
    assert process.wait(120) == 130
    assert not [*(tmp_path / "temporary").iterdir()]


PROGRAM = """
import warnings
import torch

def f(x: torch.Tensor):
    return torch.relu(x)

if __name__ == "__main__":
    warnings.warn("old", DeprecationWarning)
    print(f(torch.randn(4, 3)))
"""


@pytest.mark.parametrize(
    "names", [("TORCHINDUCTOR_CACHE_DIR", "TORCH_LOGS_OUT"), ("PYTHONWARNINGS",), ("PYTHONTRACEMALLOC",), ("TMPDIR",)]
)
def test_variables_of_the_environment_are_no_effects_of_the_code(tmp_path: Path, names: tuple[str, ...]) -> None:
    values = {
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "missing"),
        "TORCH_LOGS_OUT": str(tmp_path / "missing.log"),
        "PYTHONWARNINGS": "error",
        "PYTHONTRACEMALLOC": "5",
        "TMPDIR": str(tmp_path / "temporary"),
    }
    (tmp_path / "temporary").mkdir()
    (tmp_path / "model.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "fx_lsp", "check", "model.py"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), **{name: values[name] for name in names}}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "1 traced · 0 not" in done.stdout and "call site" in done.stdout, done.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"cache", "model.py", "temporary"}
    assert not [*(tmp_path / "temporary").iterdir()]


CREDENTIALS = {
    "HF_TOKEN": "hf_abcdef",
    "AWS_SECRET_ACCESS_KEY": "abcdef",
    "OPENAI_API_KEY": "sk-abcdef",
    "PGPASSWORD": "abcdef",
    "DATABASE": "postgres://me:abcdef@localhost/data",
}


def test_code_sees_no_credentials_of_the_environment(tmp_path: Path) -> None:
    others = {
        "TOKENIZERS_PARALLELISM": "false",
        "DATA_ROOT": "/data",
        "INDEX": "https://example.org/simple",
        "KEYBOARD": "de",
    }
    env = worker_environment({**CREDENTIALS, **others}, str(tmp_path))
    assert {name: env[name] for name in others} == others
    assert {env[name] for name in CREDENTIALS} == {"hidden"}
