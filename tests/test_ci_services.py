"""The hook of pre-commit and the action of GitHub: both install fx-lsp and fail if code is wrong."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from pythons import has_package_index

ROOT = Path(__file__).resolve().parent.parent
RIGHT = "import torch\n\n\ndef f(x):\n    return x @ torch.ones(8, 4)\n\n\nf(torch.ones(4, 8))\n"
WRONG = RIGHT.replace("x @ torch.ones(8, 4)", "x @ torch.ones(4, 8)")
MESSAGE = "matrices of 4×8 and 4×8 cannot be multiplied"

pytestmark = pytest.mark.torch


@pytest.fixture(scope="session")
def package_index() -> None:
    """Skip a test that installs packages if there is nowhere to get them from."""
    if not has_package_index():
        pytest.skip("pip has no package index here")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a folder with a right and a wrong file."""
    folder = tmp_path / "project"
    (folder / "parts").mkdir(parents=True)
    (folder / "parts" / "right.py").write_text(RIGHT, encoding="utf-8")
    (folder / "wrong.py").write_text(WRONG, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder for temporary files of a machine on which jobs run."""
    return tmp_path_factory.mktemp("runner")


@pytest.mark.release
@pytest.mark.usefixtures("package_index")
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is no git repository")
@pytest.mark.skipif(os.name == "nt", reason="the project links to its environment")
def test_pre_commit_traces_with_the_environment_of_the_project(project: Path, tmp_path: Path) -> None:
    (project / ".venv").symlink_to(sys.prefix, target_is_directory=True)
    subprocess.run(["git", "init", "--quiet", str(project)], check=True)
    subprocess.run(["git", "add", "*.py"], cwd=project, check=True)
    tried = run([sys.executable, "-m", "pre_commit", "try-repo", str(ROOT), "fx-lsp", "--all-files"], project, tmp_path)
    assert tried.returncode == 1, tried.stdout + tried.stderr
    assert re.search(rf"wrong\.py:5: error \(shape\): {MESSAGE}", tried.stdout)
    assert "found in 2 files · 1 traced" in tried.stdout


def test_the_action_is_valid() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-actions", "action.yml"]
    checked = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert checked.returncode == 0, checked.stdout


def test_the_action_reads_each_input() -> None:
    (step,) = action()["runs"]["steps"]
    read = re.findall(r"\$\{\{ inputs\.(\w+) \}\}", " ".join(step["env"].values()))
    assert sorted(read) == sorted(action()["inputs"]) == ["args", "format", "paths", "python"]
    assert "${{" not in step["run"], "an input would be run as a part of the script"


@pytest.mark.release
@pytest.mark.usefixtures("package_index")
def test_the_action_shows_a_mistake_at_its_line(project: Path, runner: Path) -> None:
    checked = run_action(project, runner)
    assert checked.returncode == 1, checked.stderr
    assert re.search(rf"^::error .*file=wrong\.py,line=5,.*{MESSAGE}", checked.stdout, re.MULTILINE)


@pytest.mark.release
@pytest.mark.usefixtures("package_index")
def test_the_action_takes_paths_and_arguments(project: Path, runner: Path) -> None:
    checked = run_action(project, runner, paths="parts\nparts/right.py", args="--jobs 1\n", format="text")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "1 traced · 0 not · 0 problems" in checked.stdout
    assert run_action(project, runner, args="--no-such-option").returncode == 2


def action() -> dict[str, Any]:
    """Return the action."""
    return yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))


def run_action(project: Path, runner: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run the step of the action in a project, as GitHub does on Linux."""
    (step,) = action()["runs"]["steps"]
    contexts = {f"inputs.{name}": str(about["default"]) for name, about in action()["inputs"].items()}
    contexts |= {"inputs.python": sys.executable} | {f"inputs.{name}": value for name, value in inputs.items()}
    contexts |= {"github.action_path": str(ROOT), "runner.temp": str(runner)}
    variables = {
        name: re.sub(r"\$\{\{ ([\w.]+) \}\}", lambda match: contexts[match[1]], value)
        for name, value in step["env"].items()
    }
    bash = shutil.which("bash")
    assert step["shell"] == "bash" and bash is not None
    return run([bash, "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]], project, runner, **variables)


def run(command: list[str], folder: Path, home: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, with caches in another, without the fx-lsp of this checkout on the path."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    caches = {"PRE_COMMIT_HOME": str(home / "hooks"), "XDG_CACHE_HOME": str(home / "cache")}
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env={**env, **caches, **variables})
