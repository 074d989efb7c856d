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
from fx_lsp.tracing.workers.channels import OutputTail
from fx_lsp.tracing.workers.processes import SETTING_HINT, describe_status, gist, start_process

PROBE_SECONDS = 10.0
OLDEST = (3, 10)

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
    """Return the interpreter for a workspace, as editors find it.

    First that answers: `setting` (a path, relative to the first root, of a Python or of an environment; or a
    command name), `VIRTUAL_ENV`, `CONDA_PREFIX`, `.venv` or `venv` in a root, this Python where it has torch, `PATH`,
    this Python. A virtual environment of this Python without torch is only the last. A setting is taken even when
    nothing is there, so that `probe` can say so.
    """
    if setting and setting.strip():
        return _from_setting(setting.strip(), roots, env)
    return next(candidates(roots, env), sys.executable)


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


def candidates(roots: Sequence[str], env: Mapping[str, str]) -> Iterator[str]:
    """Yield the interpreters for a workspace without a setting, the first counts.

    An active environment does not count if fx-lsp alone is installed in it, without torch: tools such as pre-commit
    make one and activate it.
    """
    has_torch = importlib.util.find_spec("torch") is not None
    active = [env.get(name, "") for name in ("VIRTUAL_ENV", "CONDA_PREFIX")]
    for home in active:
        if home and (has_torch or not _is_this(home)):
            yield from _pythons_of(Path(home))
    for root in roots:
        for name in (".venv", "venv"):
            yield from _pythons_of(Path(root) / name)
    if has_torch:
        yield sys.executable
    folders = env.get("PATH", "").split(os.pathsep)
    path = os.pathsep.join(folder for folder in folders if not _is_this(str(Path(folder).parent)))
    for name in ("python3", "python"):
        if command := shutil.which(name, path=path):
            yield command


def _is_this(home: str) -> bool:
    """Return whether a folder is the virtual environment of this Python."""
    return bool(home) and sys.prefix != sys.base_prefix and os.path.realpath(home) == os.path.realpath(sys.prefix)


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
