"""Bad input through the real server and the real tracer: a clear sentence, the server alive, nothing left behind.

A comment `# here` stands on the line that the problem is shown at.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import sys
import venv
from collections.abc import AsyncIterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import pytest_asyncio
from lsprotocol import types
from pygls.exceptions import JsonRpcException
from sessions import FULL, wire
from users import PATIENCE, SERVE, User, options, started
from warm import warm_python

pytestmark = [pytest.mark.torch, pytest.mark.asyncio(loop_scope="module")]

WATCHING = {**FULL, "workspace": {**FULL["workspace"], "didChangeWatchedFiles": {"dynamicRegistration": True}}}


def good_with(module: str, factor: str) -> str:
    """A function that needs another module."""
    return f"import torch\nimport {module}\ndef f(x: torch.Tensor):\n    return torch.relu(x) * {factor}\n"


def inside(*body: str) -> str:
    """A function that does this."""
    return "\n    ".join(["import torch\n# fx: x=f32[4]\ndef f(x):", *body, "return torch.relu(x)\n"])


def at_the_top(line: str) -> str:
    """A function that needs a value which is computed like this when the file is imported."""
    return f"import torch\ndef build():\n    {line}\nN = build()\ndef f(x):\n    return torch.relu(x) * len(N)\n"


def here(source: str) -> int:
    """The line of the comment `# here`; of the function where there is none."""
    lines = source.split("\n")
    return next(n for text in ("# here", "def f(") for n, line in enumerate(lines, 1) if text in line)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def user(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[User]:
    async with started(tmp_path_factory.mktemp("project"), capabilities=WATCHING) as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def one(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[User]:
    """A server whose processes are looked at or killed: Python as it is starts them."""
    async with started(tmp_path_factory.mktemp("processes"), options=options(sys.executable)) as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def brief(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[User]:
    """A server that soon stops what does not end. Seconds without a processor do not count."""
    async with started(tmp_path_factory.mktemp("brief"), options=options(seconds=4)) as found:
        yield found


GOOD = "import torch\ndef f(x: torch.Tensor):\n    return torch.relu(x)\n"
SLOW = "import time, torch\ndef f(x: torch.Tensor):\n    time.sleep(999)\n    return torch.relu(x)\n"

LIMITED = "tracing f took more than 4 s and was stopped while it was at line {line}. Check whether this code ends; "
LIMITED += "if it does, write smaller inputs in a `# fx:` comment, "
LIMITED += "or raise `fx-lsp.limits.seconds` (`--limit-seconds` in a terminal)."
EXIT = 'Raise an exception instead; at the top level, move the call under `if __name__ == "__main__":`.'
DIED = "Look for `os._exit`, or for native code that exits the process."
MEMORY = "Write smaller inputs in a `# fx:` comment, or raise the setting `fx-lsp.limits.memory`."
CRASHED = "Native code failed there; it cannot run on fake tensors, because they have no memory."
APART = "Move it out of the traced function, or pass the value that it computes as an argument."
INSTALL = "Install it, or choose another interpreter (`fx-lsp.interpreter`)."

EFFECT = f"tracing does not allow such side effects. {APART}"
NO_MEMORY = "the code needs more memory here than a trace is allowed to use"
UNPARSED = "No graphs are shown until the file parses."

SENTENCES: dict[str, tuple[str, str]] = {
    "syntax error": (
        "import torch\ndef f(x):\n    return torch.relu(x  # here",
        f"syntax error: '(' was never closed. {UNPARSED}",
    ),
    "null byte": (
        "import torch\ndef f(x): return torch.relu(x)  # \0 here",
        f"syntax error: source code string cannot contain null bytes. {UNPARSED}",
    ),
    "import error": (
        "import torch\nfrom torch import nothing_like_it  # here\ndef f(x):\n    return torch.relu(nothing_like_it(x))",
        "ImportError: cannot import name 'nothing_like_it' from 'torch' (…) (while importing the file).",
    ),
    "exception at the top level": (
        "import torch\nN = 1 / 0  # here\ndef f(x):\n    return torch.relu(x) * N",
        "ZeroDivisionError: division by zero (while importing the file).",
    ),
    "missing package": (
        "import torch\nimport no_such_package.part as part  # here\ndef f(x):\n    return part.g(torch.relu(x))",
        f"the package `no_such_package` is not installed in the interpreter that fx-lsp uses. {INSTALL}",
    ),
    "sys.exit": (
        inside('import sys; sys.exit("enough")  # here'),
        f"the code exits the process (sys.exit('enough')). {EXIT}",
    ),
    "sys.exit at the top level": (
        at_the_top("import sys; sys.exit(3)  # here"),
        f"the code exits the process (sys.exit(3)) (while importing the file). {EXIT}",
    ),
    "os._exit": (
        inside("import os; os._exit(7)"),
        f"tracing f ended without a result: the tracer exited with code 7. {DIED}",
    ),
    "os._exit as if all were well": (
        inside("import os; os._exit(0)"),
        f"tracing f ended without a result: the tracer exited with code 0. {DIED}",
    ),
    "allocates without end": (
        inside("held = []", "while True:", "    held.append(bytes(16 << 20))  # here"),
        f"{NO_MEMORY}. {MEMORY}",
    ),
    "allocates at the top level": (
        at_the_top("return bytearray(1 << 40)  # here"),
        f"{NO_MEMORY} (while importing the file). {MEMORY}",
    ),
    "segmentation fault": (
        inside("y = torch.relu(x)", "import ctypes; ctypes.string_at(0)  # here"),
        f"tracing f crashed the process with a segmentation fault (SIGSEGV) at line 5. {CRASHED}",
    ),
    "abort": (
        inside("import os; os.abort()  # here"),
        f"tracing f crashed the process with an abort (SIGABRT) at line 4. {CRASHED}",
    ),
    "kills itself": (
        inside("import os, signal; os.kill(os.getpid(), signal.SIGKILL)  # here"),
        f"the code sends a signal; {EFFECT}",
    ),
    "reads a file that is not there": (
        inside('n = len(open("weights.bin", "rb").read())  # here'),
        "the code reads 'weights.bin': No such file or directory.",
    ),
    "reads standard input": (
        inside('x = x * float(input("scale? "))  # here'),
        "the code reads standard input, which is empty while tracing.",
    ),
    "writes a file": (
        inside('open("/fx-lsp-was-here", "w").write("!")  # here'),
        f"the code writes the file /fx-lsp-was-here; {EFFECT}",
    ),
    "uses the network": (
        inside("import urllib.request", 'urllib.request.urlopen("http://localhost:9/weights")  # here'),
        f"the code opens a network connection to localhost:9; {EFFECT}",
    ),
    "uses the network at the top level": (
        "import socket, torch\nN = socket.create_connection(('127.0.0.1', 9)).fileno()\n"
        "def f(x):\n    return torch.relu(x) * N  # here",
        "it needs a value that is unavailable: the code opens a network connection to 127.0.0.1:9, which is not "
        f"allowed while tracing. {APART}",
    ),
    "starts a program": (
        inside('import subprocess; subprocess.run(["touch", "/fx-lsp-was-here"])  # here'),
        "the code starts the program 'touch'; traced code starts only those that the setting `fx-lsp.limits.programs` "
        f"or `--allow-program` names. {APART}",
    ),
}


@pytest.mark.parametrize("case", SENTENCES)
async def test_a_sentence_says_what_happened_and_what_to_do(user: User, case: str):
    source, sentence = SENTENCES[case]
    (problem,) = await user.told(source)
    assert fnmatchcase(problem, f"{here(source)}: {sentence}".replace("…", "*").replace("[", "[[]")), problem
    await user.traces()
    assert not Path("/fx-lsp-was-here").exists()


ENDLESS = (
    inside("while True: x = torch.relu(x)  # here"),
    at_the_top("while True: pass  # here"),
    inside(
        "import time",
        "while True:",
        "    try:",
        "        time.sleep(60)  # here",
        "    except BaseException:",
        "        pass",
    ),
)
"""Programs with a loop: in the function, at the top level, and one that catches everything."""


async def test_what_does_not_end_is_stopped(brief: User):
    problems = await asyncio.gather(*map(brief.told, ENDLESS))
    lines = [here(source) for source in ENDLESS]
    assert problems == [[f"{line}: {LIMITED.format(line=line)}"] for line in lines]
    await brief.traces()


HARMLESS = {
    "loops at the top level": "while True: pass",
    "exits at the top level": "import sys\nsys.exit(1)",
    "trains at the top level": """
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(10**9):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
torch.save(model.state_dict(), "/fx-lsp-was-here")
""",
    "reads a file at the top level": "weights = torch.load('weights.pt')",
}


@pytest.mark.parametrize("case", HARMLESS)
async def test_what_the_function_does_not_need_never_runs(user: User, case: str):
    uri = user.start(f"import torch\n{HARMLESS[case]}\ndef f(x: torch.Tensor):\n    return torch.relu(x)\n")
    await asyncio.wait_for(user.lens(uri), PATIENCE)
    assert not user.client.diagnostics.get(uri)
    assert not Path("/fx-lsp-was-here").exists()
    user.close(uri)


RUNS = {
    "prints megabytes": "for _ in range(40_000):\n        print('noise ' * 20)",
    "writes to the descriptors": "import os\n    os.write(1, b'Content-Length: 2\\r\\n\\r\\n{}')",
    "writes bytes that are no text": r"import os; os.write(1, b'\xff\n\r\nContent-Length: 1000000\r\n\r\n\x80')",
    "replaces the streams": "import sys\n    sys.stdout = sys.stderr = None",
    "starts threads": (
        "import threading, time\n    for _ in range(8):\n"
        "        threading.Thread(target=time.sleep, args=(999,)).start()"
    ),
    "reads a file": "x = x + len(open('/etc/passwd').read())",
}


@pytest.mark.parametrize("case", RUNS)
async def test_what_runs_is_traced(one: User, case: str):
    source = f"import torch\n# fx: x=f32[4]\ndef f(x: torch.Tensor):\n    {RUNS[case]}\n    return torch.relu(x)\n"
    uri = one.start(source)
    await asyncio.wait_for(one.lens(uri), PATIENCE)
    one.close(uri)
    await one.traces()
    await one.until(lambda: len(one.processes.tracers()) == 0, PATIENCE)


async def test_what_a_failing_function_printed_is_shown_whatever_it_is(user: User):
    uri = user.start(
        r"""
        import os, torch
        # fx: x=f32[4]
        def f(x):
            os.write(1, b'caf\xe9 \xff\x00 \xed\xa0\x80\n')
            return torch.relu(x).no_such_method()
        """
    )
    await user.hovers(uri, 5, 20, "caf\N{REPLACEMENT CHARACTER} ")
    user.close(uri)


async def test_a_syntax_error_keeps_the_last_good_graphs(user: User):
    good = "import torch\n\ndef f(x: torch.Tensor):\n    return torch.tanh(x)\n"
    uri = user.start(good)
    await asyncio.wait_for(user.lens(uri), PATIENCE)
    user.change(uri, 2, "import torch\nimport (\n\ndef f(x: torch.Tensor):\n    return torch.tanh(x)\n")
    await asyncio.wait_for(user.lens(uri, "stale · "), PATIENCE)
    (lens, *_) = await user.lenses(uri)
    await user.until(lambda: user.client.diagnostics.get(uri), PATIENCE)
    (problem,) = user.client.diagnostics[uri]
    assert (lens.range.start.line, problem.range.start.line) == (3, 1)
    assert problem.message.endswith("fx-lsp shows the graphs of the last version that parsed.")
    user.change(uri, 3, good)
    await user.until(lambda: not user.client.diagnostics[uri], PATIENCE)
    user.close(uri)


async def test_a_killed_tracer_is_a_failure_at_the_function(one: User):
    uri = one.start(SLOW)
    await one.until(one.processes.tracers, PATIENCE)
    one.processes.kill(*one.processes.tracers())
    await one.until(lambda: one.client.diagnostics.get(uri), PATIENCE)
    (problem,) = one.client.diagnostics[uri]
    assert problem.range.start == types.Position(1, 4)
    assert problem.message == (
        "the process that traced f was killed (SIGKILL), most likely because memory ran out. The limit is 1024 MiB; "
        "write smaller inputs in a `# fx:` comment, or restart the server's tracers to try again."
    )
    one.close(uri)
    await one.traces()


async def test_a_killed_zygote_loses_nothing(one: User):
    await one.traces()
    uri = one.start(
        """
        import time, torch
        # fx: x=f32[4]
        def f(x):
            time.sleep(0.4)
            return torch.relu(x)
        """
    )
    await one.until(one.processes.tracers, PATIENCE)
    one.processes.kill(*one.processes.zygotes())
    assert await asyncio.wait_for(one.lens(uri), PATIENCE)
    assert not one.client.diagnostics.get(uri)


async def test_a_zygote_that_keeps_dying_is_given_up_and_comes_back_when_asked(one: User):
    uri = one.start(SLOW)
    while not one.client.diagnostics.get(uri):
        one.processes.kill(*(one.processes.zygotes() if one.processes.tracers() else ()))
        await asyncio.sleep(0.05)
    (problem,) = one.client.diagnostics[uri]
    assert "ended 4 times within a minute and is not started again" in problem.message or "SIGKILL" in problem.message
    one.close(uri)
    await one.command("fxLsp.restart")
    await one.traces()


async def test_ten_thousand_lines(user: User):
    functions = "".join(f"def helper_{n}(a, b):\n    c = a + b\n    return c\n\n\n" for n in range(2_000))
    uri = user.start(f"import torch\n{functions}def f(x: torch.Tensor):\n    return torch.relu(x)\n")
    await asyncio.wait_for(user.lens(uri), PATIENCE)
    assert "def f(x: ~f32" in str(await user.hover(uri, 10_001, 4))
    user.change(uri, 2, "# one more line\n", types.Range(types.Position(0, 0), types.Position(0, 0)))
    for line in (10_001, 10_002):
        await user.hover(uri, line, 4)
    await user.hovers(uri, 10_002, 4, "def f(x: ~f32")
    user.close(uri)


async def test_a_file_that_is_not_utf8(user: User):
    (user.folder / "latin.py").write_bytes(b"# -*- coding: latin-1 -*-\nNAME = '\xe9'\ndef scale(): return 2\n")
    (user.folder / "broken.py").write_bytes(b"NAME = '\xe9'\n")
    good = user.start(good_with("latin", "latin.scale()"))
    await asyncio.wait_for(user.lens(good), PATIENCE)
    user.close(good)
    (problem,) = await user.told(good_with("broken", "len(broken.NAME)"))
    assert "broken.py" in problem and "can't decode byte 0xe9" in problem
    text = await user.document(f"fx-lsp:{user.folder}/broken.py/f.forward.py")
    assert "valid Unicode" in text or "no function" in text
    await user.traces()


async def test_positions_beyond_the_end(user: User):
    uri = user.start(GOOD)
    await asyncio.wait_for(user.lens(uri), PATIENCE)
    for line, character in ((1, 9999), (9999, 0), (2**31 - 1, 2**31 - 1)):
        await user.hover(uri, line, character)
    end = types.Position(2**31 - 1, 2**31 - 1)
    user.change(uri, 2, "\ndef g(y: torch.Tensor):\n    return torch.tanh(y)\n", types.Range(end, end))
    await user.hovers(uri, 4, 4, "def g(y: ~f32")
    user.close(uri)


async def test_surrogate_pairs_before_the_cursor(user: User):
    line = "    return '🔥🔥' and torch.mm(x, x)\n"
    uri = user.start(f"import torch\n# fx: x=f32[4, 8]\ndef f(x: torch.Tensor):\n{line}")
    await user.until(lambda: user.client.diagnostics.get(uri), PATIENCE)
    (problem,) = user.client.diagnostics[uri]
    start = len(line[: line.index("torch.mm")].encode("utf-16-le")) // 2
    assert (problem.range.start, problem.range.end) == (types.Position(3, start), types.Position(3, start + 14))
    assert "f32[4, 8]" in problem.message
    place = types.Position(3, start + 12)
    user.change(uri, 2, "x.T", types.Range(place, types.Position(3, start + 13)))
    await asyncio.wait_for(user.lens(uri), PATIENCE)
    assert "mm" in str(await user.hover(uri, 3, start + 7))
    user.close(uri)


async def test_a_hundred_changes_in_a_second(user: User):
    uri = user.start("import torch\ndef f(x: torch.Tensor):\n    return torch.relu(x) * 0\n")
    for version in range(2, 102):
        user.change(uri, version, f"import torch\ndef f(x: torch.Tensor):\n    return torch.relu(x) * {version}\n")
        await asyncio.sleep(0.01)
    await asyncio.wait_for(user.lens(uri), PATIENCE)
    await user.until(lambda: user.statuses[-1].quiescent, PATIENCE)
    view = await user.document(f"fx-lsp:{uri.removeprefix('file://')}/f.forward.py")
    assert "101" in view
    user.close(uri)


async def test_a_cancelled_request_ends_the_tracer(one: User):
    await one.traces()
    (one.folder / "slow.py").write_text(SLOW)
    asked = asyncio.ensure_future(one.document(f"fx-lsp:{one.folder}/slow.py/f.forward.py"))
    await one.until(one.processes.tracers, PATIENCE)
    pending = next(i for i, future in one.client.protocol._request_futures.items() if not future.done())
    one.client.protocol.notify("$/cancelRequest", types.CancelParams(id=pending))
    with pytest.raises((JsonRpcException, asyncio.CancelledError)):
        await asked
    await one.until(lambda: not one.processes.tracers(), PATIENCE)
    await one.traces()


async def test_a_cancelled_progress_ends_the_tracer(one: User):
    await one.traces()
    uri = one.start(SLOW)
    await one.until(one.processes.tracers, PATIENCE)
    token = await one.until(one.progress, PATIENCE)
    one.client.window_work_done_progress_cancel(types.WorkDoneProgressCancelParams(token=token))
    await one.until(lambda: not one.processes.tracers(), PATIENCE)
    await one.until(lambda: one.statuses[-1].quiescent, PATIENCE)
    assert await one.titles(uri) == []
    one.close(uri)
    await one.traces()


async def test_no_torch_in_the_interpreter(tmp_path: Path):
    bare = await without_torch(tmp_path)
    async with started(tmp_path, options={"interpreter": bare}) as user:
        (problem,) = await user.told("import os\n" + GOOD)
        assert problem.startswith("2: ") and problem.endswith(
            "has no torch. Install torch into it, or set fx-lsp.interpreter to the Python that has your project's "
            "packages (--python in a terminal)."
        )
        assert (user.statuses[-1].health, user.statuses[-1].quiescent) == ("error", True)
        assert "has no torch" in user.statuses[-1].message


async def test_a_wrong_interpreter_path_and_then_the_right_one(tmp_path: Path):
    configuration = {**options(), "interpreter": "/nowhere/bin/python"}
    async with started(tmp_path, options=None, configuration=configuration) as user:
        uri = user.start(GOOD)
        await user.until(lambda: user.client.diagnostics.get(uri), PATIENCE)
        (problem,) = user.client.diagnostics[uri]
        assert (problem.range.start.line, problem.message) == (
            0,
            "there is no Python interpreter at /nowhere/bin/python. Set fx-lsp.interpreter to the Python that has your "
            "project's packages.",
        )
        assert user.statuses[-1].health == "error"
        user.client.set_configuration({"fx-lsp": options()})
        user.client.workspace_did_change_configuration(types.DidChangeConfigurationParams(settings=None))
        await asyncio.wait_for(user.lens(uri), PATIENCE)
        await user.until(lambda: user.statuses[-1].health == "ok", PATIENCE)
        assert not user.client.diagnostics[uri]


async def test_two_workspaces_with_their_own_interpreters(tmp_path: Path):
    bare = await without_torch(tmp_path)
    for name, python in (("one", warm_python()), ("two", bare)):
        folder = tmp_path / name / ".venv" / "bin"
        folder.mkdir(parents=True)
        (folder / "python").write_text(f'#!/bin/sh\nexec {python} "$@"\n')
        (folder / "python").chmod(0o755)
    limits = {"limits": options()["limits"]}
    env = {"VIRTUAL_ENV": "", "CONDA_PREFIX": ""}
    async with started(tmp_path, options=limits, folders=["one", "two"], extra_env=env) as user:
        good, bad = user.open("one/m.py", GOOD), user.open("two/m.py", GOOD)
        await user.until(lambda: user.client.diagnostics.get(bad), PATIENCE)
        assert "has no torch" in user.client.diagnostics[bad][0].message
        await asyncio.wait_for(user.lens(good), PATIENCE)
        assert not user.client.diagnostics.get(good)


async def test_a_changed_or_new_file_on_disk_is_noticed(user: User):
    uri = user.start(good_with("lately", "lately.SCALE"))
    await user.until(lambda: user.client.diagnostics.get(uri), PATIENCE)
    assert "`lately` is not installed" in user.client.diagnostics[uri][0].message
    helper = user.folder / "lately.py"
    for scale, change in ((3, types.FileChangeType.Created), (4, types.FileChangeType.Changed)):
        helper.write_text(f"SCALE = {scale}\n")
        changes = [types.FileEvent(uri=helper.as_uri(), type=change)]
        user.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams(changes=changes))
        await user.hovers(uri, 2, 4, f"relu, {scale})")
    helper.write_text("SCALE = 55\n")
    document = types.TextDocumentIdentifier(uri=uri)
    user.client.text_document_did_save(types.DidSaveTextDocumentParams(text_document=document))
    await user.hovers(uri, 2, 4, "relu, 55)")
    user.close(uri)


async def test_files_that_the_client_watches_refresh_what_imports_them(user: User):
    user.write("deep.py", "SCALE = 3\n")
    user.write("near.py", "from deep import SCALE\n")
    uris = [user.start(good_with("near", "near.SCALE")), user.start(good_with("deep", "deep.SCALE"))]
    for scale in (3, 4):
        user.write("deep.py", f"SCALE = {scale}\n")
        for uri in uris:
            await user.hovers(uri, 2, 4, f"relu, {scale})")
    user.refreshed.clear()
    user.write("deep.py", None)
    for uri in uris:
        await user.until(lambda uri=uri: user.client.diagnostics.get(uri), PATIENCE)
    await user.until(lambda: types.WORKSPACE_CODE_LENS_REFRESH in user.refreshed)
    for uri in uris:
        assert "`deep` is not installed" in user.client.diagnostics[uri][0].message
        user.close(uri)


async def test_a_full_disk_keeps_no_traces_and_stops_nothing(user: User):
    resource = pytest.importorskip("resource")
    server = user.client._server
    assert server is not None
    limits = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    try:
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (0, limits[1]))
        await user.traces()
        await user.until(lambda: user.statuses[-1].health == "warning", PATIENCE)
        assert user.statuses[-1].message.startswith("traces are not stored on disk in this session: ")
        await user.traces()
    finally:
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, limits)
    await user.command("fxLsp.restart")
    await user.traces()
    await user.until(lambda: user.statuses[-1].quiescent and user.statuses[-1].health == "ok", PATIENCE)


async def test_a_cache_that_cannot_be_written_is_a_warning(tmp_path: Path):
    (tmp_path / "file").write_text("")
    broken = {**options(), "cache": {"path": str(tmp_path / "file" / "traces.sqlite3")}}
    async with started(tmp_path, options=broken) as user:
        await user.traces()
        await user.until(lambda: user.statuses[-1].quiescent and user.statuses[-1].health == "warning", PATIENCE)
        assert user.statuses[-1].message.startswith("traces are not stored on disk in this session: ")
        await user.command("fxLsp.clearCache")
        await user.traces()


async def test_a_locked_cache_holds_nothing_up(tmp_path: Path):
    path = tmp_path / "traces.sqlite3"
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    async with started(tmp_path, options={**options(), "cache": {"path": str(path)}}) as user:
        await user.traces()
        other.execute("ROLLBACK")
        await user.command("fxLsp.clearCache")
        await user.traces()
    other.close()


async def test_a_request_after_shutdown(tmp_path: Path):
    async with wire(SERVE) as server:
        await server.initialize()
        server.send("shutdown", msg_id=1)
        assert (await server.answer(1))["result"] is None
        place = {"textDocument": {"uri": "file:///m.py"}, "position": {"line": 0, "character": 0}}
        server.send("textDocument/hover", place, msg_id=2)
        error = (await server.answer(2))["error"]
        assert (error["code"], error["message"]) == (-32600, "the server is shutting down")
        server.send("exit")
        assert await asyncio.wait_for(server.process.wait(), PATIENCE) == 0


async def test_a_shutdown_in_the_middle_of_a_trace_leaves_nothing(tmp_path: Path):
    async with started(tmp_path, options=options(sys.executable)) as user:
        user.start(SLOW)
        await user.until(user.processes.tracers, PATIENCE)


async def without_torch(folder: Path) -> str:
    """Another Python that works and has no torch: one on PATH, else a new environment."""
    check = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is not None)"
    for python in (*map(shutil.which, ("python3.13", "python3.12", "python3.10")), str(folder / "bare/bin/python")):
        if python is not None:
            if python.startswith(str(folder)):
                venv.create(folder / "bare")
            process = await asyncio.create_subprocess_exec(python, "-c", check, stderr=asyncio.subprocess.DEVNULL)
            if await process.wait() == 0:
                return python
    return pytest.skip("every Python here has torch")
