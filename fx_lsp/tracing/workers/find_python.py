"""Which Python traces a workspace, and what is known of it without importing torch."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fx_lsp.errors import WorkerStartError
from fx_lsp.messages.processes import INTERPRETER_REASONS
from fx_lsp.tracing.environments import (
    PythonChoice,
    Reason,
    is_conda_base,
    is_virtual,
    other_environments,
    project_environments,
    pyenv_versions,
)
from fx_lsp.tracing.workers.channels import OutputTail
from fx_lsp.tracing.workers.processes import SETTING_HINT, describe_status, gist, start_process

PROBE_SECONDS = 10.0
OLDEST = (3, 10)
_ACTIVE = ("VIRTUAL_ENV", "CONDA_PREFIX")

# Runs on any Python, 2.7 too; finds the versions of torch and triton without importing them.
_PROBE = r"""
import sys
sys.path[:] = [p for p in sys.path if p]
import json, os
found = {"version": list(sys.version_info[:3]), "executable": sys.executable}
if sys.version_info >= (3, 10):
    import importlib.util, re, sysconfig
    at = len(sys.path)
    for i, p in enumerate(sys.path):
        if p == sysconfig.get_path("stdlib"):
            at = i + 1
    sys.path[at:at] = [p for p in sys.argv[1].split(os.pathsep) if p]
    def version_in(file):
        with open(file, encoding="utf-8") as text:
            return re.search(r"^__version__\s*(?::\s*\w+\s*)?=\s*['\"](.+?)['\"]", text.read(), re.M).group(1)
    spec = importlib.util.find_spec("torch")
    if spec is not None and spec.origin:
        home = os.path.dirname(spec.origin)
        file = os.path.join(home, "version.py")
        try:
            found["torch"] = version_in(file)
        except (OSError, AttributeError):
            file = spec.origin
            try:
                import importlib.metadata
                found["torch"] = importlib.metadata.version("torch")
            except importlib.metadata.PackageNotFoundError:
                found["torch"] = "unknown"
        found["identity"] = [home, os.stat(file).st_mtime_ns]
        found["file"] = file
    spec = importlib.util.find_spec("triton")
    if spec is not None and spec.origin:
        try:
            found["triton"] = version_in(spec.origin)
        except (OSError, ValueError, AttributeError):
            found["triton"] = "unknown"
sys.stdout.write("\nfx-lsp-probe " + json.dumps(found) + "\n")
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python that can be started. `path` is its own `sys.executable`, `torch` and `triton` are versions or None.

    `identity` changes whenever another Python or another torch would answer; caches are keyed by it. `file` is the
    file with torch's version.
    """

    path: str
    version: str
    torch: str | None
    identity: str
    file: str = ""
    triton: str | None = None


def find_interpreter(setting: str | None, roots: Sequence[str], env: Mapping[str, str]) -> str:
    """Return the path of the interpreter for a workspace, as `choose`."""
    return choose(setting, roots, env).path


def choose(setting: str | None, roots: Sequence[str], env: Mapping[str, str]) -> PythonChoice:
    """Return the interpreter for a workspace, as editors find it: `setting`, or the first candidate, else this Python.

    A setting is a path, relative to the first root, of a Python or of an environment, or a command name. It is taken
    even when nothing is there, so that `probe` can say so. A candidate is not passed over for one with torch: which
    packages an environment has is the user's decision, and the reason for the choice is shown.
    """
    if setting and setting.strip():
        return PythonChoice(_from_setting(setting.strip(), roots, env), Reason("setting"))
    return next(candidates(roots, env), PythonChoice(sys.executable, Reason("last")))


async def probe(python: str, env: Mapping[str, str] | None = None) -> Interpreter:
    """Ask an interpreter for its version and its torch's, without importing torch.

    Raises WorkerStartError (kind "interpreter") when it is missing, no Python, older than 3.10, or does not answer. No
    torch is no error here: `torch` is None.
    """
    environment = dict(os.environ if env is None else env)
    path = environment.pop("PYTHONPATH", "")
    process = await start_process([python, "-B", "-c", _PROBE, path], environment)
    assert process.stderr is not None
    output, errors = OutputTail(process.stdout), OutputTail(process.stderr)
    try:
        status = await asyncio.wait_for(asyncio.shield(process.exited), PROBE_SECONDS)
        await output.ended(1)
        await errors.ended(1)
    except asyncio.TimeoutError:
        raise _wrong(f"{python} did not answer within {PROBE_SECONDS:g} s") from None
    finally:
        output.stop()
        errors.stop()
        await process.end()
    answer = _parse(output.text())
    if answer is None:
        said = gist(errors.text()) or gist(output.text())
        how = f"it {describe_status(status)}" + (f" and printed: {said[:200]}" if said else "")
        raise _wrong(f"{python} does not work as a Python interpreter: {how}", errors.text())
    version = ".".join(map(str, answer["version"]))
    if tuple(answer["version"]) < OLDEST:
        raise _wrong(f"{python} is Python {version}; fx-lsp needs 3.10 or newer")
    executable = answer["executable"] or python
    torch = answer.get("torch")
    identity = json.dumps([executable, version, torch, *answer.get("identity", [])])
    return Interpreter(executable, version, torch, identity, answer.get("file", ""), answer.get("triton"))


def _from_setting(setting: str, roots: Sequence[str], env: Mapping[str, str]) -> str:
    expanded = Path(setting).expanduser()
    if expanded.name == setting and (path_of_command := shutil.which(setting, path=env.get("PATH"))):
        return path_of_command
    path = next((Path(root) / expanded for root in roots), expanded)
    return next(_pythons_of(path), None) or str(path)


def candidates(roots: Sequence[str], env: Mapping[str, str]) -> Iterator[PythonChoice]:
    """Yield the interpreters for a workspace without a setting, the first counts.

    They are an active environment, the environments of the folders' projects, this Python where it has torch, the
    Python that pyenv names, an active installation of conda, the Pythons on `PATH`.

    An active environment does not count if fx-lsp alone is installed in it, without torch: tools such as pre-commit
    make one and activate it. Every terminal activates conda's own installation, which says nothing about a project.
    """
    has_torch = importlib.util.find_spec("torch") is not None
    active = [PythonChoice(env[name], Reason("active", name)) for name in _ACTIVE if env.get(name)]
    bases = [home for home in active if is_conda_base(Path(home.path))]
    pyenv = [home for root in roots for home in pyenv_versions(root, env)]
    homes = [home for home in active if home not in bases and (has_torch or not _is_this(home.path))]
    for root in roots:
        homes += project_environments(root, env)
    homes += [home for home in pyenv if is_virtual(Path(home.path))]
    for home in homes:
        yield from _pythons_in(home)
    if has_torch:
        yield PythonChoice(sys.executable, Reason("server"))
    for home in [*pyenv, *bases]:
        yield from _pythons_in(home)
    yield from _on_path(env)


def _on_path(env: Mapping[str, str]) -> Iterator[PythonChoice]:
    folders = env.get("PATH", "").split(os.pathsep)
    path = os.pathsep.join(folder for folder in folders if not _is_this(str(Path(folder).parent)))
    for name in ("python3", "python"):
        if command := shutil.which(name, path=path):
            yield PythonChoice(command, Reason("path", name))


def why(candidate: PythonChoice) -> str:
    """Return the reason for a candidate as text."""
    reason = candidate.reason
    return INTERPRETER_REASONS[reason.kind].format(name=reason.name, file=reason.file)


def offered(roots: Sequence[str], env: Mapping[str, str]) -> list[PythonChoice]:
    """Return the interpreters that a user may choose from: the candidates, then those that no project has named. Each
    environment is listed once.
    """
    others = [python for home in other_environments(env) for python in _pythons_in(home)]
    once: dict[str, PythonChoice] = {}
    for candidate in (*candidates(roots, env), *others):
        once.setdefault(os.path.realpath(Path(candidate.path).parent), candidate)
    return list(once.values())


def _is_this(home: str) -> bool:
    """Return whether a folder is the virtual environment of this Python."""
    return bool(home) and sys.prefix != sys.base_prefix and os.path.realpath(home) == os.path.realpath(sys.prefix)


def _pythons_in(home: PythonChoice) -> Iterator[PythonChoice]:
    """Yield the interpreters of an environment, for the same reason. A path may also be that of an interpreter."""
    path = Path(home.path)
    for python in [home.path] if path.is_file() else _pythons_of(path):
        yield PythonChoice(python, home.reason)


def _pythons_of(home: Path) -> Iterator[str]:
    """Interpreters of an environment (virtualenv or conda; POSIX or Windows)."""
    for relative in ("bin/python", "bin/python3", "Scripts/python.exe", "python.exe"):
        if (home / relative).is_file():
            yield str(home / relative)


def _parse(output: str) -> dict[str, Any] | None:
    for line in output.splitlines():
        marker, _, data = line.partition(" ")
        if marker == "fx-lsp-probe":
            try:
                return json.loads(data)
            except ValueError:
                return None
    return None


def _wrong(message: str, output: str = "") -> WorkerStartError:
    return WorkerStartError(message, kind="interpreter", hint=SETTING_HINT, output=output)
