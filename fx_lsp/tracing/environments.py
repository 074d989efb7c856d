"""Find the environments of a project where tools keep them, from the files that these tools write. Nothing runs, but
for `uv`, which alone can name the environment of a script.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, cast

from platformdirs import PlatformDirs

from fx_lsp import files

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ReasonKind = Literal[
    "setting",
    "editor",
    "picked",
    "active",
    "variable",
    "folder",
    "pdm",
    "poetry",
    "hatch",
    "virtualenv",
    "pixi",
    "conda",
    "pyenv",
    "other-conda",
    "other-pyenv",
    "server",
    "path",
    "last",
]


@dataclass(frozen=True)
class Reason:
    """Hold why an interpreter is a candidate. `name` is that of a variable, a folder, an environment or a version;
    `file` is the file that names it.
    """

    kind: ReasonKind
    name: str = ""
    file: str = ""

    @property
    def is_other(self) -> bool:
        """Return True if neither the folder nor the shell names the interpreter: it is never chosen without asking."""
        return self.kind in ("other-conda", "other-pyenv")


@dataclass(frozen=True)
class PythonChoice:
    """Hold an interpreter, or the folder of an environment, with the reason why it is a candidate."""

    path: str
    reason: Reason


UV_SECONDS = 5.0
_SCRIPT = re.compile(r"^# /// script\s*$", re.MULTILINE)
_CONDA_NAME = re.compile(r"""^name:\s*(['"]?)([^'"#\s]+)\1\s*(?:#.*)?$""", re.MULTILINE)


def project_environments(root: str, env: Mapping[str, str]) -> Iterator[PythonChoice]:
    """Yield the environments of a workspace folder, the most specific first. They may not exist."""
    folder = Path(root)
    if named := env.get("UV_PROJECT_ENVIRONMENT"):
        yield PythonChoice(str(folder / named), Reason("variable", "UV_PROJECT_ENVIRONMENT"))
    for name in (".venv", "venv", ".conda"):
        yield PythonChoice(str(folder / name), Reason("folder", name))
    if pdm := _first_line(folder / ".pdm-python"):
        yield PythonChoice(str(folder / pdm), Reason("pdm", ".pdm-python"))
    for home in _of_poetry(folder, env):
        yield PythonChoice(str(home), Reason("poetry", home.name))
    for home in _of_hatch(folder, env):
        yield PythonChoice(str(home), Reason("hatch", home.name))
    for home in _of_virtualenv_tools(folder, env):
        yield PythonChoice(str(home), Reason("virtualenv", home.name))
    for home in _default_first(_folders(folder / ".pixi" / "envs"), "default"):
        yield PythonChoice(str(home), Reason("pixi", home.name))
    for name in ("environment.yml", "environment.yaml"):
        yield from _of_conda_file(folder / name, env)


def pyenv_versions(root: str, env: Mapping[str, str]) -> Iterator[PythonChoice]:
    """Yield the versions of pyenv for a workspace folder: those that `PYENV_VERSION` names, or the nearest
    `.python-version`.

    The prefix of a version means its newest one.
    """
    files_above = [folder / ".python-version" for folder in (Path(root), *Path(root).parents)]
    file = next((path for path in files_above if path.is_file()), None)
    named = env.get("PYENV_VERSION", "")
    source = "PYENV_VERSION" if named else ".python-version"
    homes = _pyenv_versions(env)
    for name in named.split(":") if named else _lines(file) if file is not None else ():
        newest_first = sorted(homes, key=lambda path: _numbers(path.name), reverse=True)
        matching = [path for path in newest_first if path.name == name or path.name.startswith(f"{name}.")]
        for home in sorted(matching, key=lambda path: path.name != name)[:1]:
            yield PythonChoice(str(home), Reason("pyenv", home.name, source))


def other_environments(env: Mapping[str, str]) -> Iterator[PythonChoice]:
    """Yield the environments of conda, and the versions of pyenv, which no project has named."""
    for home in _of_conda(env):
        yield PythonChoice(str(home), Reason("other-conda", home.name))
    for home in _pyenv_versions(env):
        yield PythonChoice(str(home), Reason("other-pyenv", home.name))


def is_virtual(home: Path) -> bool:
    """Return True if a folder is a virtual environment: packages were installed into it for a purpose."""
    return (home / "pyvenv.cfg").is_file()


def is_conda_base(home: Path) -> bool:
    """Return True if a folder is an installation of conda itself, which its shells activate without being asked."""
    return (home / "condabin").is_dir()


def may_have_scripts(env: Mapping[str, str]) -> bool:
    """Return True if uv keeps environments of scripts, and can name them."""
    return bool(_script_folders(env)) and shutil.which("uv", path=env.get("PATH")) is not None


def script_environment(file: str, env: Mapping[str, str]) -> str | None:
    """Return the Python of the environment that uv keeps for a script with inline metadata, None for any other file.

    Starts uv and waits up to `UV_SECONDS` for it, once for each version of the file. uv starts the Python.
    """
    uv = shutil.which("uv", path=env.get("PATH"))
    try:
        states = (Path(file).stat().st_mtime_ns, *(folder.stat().st_mtime_ns for folder in _script_folders(env)))
    except OSError:
        return None
    return _ask_uv(uv, file, str(_uv_cache(env)), states) if uv and len(states) > 1 else None


@lru_cache(maxsize=256)
def _ask_uv(uv: str, file: str, cache: str, states: tuple[int, ...]) -> str | None:
    """Return the answer of `uv` about a file in a state, as in `script_environment`."""
    try:
        if not _SCRIPT.search(files.read_python_leniently(file)):
            return None
        asked = [uv, "python", "find", "--script", file, "--offline", "--no-python-downloads", "--cache-dir", cache]
        answer = subprocess.run(asked, capture_output=True, text=True, timeout=UV_SECONDS, stdin=subprocess.DEVNULL)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    python = answer.stdout.strip()
    return python if answer.returncode == 0 and Path(python).is_relative_to(cache) else None


def _script_folders(env: Mapping[str, str]) -> list[Path]:
    return [folder for folder in _folders(_uv_cache(env)) if folder.name.startswith("environments-v")]


def _uv_cache(env: Mapping[str, str]) -> Path:
    if named := env.get("UV_CACHE_DIR"):
        return Path(named).expanduser()
    if sys.platform == "win32":
        return _of_tool("uv").user_cache_path
    base = env.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "uv"


def _of_poetry(folder: Path, env: Mapping[str, str]) -> list[Path]:
    """Return the environments that poetry keeps in its own folder for a project, the one in use first."""
    dirs = _of_tool("pypoetry")
    configured = Path(env.get("POETRY_CONFIG_DIR") or dirs.user_config_path) / "config.toml"
    tables = [_toml(folder / "poetry.toml"), _toml(configured)]
    cache = env.get("POETRY_CACHE_DIR") or _first(tables, "cache-dir") or str(dirs.user_cache_path)
    named = env.get("POETRY_VIRTUALENVS_PATH") or _first(tables, "virtualenvs", "path") or "{cache-dir}/virtualenvs"
    home = Path(named.replace("{cache-dir}", cache)).expanduser()
    environments = [path for path in _folders(home) if re.search(rf"-{_digest(folder)}-py[\d.]+$", path.name)]
    in_use = _toml(home / "envs.toml") if environments else {}
    newest = sorted(environments, key=lambda path: _numbers(path.name.rpartition("-py")[2]), reverse=True)
    return sorted(newest, key=lambda path: not _is_in_use(path.name, in_use))


def _is_in_use(name: str, in_use: Mapping[str, Any]) -> bool:
    base, _, minor = name.rpartition("-py")
    return _value(in_use, base, "minor") == minor


def _of_hatch(folder: Path, env: Mapping[str, str]) -> list[Path]:
    """Return the environments that hatch keeps for a project, `default` first."""
    dirs = _of_tool("hatch")
    configured = _toml(Path(env.get("HATCH_CONFIG") or dirs.user_config_path / "config.toml"))
    data = env.get("HATCH_DATA_DIR") or _value(configured, "dirs", "data") or str(dirs.user_data_path)
    named = _value(configured, "dirs", "env", "virtual") or str(Path(data).expanduser() / "env" / "virtual")
    home = folder / Path(os.path.expandvars(named)).expanduser()
    own = [] if home.is_relative_to(folder) else [path / _digest(folder) for path in _folders(home)]
    environments = [
        path
        for of_project in own
        for path in _default_first(_folders(of_project), of_project.parent.name)
        if not path.name.endswith("-build")
    ]
    return environments or (_folders(home) if home.is_relative_to(folder) else [])


def _of_virtualenv_tools(folder: Path, env: Mapping[str, str]) -> list[Path]:
    """Return the environments of pipenv and virtualenvwrapper, which write the folder of the project into each."""
    base = Path(env.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    homes = [
        Path(home).expanduser() for home in (env.get("WORKON_HOME"), base / "virtualenvs", "~/.virtualenvs") if home
    ]
    environments = [path for home in dict.fromkeys(homes) for path in _folders(home)]
    return [path for path in environments if _is_same(_first_line(path / ".project"), folder)]


def _of_conda_file(file: Path, env: Mapping[str, str]) -> Iterator[PythonChoice]:
    """Yield the conda environment that a file names."""
    match = _CONDA_NAME.search(_text(file)) if file.is_file() else None
    for home in _of_conda(env) if match else ():
        if match and home.name == match[2]:
            yield PythonChoice(str(home), Reason("conda", home.name, file.name))


def _of_conda(env: Mapping[str, str]) -> list[Path]:
    """Return the environments of conda and mamba: those that conda lists, then those in their folders."""
    listed = [Path(line) for line in _lines(Path.home() / ".conda" / "environments.txt")]
    bases = [Path(base) for base in (env.get("MAMBA_ROOT_PREFIX"), env.get("CONDA_ROOT")) if base]
    if prefix := env.get("CONDA_PREFIX"):
        bases += [Path(prefix)] if is_conda_base(Path(prefix)) else []
        bases += [Path(prefix).parent.parent] if Path(prefix).parent.name == "envs" else []
    if command := env.get("CONDA_EXE"):
        bases.append(Path(command).parent.parent)
    paths = f"{env.get('CONDA_ENVS_PATH', '')}{os.pathsep}{env.get('CONDA_ENVS_DIRS', '')}".split(os.pathsep)
    homes = [*(Path(path) for path in paths if path), *(base / "envs" for base in bases)]
    every = [*listed, *(path for home in homes for path in _folders(home))]
    return [path for path in dict.fromkeys(every) if (path / "conda-meta").is_dir()]


def _pyenv_versions(env: Mapping[str, str]) -> list[Path]:
    return _folders(Path(env.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions")


def _digest(folder: Path) -> str:
    """Return how poetry and hatch abbreviate the path of a project in the names of its environments."""
    path = os.path.normcase(os.path.realpath(folder))
    return base64.urlsafe_b64encode(hashlib.sha256(path.encode()).digest()).decode()[:8]


def _of_tool(name: str) -> PlatformDirs:
    return PlatformDirs(name, appauthor=False, roaming=True)


def _folders(home: Path) -> list[Path]:
    """Return the folders in a folder by name; none if it cannot be read."""
    try:
        return sorted(path for path in home.iterdir() if path.is_dir())
    except OSError:
        return []


def _default_first(paths: Sequence[Path], default: str) -> list[Path]:
    return sorted(paths, key=lambda path: path.name != default)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def _is_same(path: str, folder: Path) -> bool:
    return bool(path) and os.path.realpath(path) == os.path.realpath(folder)


def _text(file: Path) -> str:
    try:
        return files.read_text(file)
    except (OSError, ValueError):
        return ""


def _lines(file: Path) -> list[str]:
    """Return the lines of a file that are neither empty nor comments; none if it cannot be read."""
    return [line for line in map(str.strip, _text(file).splitlines()) if line and not line.startswith("#")]


def _first_line(file: Path) -> str:
    return next(iter(_lines(file)), "")


def _toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(_text(file))
    except tomllib.TOMLDecodeError:
        return {}


def _value(table: Mapping[str, Any], *keys: str) -> str:
    """Return the text at nested keys, "" if there is none."""
    value: object = table
    for key in keys:
        value = cast("Mapping[str, object]", value).get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) else ""


def _first(tables: Sequence[Mapping[str, Any]], *keys: str) -> str:
    return next(filter(None, (_value(table, *keys) for table in tables)), "")
