"""`fx-lsp doctor`: checks what works here and on the user's GPU hosts, with remedies for what does not.

Exit codes: 0 everything necessary works, 1 something does not, 2 usage.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from fx_lsp import __version__
from fx_lsp.commands.hosts import allowed, named
from fx_lsp.errors import WorkerStartError
from fx_lsp.features.wording.text import format_bytes
from fx_lsp.measured import Failed, Probe
from fx_lsp.model import Failure
from fx_lsp.sandbox.trial import gaps
from fx_lsp.tracing.answers.disk import default_cache_path
from fx_lsp.tracing.engine import Engine, EngineSettings
from fx_lsp.tracing.remote.history import default_history_path
from fx_lsp.tracing.remote.hosts import Cluster, Host, Hosts, read_hosts
from fx_lsp.tracing.remote.jobs import probe_host
from fx_lsp.tracing.remote.running import reached
from fx_lsp.tracing.remote.trust import is_trusted
from fx_lsp.tracing.workers.find_python import candidates, choose, find_interpreter, probe, why

State = Literal["right", "note", "wrong"]

_MARKS = {"right": "✓", "note": "·", "wrong": "✗"}
_SAMPLE = "import torch\n\n\ndef f(x):  # fx: x=f32[4, 8]\n    return torch.relu(x).sum()\n"
_EXTRAS = {
    "execnet": "benchmarks: install fx-lsp with its extra `bench`",
    "matplotlib": "plots of benchmarks: install fx-lsp with its extra `bench`",
}
_EDITORS = {"code": "Visual Studio Code", "nvim": "Neovim", "emacs": "Emacs"}


@dataclass(frozen=True)
class Check:
    """Hold one check: "wrong" for a failure, "note" for information without a need for action."""

    about: str
    state: State
    text: str
    mend: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fx-lsp doctor`."""
    parser.add_argument("--hosts", action="store_true", help="check every host, including new ones")
    parser.add_argument("--host", action="append", default=[], metavar="NAME", help="check this host")
    parser.add_argument("--no-hosts", action="store_true", help="check this machine alone")
    parser.add_argument("--yes", action="store_true", help="use new hosts without asking")
    parser.add_argument(
        "--python", metavar="PATH", help="the interpreter that has torch (default: found as editors do)"
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Run all checks. Raises TargetError for a host that is not configured, or that the user does not confirm."""
    hosts = read_hosts(str(Path.cwd()))
    places = named(hosts, arguments.host) if arguments.host else list(hosts.places.values())
    wanted = () if arguments.no_hosts else reached(hosts, places)
    if arguments.hosts or arguments.host:
        allowed(wanted, arguments.yes)
    checks = asyncio.run(_checks(arguments, hosts, wanted))
    if arguments.json:
        print(json.dumps([asdict(check) for check in checks], indent=2))
    else:
        print(_text(checks), end="")
    return int(any(check.state == "wrong" for check in checks))


async def _checks(arguments: argparse.Namespace, hosts: Hosts, wanted: Sequence[Host | Cluster]) -> list[Check]:
    checks = [Check("fx-lsp", "right", f"{__version__}, on Python {sys.version.split()[0]} at {sys.executable}")]
    if not arguments.host:
        checks += await _interpreters(arguments.python)
        checks += [await _tracing(arguments.python), *_sandbox(), _cache(), *_extras(), *_editors()]
    if arguments.no_hosts:
        return checks
    checks.append(
        Check(
            "hosts", "note", f"named in {hosts.path}" + ("" if Path(hosts.path).exists() else ", which does not exist")
        )
    )
    checks += [Check("hosts", "wrong", problem, "fix it there") for problem in hosts.problems]
    here = find_interpreter(arguments.python, (str(Path.cwd()),), os.environ)
    return checks + list(await asyncio.gather(*(_place(place, here) for place in wanted)))


async def _interpreters(setting: str | None) -> list[Check]:
    """Return checks of the Pythons that could trace this folder, the one in use first, each with the reason."""
    roots = (str(Path.cwd()),)
    used = choose(setting, roots, os.environ)
    others = {str(Path(other.path).parent): other for other in candidates(roots, os.environ)}
    others.pop(str(Path(used.path).parent), None)
    checks: list[Check] = []
    for one in [used, *others.values()]:
        about = "interpreter" if one == used else "another interpreter"
        try:
            it = await probe(one.path)
        except WorkerStartError as error:
            text = f"{error} ({why(one)})"
            checks.append(Check(about, "wrong" if one == used else "note", text, error.hint if one == used else ""))
            continue
        text = f"Python {it.version} at {one.path}, " + (f"torch {it.torch}" if it.torch else "no torch")
        text += f", triton {it.triton}" if it.triton else ""
        text += f" ({why(one)})"
        if one == used and it.torch is None:
            mend = "install torch into it, pass --python, or set fx-lsp.interpreter in your editor"
            checks.append(Check(about, "wrong", text, mend))
        else:
            checks.append(Check(about, "right" if one == used else "note", text))
    return checks


async def _tracing(setting: str | None) -> Check:
    """Check that a small function can be traced, in the same way as for an editor."""
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "sample.py")
        Path(file).write_text(_SAMPLE)
        python = find_interpreter(setting, (str(Path.cwd()),), os.environ)
        engine = Engine(EngineSettings(interpreter=python, trace_on_open=False), lambda _: None, lambda _: None)
        try:
            engine.open(file, _SAMPLE, (folder,))
            outcome = await engine.outcome(file, "f")
        finally:
            await engine.shutdown()
    if isinstance(outcome, Failure):
        return Check("tracing", "wrong", f"a small function was not traced: {outcome.message}", outcome.hint)
    return Check("tracing", "right", f"a small function was traced in {outcome.seconds:.2f} s")


def _sandbox() -> Iterator[Check]:
    """Check by trying what code that is traced can do to this machine."""
    for gap in gaps():
        yield Check("sandbox", "note", gap)
    if not gaps():
        yield Check("sandbox", "right", "traced code writes only temporary files, has no network, starts no programs")


def _cache() -> Check:
    """Check the size and the place of the stored traces and benchmarks."""
    path = Path(default_cache_path())
    size = 0
    for file in (path, default_history_path()):
        for part in (file, file.with_name(f"{file.name}-wal")):
            with suppress(OSError):
                size += part.stat().st_size
    folder = next(f for f in (path.parent, *path.parent.parents) if f.exists())
    if not os.access(folder, os.W_OK):
        return Check("cache", "wrong", f"{path.parent} cannot be written", "set XDG_CACHE_HOME to a writable folder")
    return Check("cache", "right", f"{path.parent}, {format_bytes(size)}")


def _extras() -> Iterator[Check]:
    for name, use in _EXTRAS.items():
        try:
            yield Check("extra", "right", f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            yield Check("extra", "note", f"{name} is not installed", f"for {use}")


def _editors() -> Iterator[Check]:
    there = [name for program, name in _EDITORS.items() if shutil.which(program)]
    yield Check(
        "editors", "note", f"on the PATH: {', '.join(there)}" if there else "none of VS Code, Neovim, Emacs on the PATH"
    )


async def _place(place: Host | Cluster, here: str) -> Check:
    """Check the equipment of a host; one that was never used is not reached."""
    about = f"host {place.name}"
    if not is_trusted(place):
        mend = f"run fx-lsp doctor --host {place.name} to check it"
        return Check(about, "note", "not checked: it has not been used before", mend)
    if isinstance(place, Cluster):
        try:
            return Check(about, "right", f"ray {importlib.metadata.version('ray')} here, for {place.reached}")
        except importlib.metadata.PackageNotFoundError:
            return Check(
                about, "wrong", "ray is not installed next to fx-lsp", "install the same version as the cluster"
            )
    if place.local and not place.python:
        place = replace(place, python=here)
    # This machine is not a GPU host until it is configured as one.
    lacking: State = "note" if place.local else "wrong"
    probed = await probe_host(place)
    if isinstance(probed, Failed):
        return Check(about, lacking, probed.message, probed.hint)
    lacks = probed.lacks
    text = _described(place, probed)
    if not lacks:
        return Check(about, "right", text)
    said = "; ".join(lack.message for lack in lacks)
    return Check(about, lacking, f"{text}; {said}", "; ".join(lack.hint for lack in lacks))


def _described(host: Host, probe: Probe) -> str:
    """Return the equipment of a host in one line."""
    versions = [
        f"Python {probe.python}",
        *(f"{n} {v}" for n, v in (("torch", probe.torch), ("triton", probe.triton)) if v),
    ]
    parts = [host.reached, *versions]
    for card in probe.cards:
        free = f", {format_bytes(card.memory_free)} free" if card.memory_free is not None else ""
        parts.append(f"{card.name}{free}")
    parts += [f"driver {probe.driver}"] if probe.driver else []
    if probe.disk_free is not None:
        parts.append(f"{format_bytes(probe.disk_free)} free in {probe.temporary}")
    return " · ".join(parts)


def _text(checks: Sequence[Check]) -> str:
    """Return a line for each check, and below it the remedy."""
    width = max(len(check.about) for check in checks)
    lines: list[str] = []
    for check in checks:
        lines.append(f"{_MARKS[check.state]} {check.about:{width}}  {check.text}")
        if check.mend:
            lines.append(f"  {'':{width}}  → {check.mend}")
    return "\n".join([*lines, ""])
