"""Finding the user's Python, and asking it what it is."""

import os
import stat
import sys
from pathlib import Path

import pytest
from waiting import is_running, until

from fx_lsp.errors import WorkerStartError
from fx_lsp.tracing.workers import find_python
from fx_lsp.tracing.workers.find_python import find_interpreter, probe


def executable(path: Path, text: str = "#!/bin/sh\n") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


async def why_not(python: str) -> str:
    with pytest.raises(WorkerStartError) as error:
        await probe(python)
    assert error.value.kind == "interpreter"
    assert error.value.hint == "Set fx-lsp.interpreter to the Python that has your project's packages"
    return str(error.value)


def test_order_is_setting_then_environment_then_root_then_path(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # as in an environment of its own, without torch
    root, env = tmp_path / "root", {"PATH": str(tmp_path / "bin")}
    on_path = executable(tmp_path / "bin" / "python3")
    assert find_interpreter(None, [str(root)], env) == on_path
    plain = executable(root / "venv" / "bin" / "python")
    assert find_interpreter(None, [str(root)], env) == plain
    dotted = executable(root / ".venv" / "bin" / "python")
    assert find_interpreter(None, [str(root)], env) == dotted
    conda = executable(tmp_path / "conda" / "bin" / "python")
    env["CONDA_PREFIX"] = str(tmp_path / "conda")
    assert find_interpreter(None, [str(root)], env) == conda
    active = executable(tmp_path / "active" / "bin" / "python")
    env["VIRTUAL_ENV"] = str(tmp_path / "active")
    assert find_interpreter(None, [str(root)], env) == active
    assert find_interpreter("/some/python", [str(root)], env) == "/some/python"


def test_without_any_python_it_is_this_one(tmp_path: Path) -> None:
    assert find_interpreter(None, [str(tmp_path)], {"PATH": str(tmp_path)}) == sys.executable


def test_this_python_comes_before_path_where_it_has_torch(tmp_path: Path, monkeypatch) -> None:
    env = {"PATH": str(tmp_path / "bin")}
    on_path = executable(tmp_path / "bin" / "python3")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert find_interpreter(None, [], env) == on_path
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert find_interpreter(None, [], env) == sys.executable


def test_an_environment_of_its_own_counts_only_with_torch(tmp_path: Path, monkeypatch) -> None:
    """pre-commit activates the environment that it installs fx-lsp in."""
    own, root = tmp_path / "own", tmp_path / "root"
    ours = executable(own / "bin" / "python3")
    on_path = executable(tmp_path / "bin" / "python3")
    monkeypatch.setattr("sys.prefix", str(own))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    env = {"VIRTUAL_ENV": str(own), "PATH": os.pathsep.join([str(own / "bin"), str(tmp_path / "bin")])}
    assert find_interpreter(None, [str(root)], env) == on_path
    in_project = executable(root / ".venv" / "bin" / "python")
    assert find_interpreter(None, [str(root)], env) == in_project
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert find_interpreter(None, [str(root)], env) == ours


def test_second_root_and_empty_environments_are_looked_at(tmp_path: Path) -> None:
    python = executable(tmp_path / "b" / ".venv" / "bin" / "python")
    env = {"VIRTUAL_ENV": str(tmp_path / "deleted"), "PATH": ""}
    assert find_interpreter("", [str(tmp_path / "a"), str(tmp_path / "b")], env) == python


def test_setting_may_be_relative_an_environment_or_a_command(tmp_path: Path) -> None:
    python = executable(tmp_path / "env" / "bin" / "python")
    command = executable(tmp_path / "tools" / "python3.99")
    windows = executable(tmp_path / "win" / "Scripts" / "python.exe")
    roots, env = [str(tmp_path)], {"PATH": str(tmp_path / "tools")}
    assert find_interpreter("env", roots, env) == python
    assert find_interpreter("env/bin/python", roots, env) == python
    assert find_interpreter("python3.99", roots, env) == command
    assert find_interpreter("win", roots, env) == windows


async def test_probe_tells_version_and_identity() -> None:
    found = await probe(sys.executable)
    assert found.path == sys.executable
    assert found.version == ".".join(map(str, sys.version_info[:3]))
    assert found.identity == (await probe(sys.executable)).identity


async def test_torch_is_seen_without_importing_it_and_changes_the_identity(tmp_path: Path) -> None:
    torch = tmp_path / "torch"
    torch.mkdir()
    (torch / "__init__.py").write_text("raise SystemExit('imported')")
    version = torch / "version.py"
    version.write_text("from typing import Optional\n__version__ = '9.8.7+cpu'\ndebug = False\n")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    before = await probe(sys.executable, env)
    assert before.torch == "9.8.7+cpu"
    os.utime(version, ns=(1, 1))
    assert (await probe(sys.executable, env)).identity != before.identity


async def test_triton_is_seen_without_importing_it(tmp_path: Path) -> None:
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text("__version__ = '9.8.7'\nraise SystemExit('imported')\n")
    assert (await probe(sys.executable, {**os.environ, "PYTHONPATH": str(tmp_path)})).triton == "9.8.7"


async def test_files_named_like_the_standard_library_do_not_break_the_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "types", "re"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('shadowed')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert (await probe(sys.executable)).path == sys.executable


async def test_wrong_paths_are_told_apart(tmp_path: Path) -> None:
    missing, text = tmp_path / "missing", tmp_path / "notes.txt"
    text.write_text("hello")
    assert await why_not(str(missing)) == f"there is no Python interpreter at {missing}"
    assert await why_not(str(tmp_path)) == f"{tmp_path} is a directory, not a Python interpreter"
    assert await why_not(str(text)) == f"{text} is not executable"
    program = executable(tmp_path / "noise", "\x7fELF no program")
    assert await why_not(program) == f"{program} is not a program that this machine can run"


async def test_programs_that_are_no_python_are_quoted(tmp_path: Path) -> None:
    garbage = executable(tmp_path / "garbage", "#!/bin/sh\necho fx-lsp-probe nonsense\n")
    assert (
        await why_not(garbage)
        == f"{garbage} does not work as a Python interpreter: it exited with code 0 and printed: fx-lsp-probe nonsense"
    )
    broken = executable(tmp_path / "broken", "#!/bin/sh\necho 'no such environment' >&2\nexit 127\n")
    assert (
        await why_not(broken)
        == f"{broken} does not work as a Python interpreter: it exited with code 127 and printed: no such environment"
    )


async def test_old_python_is_named_with_its_version(tmp_path: Path) -> None:
    old = executable(
        tmp_path / "old", '#!/bin/sh\necho \'fx-lsp-probe {"version": [3, 8, 18], "executable": "/old"}\'\n'
    )
    assert await why_not(old) == f"{old} is Python 3.8.18; fx-lsp needs 3.10 or newer"


async def test_one_that_hangs_is_given_up_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_python, "PROBE_SECONDS", 0.3)
    pids = tmp_path / "pids"
    hanging = executable(tmp_path / "hanging", f"#!/bin/sh\nsleep 600 & echo $! > {pids}\nwait\n")
    assert await why_not(hanging) == f"{hanging} did not answer within 0.3 s"
    await until(lambda: not is_running(pids.read_text().strip()))
