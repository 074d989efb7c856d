"""The environments of a project, found where tools keep them, each with the reason for it."""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from fx_lsp.tracing.environments import script_environment
from fx_lsp.tracing.workers.find_python import choose, find_interpreter, offered, why

DIGEST = "6gE1vKXj"
"""What poetry and hatch write for the folder `/project`."""


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home without environments, and a server whose Python has no torch."""
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "VIRTUAL_ENV", "PYENV_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def environment(home: Path) -> Path:
    """A virtual environment, as `python -m venv --without-pip` makes it."""
    venv.create(home, with_pip=False)
    return home


def conda_environment(home: Path) -> Path:
    """A folder as conda lays it out: a Python, and a record of what is installed."""
    (home / "conda-meta").mkdir(parents=True)
    (home / "conda-meta" / "history").touch()
    (home / "bin").mkdir()
    (home / "bin" / "python").symlink_to(sys.executable)
    return home


def chosen(root: Path, **env: str | Path) -> tuple[str, str]:
    """The environment that is chosen, and the reason."""
    choice = choose(None, [str(root)], {"PATH": "", **{name: str(value) for name, value in env.items()}})
    return str(Path(choice.path).parent.parent), why(choice)


def test_the_folder_of_the_project(root: Path):
    home = environment(root / ".venv")
    assert chosen(root) == (str(home), "`.venv` of the folder")


def test_the_active_environment_comes_before_that_of_the_folder(root: Path, tmp_path: Path):
    environment(root / ".venv")
    active = environment(tmp_path / "active")
    assert chosen(root, VIRTUAL_ENV=active) == (str(active), "active: VIRTUAL_ENV")


def test_the_base_of_conda_is_active_in_every_terminal_and_comes_after_the_folder(root: Path, tmp_path: Path):
    base = conda_environment(tmp_path / "miniforge")
    (base / "condabin").mkdir()
    assert chosen(root, CONDA_PREFIX=base) == (str(base), "active: CONDA_PREFIX")
    home = environment(root / ".venv")
    assert chosen(root, CONDA_PREFIX=base) == (str(home), "`.venv` of the folder")
    named = conda_environment(base / "envs" / "vision")
    assert chosen(root, CONDA_PREFIX=named) == (str(named), "active: CONDA_PREFIX")


def test_an_environment_without_torch_is_not_passed_over(root: Path, tmp_path: Path):
    home = environment(root / ".venv")
    on_path = environment(tmp_path / "elsewhere")
    site = next((on_path / "lib").glob("python*/site-packages"))
    (site / "torch").mkdir()
    assert chosen(root, PATH=on_path / "bin") == (str(home), "`.venv` of the folder")


def test_the_variable_of_uv(root: Path):
    environment(root / ".venv")
    home = environment(root / "out" / "env")
    assert chosen(root, UV_PROJECT_ENVIRONMENT="out/env") == (str(home), "named by UV_PROJECT_ENVIRONMENT")


def test_the_file_of_pdm_names_an_interpreter(root: Path, tmp_path: Path):
    home = environment(tmp_path / "pdm-env")
    (root / ".pdm-python").write_text(f"{home}/bin/python\n")
    assert chosen(root) == (str(home), "PDM's environment, named in `.pdm-python`")


def digest_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The digest of a folder, as if its path was that of `DIGEST`."""
    real = os.path.realpath
    monkeypatch.setattr("os.path.realpath", lambda path: "/project" if path == folder else real(path))
    return DIGEST


def test_poetry_keeps_environments_in_its_cache(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    digest = digest_of(root, monkeypatch)
    homes = tmp_path / "home" / ".cache" / "pypoetry" / "virtualenvs"
    environment(homes / "other-AAAAAAAA-py3.12")
    old, new = (environment(homes / f"my-proj-{digest}-py{minor}") for minor in ("3.9", "3.11"))
    assert chosen(root) == (str(new), f"Poetry's environment `{new.name}`")
    (homes / "envs.toml").write_text(f'[my-proj-{digest}]\nminor = "3.9"\npatch = "3.9.18"\n')
    assert chosen(root) == (str(old), f"Poetry's environment `{old.name}`")


@pytest.mark.parametrize("settings", ["poetry.toml", "config.toml", "POETRY_CACHE_DIR"])
def test_poetry_may_keep_them_elsewhere(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str):
    home = environment(tmp_path / "there" / "virtualenvs" / f"my-proj-{digest_of(root, monkeypatch)}-py3.11")
    table = f"[virtualenvs]\npath = '{tmp_path}/there/virtualenvs'\n"
    if settings == "poetry.toml":
        (root / settings).write_text(table)
    elif settings == "config.toml":
        configuration = tmp_path / "home" / ".config" / "pypoetry" / settings
        configuration.parent.mkdir(parents=True)
        configuration.write_text(table)
    env = {settings: tmp_path / "there"} if settings.isupper() else {}
    assert chosen(root, **env) == (str(home), f"Poetry's environment `{home.name}`")


def test_hatch_keeps_environments_in_its_data_folder(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    of_project = tmp_path / "home/.local/share/hatch/env/virtual/my-proj" / digest_of(root, monkeypatch)
    environment(of_project / "docs")
    home = environment(of_project / "my-proj")
    assert chosen(root) == (str(home), "Hatch's environment `my-proj`")
    assert [why(one) for one in offered([str(root)], {"PATH": ""})] == [
        "Hatch's environment `my-proj`",
        "Hatch's environment `docs`",
    ]


def test_hatch_may_keep_them_in_the_project(root: Path, tmp_path: Path):
    configuration = tmp_path / "hatch.toml"
    configuration.write_text('[dirs.env]\nvirtual = ".hatch"\n')
    home = environment(root / ".hatch" / "my-proj")
    assert chosen(root, HATCH_CONFIG=configuration) == (str(home), "Hatch's environment `my-proj`")


def test_pipenv_writes_the_project_into_its_environment(root: Path, tmp_path: Path):
    homes = tmp_path / "home" / ".local" / "share" / "virtualenvs"
    other, home = (environment(homes / name) for name in ("another-1", "project-2"))
    (other / ".project").write_text(f"{tmp_path}\n")
    (home / ".project").write_text(f"{root}\n")
    assert chosen(root) == (str(home), "virtual environment `project-2`, made for the folder")


def test_pixi_keeps_environments_in_the_project(root: Path):
    conda_environment(root / ".pixi" / "envs" / "cuda")
    home = conda_environment(root / ".pixi" / "envs" / "default")
    assert chosen(root) == (str(home), "pixi's environment `default`")


@pytest.mark.parametrize("name", ["environment.yml", "environment.yaml"])
def test_conda_environment_that_a_file_names(root: Path, tmp_path: Path, name: str):
    homes = [conda_environment(tmp_path / "conda" / "envs" / name) for name in ("audio", "vision")]
    (tmp_path / "home" / ".conda").mkdir(parents=True)
    (tmp_path / "home" / ".conda" / "environments.txt").write_text("\n".join(map(str, homes)))
    (root / name).write_text("# ours\nname: 'vision'  # not audio\ndependencies:\n  - pytorch\n")
    assert chosen(root) == (str(homes[1]), f"conda environment `vision`, named in {name}")
    (root / name).write_text("name: unknown\n")
    assert chosen(root)[1] == "runs fx-lsp; no other Python is on this machine"
    reasons = [why(one) for one in offered([str(root)], {"PATH": ""})]
    assert reasons == [f"conda environment `{name}`, which the folder does not name" for name in ("audio", "vision")]


def test_pyenv_reads_the_nearest_file_and_takes_a_prefix(root: Path, tmp_path: Path):
    versions = {name: conda_environment(tmp_path / "pyenv/versions" / name) for name in ("3.11.2", "3.11.10", "3.12.1")}
    env = {"PYENV_ROOT": tmp_path / "pyenv"}
    (tmp_path / ".python-version").write_text("3.12.1\n")
    assert chosen(root, **env) == (str(versions["3.12.1"]), "pyenv's `3.12.1`, named by .python-version")
    (root / ".python-version").write_text("3.11\n")
    assert chosen(root, **env) == (str(versions["3.11.10"]), "pyenv's `3.11.10`, named by .python-version")
    named = {**env, "PYENV_VERSION": "3.11.2"}
    assert chosen(root, **named) == (str(versions["3.11.2"]), "pyenv's `3.11.2`, named by PYENV_VERSION")


def test_a_plain_version_of_pyenv_comes_after_a_server_with_torch(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    conda_environment(tmp_path / "pyenv" / "versions" / "3.12.1")
    (root / ".python-version").write_text("3.12.1\n")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert chosen(root, PYENV_ROOT=tmp_path / "pyenv")[1] == "runs fx-lsp, and has torch"
    home = environment(tmp_path / "pyenv" / "versions" / "vision")
    (root / ".python-version").write_text("vision\n")
    found = chosen(root, PYENV_ROOT=tmp_path / "pyenv")
    assert found == (str(home), "pyenv's `vision`, named by .python-version")


def test_each_environment_is_offered_once(root: Path):
    home = environment(root / ".venv")
    env = {"VIRTUAL_ENV": str(home), "PATH": str(home / "bin")}
    assert [why(one) for one in offered([str(root)], env)] == ["active: VIRTUAL_ENV"]


@pytest.mark.parametrize("name", [".pdm-python", "environment.yml", "poetry.toml", ".python-version"])
def test_files_that_cannot_be_read_name_nothing(root: Path, name: str):
    (root / name).write_bytes(b"\xff\xfe = [")
    assert find_interpreter(None, [str(root)], {"PATH": ""}) == sys.executable


@pytest.mark.skipif(shutil.which("uv") is None, reason="needs uv")
def test_uv_names_the_environment_of_a_script(root: Path, tmp_path: Path):
    env = {**os.environ, "UV_CACHE_DIR": str(tmp_path / "uv")}
    plain, script = root / "plain.py", root / "script.py"
    plain.write_text("print(1)\n")
    script.write_text('# /// script\n# requires-python = ">=3.10"\n# dependencies = []\n# ///\nprint(1)\n')
    assert script_environment(str(script), env) is None
    synced = ["uv", "sync", "--script", str(script), "--offline", "--no-python-downloads", "--python", sys.executable]
    subprocess.run(synced, env=env, check=True, capture_output=True)
    python = script_environment(str(script), env)
    assert python is not None and Path(python).is_relative_to(tmp_path / "uv") and Path(python).is_file()
    assert script_environment(str(plain), env) is None
