"""What a user installs: the wheel, in an environment that has nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

from stdio import session

ROOT = Path(__file__).resolve().parent.parent


def test_the_wheel_installs_and_serves(tmp_path: Path):
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, ROOT)
    (wheel,) = tmp_path.glob("fx_lsp-*.whl")
    home = tmp_path / "environment"
    venv.create(home, with_pip=True)
    scripts = home / ("Scripts" if os.name == "nt" else "bin")
    run(scripts / "python", "-m", "pip", "install", "--quiet", wheel)

    file = tmp_path / "user.py"
    file.write_text("import torch\n\ndef f(x):\n    return torch.relu(x)\n")
    env = {"PYTHONPATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    answer = session([str(scripts / "fx-lsp"), "serve"], file, env)
    assert answer["serverInfo"]["name"] == "fx-lsp"

    failed = subprocess.run(
        [scripts / "fx-lsp", "graph", f"{file}::f", "--python", scripts / "python"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **env},
    )
    assert failed.returncode == 1
    assert "torch" in failed.stderr


def run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
