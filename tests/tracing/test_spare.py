"""One child is forked before its request comes."""

import asyncio
import os
import re
import signal
import sys
from dataclasses import replace
from importlib.util import cache_from_source
from pathlib import Path

import pytest
from waiting import until

from fx_lsp.model import Failure, Node, Stage, TraceRequest
from fx_lsp.sandbox import landlock, seccomp
from fx_lsp.tracing.workers.launch import Launch, compiled_modules
from fx_lsp.tracing.workers.pool import Workers
from fx_lsp.wire import encode_stage

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads /proc"),
]

SOURCE = "import os, torch\ndef f(x):\n    raise ValueError(f'pid {os.getpid()}')\n"

ASKED = TraceRequest("user.py", "f", "function", SOURCE, SOURCE, "user", "", ())
FIRST = """
import os, sys
def f(x):
    raise ValueError(f'{os.getppid()} {"torch._inductor.compile_fx" in sys.modules}')
"""


@pytest.fixture
async def workers():
    started = Workers(Launch(sys.executable))
    await started.start()
    yield started
    await started.close()


async def answering_pid(workers: Workers, *roots: str) -> int:
    outcome = (await workers.run(replace(ASKED, roots=roots))).outcome
    assert isinstance(outcome, Failure)
    found = re.search(r"pid (\d+)", outcome.message)
    assert found, outcome
    return int(found[1])


async def spare_of(workers: Workers) -> int:
    """The pid of the waiting spare, which has rehearsed: the one child of the zygote while nothing is asked."""
    children = Path(f"/proc/{workers.pid}/task/{workers.pid}/children")
    (spare,) = await until(lambda: len(found := children.read_text().split()) == 1 and found)
    await until(lambda: state_of(int(spare)) == "S")
    return int(spare)


def state_of(pid: int) -> str:
    """The state of a process: R while it computes, S while it waits."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def gone(pid: int) -> None:
    """Wait until the process has ended and its parent has taken note."""
    await until(lambda: not Path(f"/proc/{pid}").exists())


async def test_a_request_is_answered_by_the_spare_and_the_next_by_the_next(workers):
    first = await spare_of(workers)
    assert await answering_pid(workers) == first
    await gone(first)
    second = await spare_of(workers)
    assert second != first
    assert await answering_pid(workers) == second


async def test_a_spare_that_was_killed_is_replaced_and_no_request_is_lost(workers):
    spare = await spare_of(workers)
    os.kill(spare, signal.SIGKILL)
    await gone(spare)
    assert await answering_pid(workers) != spare
    assert await spare_of(workers) != spare


async def test_a_preload_replaces_the_spare(workers):
    spare = await spare_of(workers)
    workers.preload(["iniconfig"])
    await gone(spare)
    assert await answering_pid(workers) != spare


KNOWN = """
import torch
from torch._subclasses import FakeTensorMode
known = {str(key.key[0]) for key in FakeTensorMode.cache}
def f(x):
    raise ValueError(f"tan: {'aten.tan.default' in known}, cos: {'aten.cos.default' in known}")
"""


async def test_a_spare_knows_the_operations_of_the_last_graph(workers):
    spare = await spare_of(workers)
    nodes = (
        Node("x", "placeholder", "x", spec="f32[3, 5]"),
        Node("tan", "call_function", "aten.tan.default", ("x",), spec="f32[3, 5]"),
        Node("own", "call_function", "mine.operation.default", ("tan",)),
        Node("cos", "call_function", "aten.cos.default", ("own",)),
        Node("output", "output", "output", ("cos",)),
    )
    await workers.rehearse(encode_stage(Stage("joint", nodes)), ASKED)
    await gone(spare)
    await spare_of(workers)
    outcome = (await workers.run(TraceRequest("k.py", "f", "function", KNOWN, KNOWN, "k", "", ()))).outcome
    assert isinstance(outcome, Failure)
    assert "tan: True, cos: False" in outcome.message


async def test_a_graph_is_data_of_which_nothing_is_evaluated(workers, tmp_path):
    """A process with code of a workspace may send any text as a graph; the next trace may be another project's."""
    note = f"__import__('pathlib').Path({str(tmp_path / 'ran')!r}).touch()"
    paths = [f"aten.tan.default.__globals__.get({note})", "aten.from_file.default", "aten.__class__.mro", "aten"]
    nodes = (
        Node("x", "placeholder", "x", spec="f32[3, 5]"),
        Node("a", "call_function", "aten.tan.default", (note,)),
        Node("b", "call_function", f"aten.tan.default(x) or {note} or aten.tan.default", ("x",)),
        *(Node("c", "call_function", path, (repr(str(tmp_path / "ran")), "True", "8")) for path in paths),
        Node("d", "call_function", "aten.tan.default", (f"x=[{note}]",)),
        Node("e", "call_function", "aten.tan.default", ("(" * 10_000,)),
        Node("f", "call_function", "aten.cos.default", ("x",)),
    )
    spare = await spare_of(workers)
    for stage in (b"none", encode_stage(Stage("joint", nodes))):
        await workers.rehearse(stage, ASKED)
        await gone(spare)
        spare = await spare_of(workers)
    outcome = (await workers.run(TraceRequest("k.py", "f", "function", KNOWN, KNOWN, "k", "", ()))).outcome
    assert isinstance(outcome, Failure)
    assert "tan: False, cos: True" in outcome.message
    assert not list(Path(tmp_path).iterdir())


@pytest.mark.skipif(landlock.version() < landlock.NO_SIGNALS or not seccomp.supported(), reason="confines less")
async def test_a_spare_that_has_read_a_graph_is_confined_as_what_sent_it(workers, tmp_path):
    """It answers no request of another project, and starts no program or process while it decodes."""
    (tmp_path / "a" / "inner").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    first, second = str(tmp_path / "a"), str(tmp_path / "b")
    graph = encode_stage(Stage("joint", (Node("x", "placeholder", "x", spec="f32[3]"),)))
    free = await spare_of(workers)
    filters = filters_of(free)
    for other, is_taken in (first, True), (second, False):
        asked = replace(ASKED, roots=(str(tmp_path / "a" / "inner"), first))
        await workers.rehearse(graph + other.encode()[-1:], asked)
        await gone(free)
        free = await spare_of(workers)
        assert filters_of(free) == filters + 2
        assert (await answering_pid(workers, other) == free) is is_taken
        await gone(free)
        free = await spare_of(workers)


def filters_of(pid: int) -> int:
    """The seccomp filters of a process."""
    return int(Path(f"/proc/{pid}/status").read_text().partition("Seccomp_filters:")[2].split()[0])


async def test_a_graph_that_ends_its_spare_is_forgotten(workers):
    spare = await spare_of(workers)
    rows = Node("x", "placeholder", "x", spec="f32[900000000, 1]")
    graph = encode_stage(Stage("joint", (rows, Node("y", "call_function", "aten.unbind.int", ("x",)))))
    await workers.rehearse(graph, ASKED)
    await gone(spare)
    assert await answering_pid(workers) not in (0, spare)
    assert await spare_of(workers) != spare


async def test_the_first_request_does_not_wait_for_the_spare_or_the_compiler():
    workers = Workers(Launch(sys.executable))
    try:
        request = TraceRequest("user.py", "f", "function", FIRST, FIRST, "user", "", ())
        outcome = (await workers.run(request)).outcome
        assert isinstance(outcome, Failure)
        assert f"{workers.pid} False" in outcome.message
    finally:
        await workers.close()


async def test_a_second_process_compiles_modules_while_a_worker_imports_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    (tmp_path / "tracer").mkdir()
    module = tmp_path / "tracer" / "job.py"
    module.write_text("x = 1\n")
    bytecode = Path(cache_from_source(str(module)))
    async with compiled_modules(sys.executable, tmp_path):
        await until(lambda: bytecode.exists())


async def test_a_user_without_bytecode_gets_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    (tmp_path / "job.py").write_text("x = 1\n")
    async with compiled_modules(sys.executable, tmp_path):
        await asyncio.sleep(1)
    assert not list(tmp_path.rglob("*.pyc"))
