"""Code of a workspace fills neither the disk nor the memory, however it spreads over files and processes."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from fx_lsp.errors import WorkerExceeded
from fx_lsp.model import Failure, Trace, TraceRequest
from fx_lsp.sandbox import landlock, seccomp, usage
from fx_lsp.tracing.engine import Engine
from fx_lsp.tracing.workers import child
from fx_lsp.tracing.workers.interpreter import default_backend
from fx_lsp.tracing.workers.launch import Launch, Limits
from fx_lsp.tracing.workers.pool import Mode, Workers
from fx_lsp.tracing.workers.settings import EngineSettings

pytestmark = pytest.mark.skipif(
    landlock.version() < landlock.NO_SIGNALS or not seccomp.supported(), reason="this kernel confines less"
)
JOBS = str(Path(__file__).parent.parent / "tracing")
MEMORY, FILES = 256 << 20, 32 << 20
BEGIN = """
import ctypes, mmap, os, tempfile, time
mebibyte, kept = bytes(1 << 20), []
libc = ctypes.CDLL(None)
libc.prctl(4, 0, 0, 0, 0)
folder = tempfile.mkdtemp()
def fill(descriptor, mebibytes=4):
    for _ in range(mebibytes):
        os.write(descriptor, mebibyte)
    return descriptor
"""
FILLED = {
    "many files": """
    os.close(fill(os.open(f"{folder}/{number}", os.O_WRONLY | os.O_CREAT)))
""",
    "removed files": """
    kept.append(tempfile.TemporaryFile())
    fill(kept[-1].fileno())
""",
    "mapped files": """
    file = tempfile.TemporaryFile()
    kept.append(mmap.mmap(fill(file.fileno()), 4 << 20))
    file.close()
""",
    "empty files": """
    for inner in range(100):
        os.close(os.open(f"{folder}/{number}-{inner}", os.O_WRONLY | os.O_CREAT))
""",
    "deep folders": """
    at = os.open(folder, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("deep", dir_fd=at)
        at, before = os.open("deep", os.O_RDONLY, dir_fd=at), at
        os.close(before)
    fill(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=at), 1000)
    time.sleep(60)
""",
}


@pytest.fixture(params=["fork", "spawn"])
def mode(request: pytest.FixtureRequest) -> Mode:
    return request.param


async def exceeded(mode: Mode, source: str, *programs: str) -> WorkerExceeded:
    """Run a source without end, and return how it was ended."""
    limits = Limits(60, MEMORY, programs=programs)
    workers = Workers(Launch(sys.executable, job="jobs:run", paths=(JOBS,), warm=False, limits=limits), mode)
    try:
        with pytest.raises(WorkerExceeded) as caught:
            await workers.run(TraceRequest("user.py", "f", "function", source, source, "user", "", ()))
    finally:
        await workers.close()
    return caught.value


@pytest.mark.parametrize(
    ("mode", "name"), [*(("fork", name) for name in FILLED), ("spawn", "many files")], indirect=["mode"]
)
async def test_temporary_files_are_bounded_together(monkeypatch: pytest.MonkeyPatch, mode: Mode, name: str) -> None:
    monkeypatch.setattr(child, "SCRATCH_BYTES", FILES)
    error = await exceeded(mode, BEGIN + f"for number in range(1000):{FILLED[name]}    time.sleep(0.02)\n")
    assert (error.resource, error.limit) == ("files", FILES)


async def test_space_is_not_reserved_faster_than_it_is_written() -> None:
    reserve = (
        "libc.fallocate(os.open(folder + '/x', os.O_WRONLY | os.O_CREAT), 0, ctypes.c_long(0), ctypes.c_long(1 << 29))"
    )
    source = BEGIN + f"notes = [{reserve}, os.stat(folder + '/x').st_blocks]\n"
    workers = Workers(Launch(sys.executable, job="jobs:run", paths=(JOBS,), warm=False, limits=Limits(60, MEMORY)))
    reply = await workers.run(TraceRequest("user.py", "f", "function", source, source, "user", "", ()))
    await workers.close()
    assert not isinstance(reply.outcome, Failure)
    assert reply.outcome.notes == ("-1", "0")


@pytest.mark.parametrize("mode", ["fork", "spawn"], indirect=True)
async def test_the_memory_of_processes_is_bounded_together(mode: Mode) -> None:
    """Each of six has less than the limit. They may be forked where programs may start."""
    forks = "for _ in range(6):\n    if os.fork() == 0:\n        kept = bytearray(b'x' * (100 << 20))\n        break\n"
    error = await exceeded(mode, BEGIN + forks + "time.sleep(60)\n", "true")
    assert (error.resource, error.limit) == ("memory", MEMORY)


LAYERS = """
import ctypes, time
for _ in range(6):
    if ctypes.CDLL(None).fork() == 0:
        kept = bytearray(b"x" * (100 << 20))
        time.sleep(600)
"""


@pytest.mark.torch
async def test_the_memory_of_a_world_is_bounded_with_all_that_it_starts(tmp_path: Path) -> None:
    """Its target is then traced without the world, in a process that starts none."""
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "layers.py").write_text(LAYERS)
    text = "import torch\nimport layers\n\n\ndef f(x: torch.Tensor):\n    return torch.relu(x)\n"
    (tmp_path / "model.py").write_text(text)
    settings = EngineSettings(workers=1, limits=Limits(60, MEMORY), trace_on_open=False, interpreter=sys.executable)
    engine = Engine(settings, lambda file: None, lambda status: None, default_backend("fork"))
    file = str(tmp_path / "model.py")
    engine.open(file, text, (str(tmp_path),))
    outcome = await engine.outcome(file, "f", final=True)
    tracers = engine._interpreters.all[0]._tracers
    assert tracers is not None and tracers.pid is not None
    left = usage.processes_below(tracers.pid)
    for _ in range(100):
        if len(left) <= 2:
            break
        await asyncio.sleep(0.1)
        left = usage.processes_below(tracers.pid)
    await engine.shutdown()
    assert len(left) <= 2, left  # the zygote and its spare
    assert isinstance(outcome, Trace)
