"""Read the machines for benchmarks from the user's own `hosts.toml`, and nothing else.
    [hosts.h200]
    ssh = "gpu-box"                  # as in ~/.ssh/config
    python = "~/venv/bin/python"
    [hosts.slurm]
    command = "srun --gres=gpu:1 python3"
    [pools.lab]
    hosts = ["h200", "slurm"]
    [ray.cluster]
    address = "auto"
The file is found through the user's environment alone, so that no workspace can name a host.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, cast

from fx_lsp import files, folders
from fx_lsp.measured import Rival

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LOCAL = "local"
"""The name of the predefined host: this machine."""


@dataclass(frozen=True)
class Host:
    """Describe a machine, and the way to a Python there: one of `ssh` (a name as in the user's ssh configuration),
    `command` (any command that runs a Python) or `local`.

    `python` is the interpreter ("" for python3, and locally for the project's), `folder` the place of the files of jobs
    ("" for the host's temporary folder), `paths` are folders there to import modules from. `limit` bounds a job and
    `connect` the start of its Python, in seconds. `rivals` are listed by the function that they rival, "" for all.
    """

    name: str
    ssh: str = ""
    ssh_config: str = ""
    command: str = ""
    local: bool = False
    python: str = ""
    folder: str = ""
    paths: tuple[str, ...] = ()
    limit: float = 600.0
    connect: float = 30.0
    rivals: Mapping[str, tuple[Rival, ...]] = field(default_factory=dict[str, tuple[Rival, ...]])

    @property
    def reached(self) -> str:
        """Return how the host is reached, for people: "ssh gpu-box", the command, "this machine"."""
        return f"ssh {self.ssh}" if self.ssh else self.command or "this machine"

    def rivals_of(self, function: str) -> tuple[Rival, ...]:
        """Return the hand-written rivals of a function."""
        return (*self.rivals.get("", ()), *self.rivals.get(function, ()))


@dataclass(frozen=True)
class Pool:
    """Describe hosts that share one queue: each job goes to the first free one."""

    name: str
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class Cluster:
    """Describe a Ray cluster at `address`, as for `ray.init`."""

    name: str
    address: str
    limit: float = 600.0

    @property
    def reached(self) -> str:
        """Return how the cluster is reached, for people."""
        return f"Ray at {self.address}"


Place = Host | Pool | Cluster


@dataclass(frozen=True)
class Hosts:
    """Hold the content of the file at `path`. `problems` are sentences with line numbers; invalid entries are
    left out.
    """

    path: str
    places: Mapping[str, Place]
    problems: tuple[str, ...] = ()

    def find(self, name: str) -> Place | None:
        """Return the host, pool or cluster of that name."""
        return self.places.get(name)

    def members(self, place: Host | Pool) -> tuple[Host, ...]:
        """Return the hosts of a pool; a host is its own only member."""
        names = place.hosts if isinstance(place, Pool) else (place.name,)
        return tuple(host for host in map(self.places.get, names) if isinstance(host, Host))


def hosts_path() -> Path:
    """Return the path of the user's file of hosts."""
    return folders.config_folder() / "hosts.toml"


def read_hosts(workspace: str | None = None) -> Hosts:
    """Return the user's hosts, and `local`. A file inside `workspace`, or writable by others, is not read."""
    path = hosts_path()
    always: dict[str, Place] = {LOCAL: Host(LOCAL, local=True)}
    try:
        trouble = _refused(path, workspace)
        if trouble:
            return Hosts(str(path), always, (trouble,))
        text = files.read_text(path)
    except FileNotFoundError:
        return Hosts(str(path), always)
    except (OSError, UnicodeDecodeError) as error:
        return Hosts(str(path), always, (f"{path} cannot be read: {getattr(error, 'strerror', None) or error}",))
    places, problems = parse_hosts(text)
    return Hosts(str(path), always | places, tuple(f"{path}{problem}" for problem in problems))


def parse_hosts(text: str) -> tuple[dict[str, Place], list[str]]:
    """Return the places that a file names, and its errors: each ":3: …" or ": …"."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        said = re.sub(r"\s*\(at .*\)$", "", str(error))
        return {}, [f"{f':{line[1]}' if line else ''}: {said[0].lower()}{said[1:]}"]
    places: dict[str, Place] = {}
    problems: list[str] = []
    for kind, name, data in _entries(table, text, problems):
        try:
            if name in places or (name == LOCAL and kind != "hosts"):
                raise _InvalidSetting((kind, name), f"{name} names two things")
            places[name] = _READERS[kind](name, data)
        except _InvalidSetting as bad:
            problems.append(f":{line_of(text, bad.path)}: {bad}")
    for pool in [place for place in places.values() if isinstance(place, Pool)]:
        if unknown := [n for n in pool.hosts if n != LOCAL and not isinstance(places.get(n), Host)]:
            line = line_of(text, ("pools", pool.name, "hosts"))
            problems.append(f":{line}: pool {pool.name} has a host {unknown[0]} that is not named in this file")
            del places[pool.name]
    return places, sorted(problems, key=lambda problem: int(problem.split(":")[1]))


def line_of(text: str, path: tuple[str, ...]) -> int:
    """Return the line, from 1, of the last of the keys `path` that a TOML file has on its own line."""
    nearest, depth = 1, 0
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[+([^\]]*)\]", line):
            names = [part.strip().strip("\"'") for part in header[1].split(".")]
            depth = len(names) if names[: len(path)] == list(path[: len(names)]) else 0
            if depth >= len(path):
                return number
            nearest = number if depth else nearest
        elif depth and re.match(rf"\s*[\"']?{re.escape(path[depth])}[\"']?\s*[=.]", line):
            return number
    return nearest


class _InvalidSetting(Exception):
    def __init__(self, path: tuple[str, ...], message: str) -> None:
        super().__init__(message)
        self.path = path


Kind = Literal["hosts", "pools", "ray"]
_PLACES = ("python", "folder")
_KINDS: tuple[Kind, ...] = ("hosts", "pools", "ray")


def _refused(path: Path, workspace: str | None) -> str:
    """Return why a file is not trustworthy, or "". Raises OSError."""
    real = path.resolve(strict=True)
    if workspace is not None and (root := Path(workspace).resolve()) in real.parents and root not in _above_home():
        return f"{path} is not read: it is in the project {root}, and a project cannot name hosts"
    if os.name != "nt":
        for part in (real, real.parent):
            status = part.stat()
            if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return f"{part} is not read: other users may write it; run: chmod go-w {shlex.quote(str(part))}"
            if status.st_uid not in (os.getuid(), 0):
                return f"{part} is not read: it belongs to another user"
    return ""


def _above_home() -> set[Path]:
    home = Path.home().resolve()
    return {home, *home.parents}


def _entries(table: Mapping[str, Any], text: str, problems: list[str]) -> Iterator[tuple[Kind, str, dict[str, Any]]]:
    """Yield every host, pool and cluster, the hosts first."""
    for key in [key for key in table if key not in _KINDS]:
        problems.append(f":{line_of(text, (key,))}: {key} is unknown here; use hosts, pools or ray")
    for kind in _KINDS:
        group: Any = table.get(kind, {})
        if not isinstance(group, dict):
            problems.append(f":{line_of(text, (kind,))}: write a table: [{kind}.name]")
            continue
        for name, data in cast("dict[str, Any]", group).items():
            if isinstance(data, dict):
                yield kind, name, cast("dict[str, Any]", data)
            else:
                problems.append(f":{line_of(text, (kind, name))}: write a table: [{kind}.{name}]")


def _host(name: str, data: dict[str, Any]) -> Host:
    path = ("hosts", name)
    _only(path, data, {f.name for f in fields(Host)} - {"name"})
    ways = [key for key in ("ssh", "command", "local") if data.get(key)]
    if len(ways) != 1:
        raise _InvalidSetting(
            path, f"host {name} needs one of ssh, command and local" + (", not several" if ways else "")
        )
    for key in ("ssh", "ssh_config", "command", "python", "folder"):
        _text(path, data, key)
    if data.get("local") not in (None, True, False):
        raise _InvalidSetting((*path, "local"), "local must be true or false")
    if data.get("ssh_config") and not data.get("ssh"):
        raise _InvalidSetting((*path, "ssh_config"), "ssh_config needs ssh")
    if command := data.get("command", ""):
        _check_command(path, command, data)
    paths = data.get("paths", [])
    if not isinstance(paths, list) or not all(isinstance(p, str) for p in cast("list[Any]", paths)):
        raise _InvalidSetting((*path, "paths"), 'paths must be a list of folders: ["~/project"]')
    settings: dict[str, Any] = {
        key: data[key] for key in ("ssh", "ssh_config", "command", "local", *_PLACES) if key in data
    }
    settings |= {key: _seconds(path, data, key) for key in ("limit", "connect") if key in data}
    rivals = _rivals((*path, "rivals"), data.get("rivals", {}))
    return Host(name, **settings, paths=tuple(cast("list[str]", paths)), rivals=rivals)


def _pool(name: str, data: dict[str, Any]) -> Pool:
    path = ("pools", name)
    _only(path, data, {"hosts"})
    hosts: Any = data.get("hosts")
    if not isinstance(hosts, list) or not hosts or not all(isinstance(h, str) for h in cast("list[Any]", hosts)):
        raise _InvalidSetting((*path, "hosts"), f'pool {name} needs a list of hosts: hosts = ["a", "b"]')
    return Pool(name, tuple(dict.fromkeys(cast("list[str]", hosts))))


def _cluster(name: str, data: dict[str, Any]) -> Cluster:
    path = ("ray", name)
    _only(path, data, {"address", "limit"})
    _text(path, data, "address")
    return Cluster(name, data.get("address", "auto"), _seconds(path, data, "limit") if "limit" in data else 600.0)


_READERS = {"hosts": _host, "pools": _pool, "ray": _cluster}


def _check_command(path: tuple[str, ...], command: str, data: Mapping[str, Any]) -> None:
    """Raise _InvalidSetting for a command that cannot run a Python that reads programs."""
    if data.get("python"):
        raise _InvalidSetting((*path, "python"), "a command ends in its Python: remove python")
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise _InvalidSetting((*path, "command"), f"the command cannot be split into words: {error}") from None
    if Path(words[0]).name == "ssh":
        raise _InvalidSetting(
            (*path, "command"), 'the remote shell of ssh would split the program: write ssh = "…" instead'
        )


def _rivals(path: tuple[str, ...], data: Any) -> dict[str, tuple[Rival, ...]]:
    """Return rivals from `name = "module:function"` for every function, or from a table of these for one."""
    if not isinstance(data, dict):
        raise _InvalidSetting(path, 'rivals must be a table: name = "package.module:function"')
    by_function: dict[str, list[Rival]] = {}
    for key, value in cast("dict[str, Any]", data).items():
        own = cast("dict[str, Any]", value).items() if isinstance(value, dict) else [(key, value)]
        for name, target in own:
            if not isinstance(target, str) or not re.fullmatch(r"[\w.]+:[\w.]+", target):
                raise _InvalidSetting((*path, key), f'rival {name} must be "package.module:function"')
            by_function.setdefault(key if isinstance(value, dict) else "", []).append(Rival(name, target))
    return {function: tuple(rivals) for function, rivals in by_function.items()}


def _only(path: tuple[str, ...], data: Mapping[str, Any], allowed: set[str]) -> None:
    for key in data:
        if key not in allowed:
            raise _InvalidSetting((*path, key), f"{key} is unknown here: write one of {', '.join(sorted(allowed))}")


def _text(path: tuple[str, ...], data: Mapping[str, Any], key: str) -> None:
    value = data.get(key, "text")
    if not isinstance(value, str) or not value.strip() or "\n" in value:
        raise _InvalidSetting((*path, key), f"{key} must be a string in quotes")


def _seconds(path: tuple[str, ...], data: Mapping[str, Any], key: str) -> float:
    value = data[key]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
        raise _InvalidSetting((*path, key), f"{key} must be a number of seconds")
    return float(value)
