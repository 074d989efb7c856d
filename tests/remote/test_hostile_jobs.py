"""What a job prints has no control over a terminal, and what it leaves is removed, however deep it is."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing
from pathlib import Path

import pytest

from fx_lsp.measured import BenchmarkJob, Event, Failed
from fx_lsp.sandbox.removal import remove_tree
from fx_lsp.tracing.remote.hosts import LOCAL, Host
from fx_lsp.tracing.remote.jobs import run_job
from fx_lsp.tracing.remote.payload import supervisor_source
from fx_lsp.tracing.remote.troubles import ended, refused

pytest.importorskip("execnet")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="folders are made by descriptors")
TITLE, CLEAR = "\x1b]0;owned\x07", "\x1b[2J"
RUNNER = """
import os, sys
folder = os.open(".", os.O_RDONLY)
for _ in range(3000):
    os.mkdir("deep", dir_fd=folder)
    inner = os.open("deep", os.O_RDONLY, dir_fd=folder)
    os.close(folder)
    folder = inner
print("\\x1b]0;owned\\x07the end\\x1b[2J\\x9b31m", file=sys.stderr)
sys.exit(3)
"""


async def test_a_job_leaves_no_deep_folder_and_no_control_characters(tmp_path: Path) -> None:
    files = {"fx_lsp/__init__.py": b"", "fx_lsp/bench/__init__.py": b"", "fx_lsp/bench/__main__.py": RUNNER.encode()}
    host, events = Host(LOCAL, local=True, folder=str(tmp_path)), list[Event]()

    async def listen() -> None:
        async with aclosing(run_job(host, BenchmarkJob("2", ()), files)) as run:
            events.extend([event async for event in run])

    await asyncio.wait_for(listen(), 60)
    left = [*tmp_path.iterdir()]
    for folder in left:
        remove_tree(str(folder))  # pytest could not
    assert not left
    last = events[-1]
    assert isinstance(last, Failed)
    assert last.message.endswith("exited with code 3 without a report: the end\\x9b31m")


@pytest.mark.parametrize("status", [1, -9])
def test_the_end_of_a_job_is_readable(status: int) -> None:
    texts = (ended(Host("h200"), {"status": status, "errors": f"{TITLE}Error: {CLEAR}no"}, 1).message,)
    for kind in ("python", "torch", "folder"):
        facts = {"kind": kind, "version": f"2{CLEAR}", "executable": f"{TITLE}py", "folder": TITLE, "why": CLEAR}
        texts += (refused(Host("h200"), facts).message,)
    assert not any("\x1b" in text or "\x07" in text for text in texts)


def test_the_supervisor_is_one_text() -> None:
    compile(supervisor_source(), "supervisor", "exec")
    assert "fx_lsp.sandbox" not in supervisor_source()
