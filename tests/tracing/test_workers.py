"""Worker processes: whatever user code does to one, the error is clear, nothing is left, the next request works."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
import pytest_asyncio
from pythons import VERSIONS, python_of
from waiting import is_running, until

from fx_lsp.errors import TracerFailed, WorkerDied, WorkerStartError, WorkerTimeout
from fx_lsp.model import Failure, Trace, TraceReply, TraceRequest
from fx_lsp.tracing.workers import pool
from fx_lsp.tracing.workers.launch import Launch, Limits
from fx_lsp.tracing.workers.pool import Mode, Workers
from fx_lsp.tracing.workers.processes import starved_seconds

HERE = str(Path(__file__).parent)
LIMITS = Limits(seconds=30, memory_bytes=256 << 20, confined=False)


def asking(source: str, name: str = "f") -> TraceRequest:
    return TraceRequest("/w/user.py", name, "function", source, source, "user", "", ())


def started(mode: Mode, python: str = sys.executable, job: str = "jobs:run", **more: Any) -> Workers:
    given: dict[str, Any] = {"paths": (HERE,), "warm": False, "limits": LIMITS, **more}
    return Workers(Launch(python, job=job, **given), mode)


@pytest.fixture(params=["fork", "spawn"])
def mode(request: pytest.FixtureRequest) -> Mode:
    return request.param


@pytest_asyncio.fixture
async def workers(mode: Mode) -> AsyncIterator[Workers]:
    it = started(mode)
    yield it
    await it.close()


@pytest_asyncio.fixture
async def forked() -> AsyncIterator[Workers]:
    it = started("fork")
    yield it
    await it.close()


@pytest_asyncio.fixture
async def guarded() -> AsyncIterator[Workers]:
    """Workers whose job forbids effects."""
    it = started("fork", job="jobs:guarded")
    yield it
    await it.close()


async def notes(workers: Workers, source: str) -> tuple[str, ...]:
    """Run `source` and return the `notes` that it left."""
    reply = await workers.run(asking(source))
    assert isinstance(reply.outcome, Trace), reply.outcome
    return reply.outcome.notes


async def works(workers: Workers) -> None:
    assert await notes(workers, "notes = ['fine']") == ("fine",)


def living(group: int) -> list[int]:
    """Processes of a group that still run."""
    found: list[int] = []
    for pid in (int(entry.name) for entry in Path("/proc").glob("[0-9]*")):
        with suppress(OSError):
            if os.getpgid(pid) == group and is_running(pid):
                found.append(pid)
    return found


def warnings_of(module: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    told: list[str] = []
    log = f"fx_lsp.tracing.workers.{module}.log.warning"
    monkeypatch.setattr(log, lambda text, *parts: told.append(text % parts))
    return told


async def nothing_left(group: int) -> None:
    await until(lambda: not living(group))


def kill(workers: Workers, with_signal: signal.Signals = signal.SIGKILL) -> int:
    """Send a signal to the process that waits, and return its id."""
    assert workers.pid is not None
    killed = workers.pid
    os.kill(killed, with_signal)
    return killed


def telling_its_group(path: Path, source: str) -> str:
    return f"import os\nwith open({str(path)!r}, 'w') as f: f.write(str(os.getpgid(0)) + ' ')\n{source}"


async def group_in(path: Path) -> int:
    await until(lambda: path.exists() and path.read_text().endswith(" "))
    return int(path.read_text())


async def test_reply_arrives_whole(workers: Workers) -> None:
    reply = await workers.run(asking("notes = ['é', 2]\nstages = {'forward': b'F' * 3_000_000, 'joint': b''}"))
    outcome = Trace("f", (), (), (), (), (), 0.0, "", notes=("é", "2"))
    expected = TraceReply(outcome, {"forward": b"F" * 3_000_000, "joint": b""}, ("dependency.py",), ("package",))
    assert reply == expected


async def test_large_request_and_outcome(workers: Workers) -> None:
    size = 2_000_000
    assert await notes(workers, f"notes = ['x' * {size}]\n#{'y' * size}") == ("x" * size,)


async def test_requests_run_at_the_same_time_and_do_not_see_each_other(workers: Workers) -> None:
    source = "import os, builtins\nnotes = [os.getpid(), hasattr(builtins, 'mark')]\nbuiltins.mark = 1"
    told = await asyncio.gather(*(notes(workers, source) for _ in range(4)))
    assert len({pid for pid, _ in told}) == 4
    assert {seen for _, seen in told} == {"False"}


async def test_ready_and_pid_follow_the_waiting_process(mode: Mode) -> None:
    workers = started(mode)
    assert (workers.pid, workers.ready) == (None, False)
    await workers.start()
    pid = workers.pid
    assert workers.ready
    assert pid is not None and living(pid)
    await workers.close()
    assert not workers.ready
    await nothing_left(pid)
    with pytest.raises(WorkerDied, match="shut down"):
        await workers.run(asking(""))


async def test_prints_never_reach_the_protocol_and_come_with_a_failure(workers: Workers) -> None:
    noisy = "import os, sys\nprint('to stdout')\nprint('to stderr', file=sys.stderr)\nos.write(1, b'raw\\n')\n"
    await notes(workers, noisy)
    reply = await workers.run(asking(noisy + "raise ValueError('no')"))
    assert reply.outcome == Failure("error", "no", output="to stdout\nto stderr\nraw\n")


async def test_standard_input_is_empty(workers: Workers) -> None:
    assert await notes(workers, "import sys\nnotes = [repr(sys.stdin.read())]") == ("''",)


async def test_megabytes_of_prints_keep_the_tail(workers: Workers) -> None:
    reply = await workers.run(asking("for _ in range(200): print('x' * 100_000)\nprint('end')\nraise ValueError('no')"))
    assert isinstance(reply.outcome, Failure)
    assert reply.outcome.output == "x" * (4096 - 5) + "\nend\n"
    with pytest.raises(WorkerDied) as died:
        await workers.run(asking("import os\nprint('x' * 1_000_000)\nprint('end')\nos._exit(1)"))
    assert died.value.output == "x" * (65536 - 5) + "\nend\n"
    await works(workers)


async def test_a_reply_that_is_not_final_comes_first(mode: Mode) -> None:
    workers = started(mode, job="jobs:twice")
    early: list[TraceReply] = []
    reply = await workers.run(asking("notes = ['whole']\nstages = {'forward': b'nodes'}"), early=early.append)
    assert [(shown(r), r.stages, r.final) for r in early] == [(("first",), {"forward": b"nodes"}, False)]
    assert (shown(reply), reply.stages, reply.final) == (("whole",), {"forward": b"nodes"}, True)
    await workers.close()


@pytest.mark.parametrize("ending", ["raise KeyError", "import os; os._exit(3)", "while True: pass"])
async def test_a_reply_stands_though_the_process_ends_before_the_next(ending: str) -> None:
    workers = started("fork", job="jobs:twice")
    reply = await workers.run(asking(f"if __name__ == 'user':\n    {ending}"), seconds=2)
    assert (shown(reply), reply.final) == (("first",), True)
    await workers.close()


SENDS = """
import sys
from fx_lsp.wire import frame
caller = sys._getframe()
while "channel" not in caller.f_locals:
    caller = caller.f_back
for number in range(100_000):
    caller.f_locals["channel"].write({})
"""
SENT = {
    "stages that are large together": "frame({'stage': str(number)}, bytes(32 << 20))",
    "stages of the same name": "frame({'stage': 'joint'}, bytes(32 << 20))",
    "many small stages": "frame({'stage': str(number)})",
    "one large header": "b'\\x20\\0\\0\\0' * 2 + bytes(1 << 20)",
    "an end without a reply": "frame({'done': True})",
}


@pytest.mark.parametrize("message", SENT.values(), ids=SENT)
async def test_a_process_that_sends_without_end_fails_that_trace_only(forked: Workers, message: str) -> None:
    with pytest.raises(WorkerDied, match="the tracer sent an invalid reply"):
        await forked.run(asking(SENDS.format(message)))
    await works(forked)


def shown(reply: TraceReply) -> tuple[str, ...]:
    assert isinstance(reply.outcome, Trace), reply.outcome
    return reply.outcome.notes


async def test_endless_loop_times_out(workers: Workers, tmp_path: Path) -> None:
    source = telling_its_group(tmp_path / "group", "print('before', flush=True)\nwhile True: pass")
    with pytest.raises(WorkerTimeout, match=r"^no answer within 1.5 s$") as timeout:
        await workers.run(asking(source), seconds=1.5)
    printed, _, stack = timeout.value.output.partition("(most recent call first):\n")
    assert printed.startswith("before\n")
    assert stack.startswith('  File "/w/user.py", line 4 in <module>\n') or not hasattr(signal, "SIGUSR1")
    assert not living(await group_in(tmp_path / "group"))
    await works(workers)


GARBAGE = "import os\nfor fd in range(3, 200):\n  try: os.write(fd, b'\\xff' * 64)\n  except OSError: pass"


@pytest.mark.parametrize(
    ("source", "message", "status", "output"),
    [
        ("import os, sys\nprint('last words')\nos._exit(3)", "the tracer exited with code 3", 3, "last words\n"),
        ("import os\nos._exit(0)", "the tracer exited with code 0", 0, ""),
        ("import ctypes\n\nctypes.string_at(0)", "the tracer was ended by SIGSEGV", -signal.SIGSEGV, ", line 3"),
        (GARBAGE, "invalid reply", ANY, ""),
    ],
)
async def test_deaths_are_reported_with_their_status(
    workers: Workers, source: str, message: str, status: object, output: str
) -> None:
    with pytest.raises(WorkerDied, match=message) as died:
        await workers.run(asking(source))
    assert died.value.status == status and output in died.value.output
    await works(workers)


async def test_killed_in_the_middle(workers: Workers, tmp_path: Path) -> None:
    group = tmp_path / "group"
    run = asyncio.create_task(workers.run(asking(telling_its_group(group, "import time\ntime.sleep(600)"))))
    os.kill(await group_in(group), signal.SIGKILL)
    with pytest.raises(WorkerDied, match="SIGKILL") as died:
        await run
    assert died.value.status == -signal.SIGKILL
    await works(workers)


async def test_exception_that_escapes_the_job_comes_with_its_traceback(workers: Workers) -> None:
    with pytest.raises(TracerFailed, match=r"^SystemExit: 2$") as died:
        await workers.run(asking("import sys\nsys.exit(2)"))
    assert 'File "/w/user.py", line 2' in died.value.output
    await works(workers)


async def test_allocation_without_end_is_a_memory_error(workers: Workers) -> None:
    reply = await workers.run(asking("kept = []\nwhile True: kept.append(bytearray(16 << 20))"))
    assert reply.outcome == Failure("memory", "over the limit")
    await works(workers)


async def test_cancelling_kills_the_whole_group(workers: Workers, tmp_path: Path) -> None:
    group = tmp_path / "group"
    source = "import subprocess\nsubprocess.Popen(['sleep', '600'])\n" + telling_its_group(group, "while True: pass")
    run = asyncio.create_task(workers.run(asking(source)))
    pgid = await group_in(group)
    assert len(living(pgid)) == 2
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    await nothing_left(pgid)
    await works(workers)


async def test_cancelling_at_any_moment_leaves_nothing(workers: Workers, tmp_path: Path) -> None:
    await workers.start()
    groups = [tmp_path / str(i) for i in range(12)]
    runs = [asyncio.create_task(workers.run(asking(telling_its_group(g, "while True: pass")))) for g in groups]
    for moment, run in enumerate(runs):
        await asyncio.sleep(0.002 * moment)
        run.cancel()
    await asyncio.gather(*runs, return_exceptions=True)
    await works(workers)
    for group in groups:
        if group.exists() and group.read_text():
            await nothing_left(int(group.read_text()))


async def test_grandchildren_and_threads_end_with_the_reply(workers: Workers, tmp_path: Path) -> None:
    group = tmp_path / "group"
    source = """
import subprocess, threading, time
subprocess.Popen(['sleep', '600'])
if os.fork() == 0:
    time.sleep(600)
threading.Thread(target=time.sleep, args=[600]).start()
import atexit
atexit.register(time.sleep, 600)
notes = ['done']"""
    assert await notes(workers, telling_its_group(group, source)) == ("done",)
    await nothing_left(await group_in(group))


async def test_closing_the_standard_descriptors_is_harmless(workers: Workers) -> None:
    assert await notes(workers, "import os\nfor fd in (0, 1, 2): os.close(fd)\nnotes = ['sent']") == ("sent",)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import subprocess\nsubprocess.Popen(['sleep', '600'], close_fds=False)\nos._exit(4)", "exited with code 4"),
        ("os.closerange(3, 4096)\nimport time\ntime.sleep(600)", "closed its channel without an answer"),
    ],
    ids=["it has started a process", "it has closed every descriptor"],
)
async def test_a_death_leaves_nothing(workers: Workers, tmp_path: Path, source: str, message: str) -> None:
    with pytest.raises(WorkerDied, match=message):
        await workers.run(asking(telling_its_group(tmp_path / "group", source)))
    await nothing_left(await group_in(tmp_path / "group"))
    await works(workers)


async def test_close_ends_what_still_runs(mode: Mode, tmp_path: Path) -> None:
    workers, group = started(mode), tmp_path / "group"
    run = asyncio.create_task(workers.run(asking(telling_its_group(group, "while True: pass"))))
    pgid = await group_in(group)
    await workers.close()
    with pytest.raises(WorkerDied):
        await run
    await nothing_left(pgid)


async def test_close_while_starting(mode: Mode) -> None:
    workers = started(mode)
    runs = [asyncio.create_task(workers.run(asking(""))) for _ in range(2)]
    await asyncio.sleep(0)
    await workers.close()
    for run in runs:
        with pytest.raises(WorkerDied, match="shut down"):
            await run


async def test_cancelling_one_that_waits_for_the_start_leaves_the_others(workers: Workers) -> None:
    first = asyncio.create_task(workers.run(asking("")))
    second = asyncio.create_task(notes(workers, "notes = ['fine']"))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == ("fine",)
    assert first.cancelled()


async def test_zygote_killed_in_the_middle(forked: Workers, tmp_path: Path) -> None:
    group = tmp_path / "group"
    run = asyncio.create_task(forked.run(asking(telling_its_group(group, "while True: pass"))))
    pgid = await group_in(group)
    zygote = kill(forked)
    with pytest.raises(WorkerDied, match=r"^the tracer's parent process was ended by SIGKILL$"):
        await run
    await nothing_left(pgid)
    await until(lambda: forked.ready)  # before anything is asked
    assert forked.pid != zygote
    await works(forked)


def daemons(path: Path, then: str) -> str:
    """A source that starts two processes in sessions of their own, which tell `path` their groups; `then` follows."""
    return f"""
import os, subprocess, time
def tell(group):
    with open({str(path)!r}, 'a') as file: file.write(f'{{group}} ')
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        tell(os.getpgid(0))
        time.sleep(600)
    os._exit(0)
tell(subprocess.Popen(['sleep', '600'], start_new_session=True).pid)
while len(open({str(path)!r}).read().split()) < 2: time.sleep(0.01)
{then}"""


async def test_daemons_end_with_the_trace_that_started_them(forked: Workers, tmp_path: Path) -> None:
    path = tmp_path / "daemons"
    assert await notes(forked, daemons(path, "notes = ['done']")) == ("done",)
    for group in map(int, path.read_text().split()):
        await nothing_left(group)
    await works(forked)


async def test_daemons_of_a_trace_that_runs_stay_until_the_workers_are_closed(tmp_path: Path) -> None:
    workers, path = started("fork"), tmp_path / "daemons"
    run = asyncio.create_task(workers.run(asking(daemons(path, "time.sleep(600)"))))
    await until(lambda: path.exists() and len(path.read_text().split()) == 2)
    await works(workers)
    groups = [int(group) for group in path.read_text().split()]
    assert all(living(group) for group in groups)
    await workers.close()
    for group in groups:
        await nothing_left(group)
    with pytest.raises(WorkerDied):
        await run


async def test_a_zygote_that_was_stopped_goes_on(forked: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    told = warnings_of("fork_server", monkeypatch)
    await forked.start()
    kill(forked, signal.SIGSTOP)
    await asyncio.wait_for(works(forked), 600)
    await works(forked)
    assert told == ["the tracer's parent process was stopped by somebody, and goes on"]


async def test_waiting_process_killed_between_requests(workers: Workers) -> None:
    await works(workers)
    await workers.start()
    killed = kill(workers)
    await until(lambda: workers.pid != killed)
    await works(workers)


async def test_a_zygote_that_is_killed_is_replaced_unasked(forked: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    told = warnings_of("pool", monkeypatch)
    await forked.start()
    killed = kill(forked)
    await until(lambda: forked.pid not in (None, killed))
    assert told == ["the tracer's parent process was ended by SIGKILL; another one starts"]


async def test_a_zygote_that_is_killed_again_and_again_waits_for_a_request(forked: Workers) -> None:
    killed = set[int]()
    await forked.start()
    for _ in range(pool.RESTARTS + 1):
        await until(lambda: forked.pid not in (None, *killed))
        killed.add(kill(forked))
    await until(lambda: not forked.ready)
    assert forked._starting is None
    await works(forked)


async def test_processes_that_nobody_uses_end_until_somebody_does(mode: Mode) -> None:
    workers = started(mode, limits=Limits(idle_seconds=0.3))
    await works(workers)
    waiting = workers.pid
    await until(lambda: workers.resting)
    await until(lambda: not workers._ending)
    assert workers.pid is None and (waiting is None or not living(waiting))
    assert workers._timer is None and workers._starting is None  # nothing polls
    workers.touch()
    await until(lambda: workers.ready)
    await until(lambda: workers.resting)
    await works(workers)
    await workers.close()


async def test_a_trace_that_runs_is_use(tmp_path: Path) -> None:
    workers = started("fork", limits=Limits(idle_seconds=0.1))
    go = tmp_path / "go"
    source = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\nnotes = ['fine']"
    run = asyncio.create_task(notes(workers, source))
    await asyncio.sleep(0.5)
    assert not workers.resting
    go.touch()
    assert await run == ("fine",)
    await workers.close()


async def test_with_a_limit_of_zero_nothing_ends() -> None:
    workers = started("fork", limits=Limits(idle_seconds=0))
    await works(workers)
    assert workers._timer is None
    await workers.close()


async def test_zygote_killed_unnoticed_is_replaced_before_anything_ran(forked: Workers) -> None:
    await forked.start()
    kill(forked)
    await works(forked)


async def test_when_the_server_is_killed_everything_goes(mode: Mode, tmp_path: Path) -> None:
    group, waiting = tmp_path / "group", tmp_path / "waiting"
    source = telling_its_group(group, "while True: pass")
    script = f"""
import asyncio, sys
sys.path[:0] = {[HERE, os.path.dirname(HERE)]!r}
from test_workers import asking, started
async def main():
    workers = started({mode!r})
    run = asyncio.create_task(workers.run(asking({source!r})))
    while not workers.pid: await asyncio.sleep(0.01)
    open({str(waiting)!r}, 'w').write(f"{{workers.pid}} ")
    await run
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", script]) as server:
        pgid, other = await group_in(group), await group_in(waiting)
        server.kill()
    await nothing_left(pgid)
    await nothing_left(other)


async def test_preloaded_packages_are_there_and_broken_ones_do_no_harm(workers: Workers) -> None:
    await workers.start()
    names = ["not_installed", "colorsys", "\ud800", "a..b", "waiting", "x" * (1 << 20), "iniconfig"]
    workers.preload(names)
    source = f"import sys\nnotes = [name for name in {names!r} if name in sys.modules]"
    for _ in range(200):
        if await notes(workers, source) == ("iniconfig",):
            break
    else:
        raise AssertionError("iniconfig was never preloaded")


async def test_preload_that_kills_the_zygote_is_not_tried_again(tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    site.mkdir()
    (site / "deadly.py").write_text("import os\nos._exit(7)")
    workers = started("fork", paths=(HERE, str(site)))
    await workers.start()
    workers.preload(["deadly"])
    await until(lambda: not workers.ready)
    await works(workers)
    await works(workers)
    await workers.close()


async def test_environment_of_user_code(workers: Workers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCH_LOGS", "all")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "types.py").write_text("raise RuntimeError('shadowed')")
    (tmp_path / "helper.py").write_text("name = 'found'")
    source = """
import os, sys, types, helper
notes = [helper.name, sys.dont_write_bytecode, os.environ['CUDA_VISIBLE_DEVICES'] == '', 'TORCH_LOGS' in os.environ]
notes += [os.environ['PYTHONPATH'] == os.path.dirname(helper.__file__), '' in sys.path]
notes += [any(p.endswith(('tracer', 'process')) for p in sys.path)]"""
    assert await notes(workers, source) == ("found", "True", "True", "False", "True", "False", "False")


async def test_user_paths_come_after_the_standard_library_and_before_site_packages(
    workers: Workers, tmp_path: Path
) -> None:
    (tmp_path / "trace.py").write_text("")
    source = f"""
import os, sys
from fx_lsp.tracer.program.paths import insert_user_paths
insert_user_paths([{str(tmp_path)!r}])
insert_user_paths([{str(tmp_path)!r}])
import trace
at = sys.path.index({str(tmp_path)!r})
site = [i for i, p in enumerate(sys.path) if p.endswith('-packages')]
notes = [sys.path.count({str(tmp_path)!r}), trace.__file__.startswith({str(tmp_path)!r}), all(at < i for i in site)]"""
    assert await notes(workers, source) == ("1", "False", "True")


async def test_what_follows_a_path_that_is_there_already_comes_after_it(workers: Workers, tmp_path: Path) -> None:
    source = f"""
import sys
from fx_lsp.tracer.program.paths import insert_user_paths
site = next(p for p in sys.path if p.endswith('-packages'))
inside = site + '/a_package'
insert_user_paths([site, inside, {str(tmp_path)!r}])
notes = [sys.path.index(p) - sys.path.index(site) for p in (inside, {str(tmp_path)!r})]"""
    assert await notes(workers, source) == ("1", "2")


def other_pythons() -> list[Any]:
    pythons = {version: python_of(version) or "" for version in VERSIONS}
    other = {version: python for version, python in pythons.items() if python != sys.executable}
    return [
        pytest.param(
            version, python, id=version, marks=pytest.mark.skipif(not python, reason=f"no Python {version} here")
        )
        for version, python in other.items()
    ]


@pytest.mark.parametrize(("wanted", "python"), other_pythons())
async def test_other_pythons_without_our_packages(
    mode: Mode, wanted: str, python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    workers = started(mode, python)
    source = """
import sys
from importlib.util import find_spec
notes = [sys.version_info[:2], bool(find_spec('fx_lsp')), bool(find_spec('pygls')), bool(find_spec('tests'))]"""
    version, *rest = await notes(workers, source)
    assert rest == ["True", "False", "False"]
    assert f"({wanted})" == version.replace(", ", ".")
    with pytest.raises(WorkerDied, match="SIGSEGV"):
        await workers.run(asking("import ctypes\nctypes.string_at(0)"))
    await works(workers)
    await workers.close()


async def test_wrong_interpreter_can_be_mended(mode: Mode, tmp_path: Path) -> None:
    python = tmp_path / "python"
    workers = started(mode, str(python))
    for _ in range(2):
        with pytest.raises(WorkerStartError, match="there is no Python interpreter at") as error:
            await workers.run(asking(""))
        assert error.value.kind == "interpreter"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    await works(workers)
    await workers.close()


async def test_one_that_is_no_python_is_quoted(mode: Mode, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'licence expired' >&2\nexit 9\n")
    python.chmod(0o755)
    with pytest.raises(WorkerStartError, match=r"python exited with code 9 at its start: licence expired$"):
        await started(mode, str(python)).start()


async def test_no_torch(mode: Mode, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path)], check=True)
    python = tmp_path / "bin" / "python"
    with pytest.raises(WorkerStartError, match=f"^{python} has no torch$") as error:
        await started(mode, str(python), warm=True).start()
    assert error.value.kind == "no-torch"
    assert error.value.hint.startswith("Install torch into it, or set fx-lsp.interpreter")


async def test_torch_that_does_not_import(mode: Mode, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libtorch.so: cannot open shared object file')")
    workers = Workers(Launch(sys.executable, paths=(str(tmp_path),), limits=LIMITS), mode)
    with pytest.raises(WorkerStartError, match=r"does not import: ImportError: libtorch.so: cannot open") as error:
        await workers.start()
    assert error.value.kind == "no-torch"


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("open('/nowhere/model.pt', 'wb')", "writes the file /nowhere/model.pt"),
        ("open('/nowhere/log', mode='a')", "writes the file /nowhere/log"),
        ("import os\nos.open('/nowhere/log', os.O_CREAT | os.O_WRONLY)", "writes the file /nowhere/log"),
        ("import pathlib\npathlib.Path('/nowhere').mkdir()", "creates the directory /nowhere"),
        ("import os\nos.remove('/nowhere/a')", "removes the file /nowhere/a"),
        ("import os\nos.rename('/nowhere/a', 'b')", "renames the file /nowhere/a"),
        ("import shutil\nshutil.rmtree('/nowhere')", "removes the directory /nowhere"),
        ("import subprocess\nsubprocess.run(['nvidia-smi', '-L'])", "starts the program 'nvidia-smi'"),
        ("import subprocess\nsubprocess.run('ls | wc', shell=True)", "starts the program 'ls | wc'"),
        ("import os\nos.system('reboot')", "starts the program 'reboot'"),
        ("import os\nos.fork()", "forks"),
        ("import os\nos.kill(1, 0)", "sends a signal"),
        (
            "import socket\nsocket.create_connection(('example.com', 443))",
            "opens a network connection to example.com:443",
        ),
        ("import socket\nsocket.socket().connect(('127.0.0.1', 9))", "opens a network connection"),
        ("import sqlite3\nsqlite3.connect('/nowhere/db')", "opens the database /nowhere/db"),
    ],
)
async def test_effects_are_blocked_and_named(guarded: Workers, source: str, what: str) -> None:
    reply = await guarded.run(asking(source))
    assert reply.outcome == Failure("effect", what)


@pytest.mark.parametrize(
    "source",
    [
        "import os\nopen(os.devnull, 'w').close()",
        "import tempfile\nwith tempfile.TemporaryDirectory() as d: open(d + '/x', 'w').close()",
        "open('/etc/hostname').read()",
        "import sqlite3\nsqlite3.connect(':memory:')",
        "import ctypes\nctypes.CDLL(None)",
        "print('hello')",
    ],
)
async def test_harmless_things_are_not_blocked(guarded: Workers, source: str) -> None:
    assert isinstance((await guarded.run(asking(source))).outcome, Trace)


async def test_temporary_files_may_be_written_but_none_in_the_working_directory(
    workers: Workers,
) -> None:
    source = """
import os, socket, tempfile
from fx_lsp.tracer.program.effects import EffectBlocked, forbid_effects
notes = []
def trial(action):
    try:
        action()
        notes.append('done')
    except EffectBlocked as blocked:
        notes.append(blocked.what)
os.chdir(tempfile.mkdtemp())
with forbid_effects() as effects:
    trial(lambda: open('model.pt', 'w').close())
    trial(lambda: open('../of-a-library', 'w').close())
    trial(lambda: open('/nowhere', 'w').close())
    trial(lambda: socket.getaddrinfo('example.com', 80))
    trial(lambda: open('/etc/hostname').close())
    notes.append(len(effects.blocked))
trial(lambda: open('/dev/full', 'w').close())"""
    assert await notes(workers, source) == (
        "writes the file model.pt",
        "done",
        "writes the file /nowhere",
        "opens a network connection to example.com:80",
        "done",
        "3",
        "done",
    )


async def test_a_process_that_waits_for_a_processor_keeps_its_time(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = asking("import time\ntime.sleep(1.0)")
    with pytest.raises(WorkerTimeout):
        await workers.run(slow, seconds=0.5)
    monkeypatch.setattr(pool, "starved_seconds", lambda pid: 60.0)
    await workers.run(slow, seconds=0.5)
    with pytest.raises(WorkerTimeout):
        await workers.run(asking("while True: pass"), seconds=0.1)


def test_starved_seconds_are_those_that_the_system_counts() -> None:
    own = starved_seconds(os.getpid())
    assert own is None or own >= 0.0
    assert starved_seconds(-1) is None
