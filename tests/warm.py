"""An interpreter for tests of what starts one: its tracers are forked from a process that has torch already."""

from __future__ import annotations

import array
import atexit
import functools
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import fx_lsp
from fx_lsp.tracing.workers.launch import worker_environment

# Started like Python: what is to be a zygote is forked by the server at PATH, anything else is run as it is.
LAUNCHER = """\
#!{python} -IS
import json, os, socket, sys

words = sys.argv[1:]
if "zygote" not in words:
    os.execv("{python}", ["{python}", *words])
descriptors = [0, 1, 2, *(int(word.partition("=")[2]) for word in words if word.startswith("--control="))]
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
    server.connect("{path}")
    socket.send_fds(server, [json.dumps([words, os.getcwd(), dict(os.environ)]).encode()], descriptors)
    os._exit(int(server.recv(16) or 1))
"""


HIGH = 200
"""A descriptor beyond those that the launcher's process had."""


@functools.cache
def warm_python(package: Path = Path(fx_lsp.__file__).parents[1]) -> str:
    """The path of such an interpreter, one for all tests of this process; where there is no fork, Python as it is.

    `package` is the folder of the `fx_lsp` whose server starts it.
    """
    if sys.platform != "linux":
        return sys.executable
    folder = tempfile.TemporaryDirectory(prefix="fx-lsp-warm-")
    path, launcher = Path(folder.name) / "socket", Path(folder.name) / "python"
    launcher.write_text(LAUNCHER.format(python=sys.executable, path=path))
    launcher.chmod(0o755)
    server = subprocess.Popen(
        [sys.executable, "-X", "utf8", "-B", __file__, str(path)],
        env={**worker_environment(os.environ, folder.name), "PYTHONPATH": str(package)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    atexit.register(folder.cleanup)
    atexit.register(server.kill)
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    return str(launcher)


def serve(path: str) -> None:
    """Fork for whoever connects to `path`, until the tests have gone."""
    from fx_lsp.tracer.process.preload import import_torch, settle

    sys.path.remove(os.path.dirname(os.path.abspath(__file__)))
    sys.path.remove(os.environ["PYTHONPATH"])
    import_torch()
    settle()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen()
        print("ready", flush=True)
        while listener in select.select([listener, sys.stdin], [], [])[0]:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _ending(lambda connection=connection: _mind(connection))
            connection.close()


def _ending(work: Callable[[], None]) -> NoReturn:
    """Do all the work of a forked process."""
    try:
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _mind(connection: socket.socket) -> None:
    """Run what is asked for until it ends, or who asked for it does."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    descriptors = array.array("i")
    data, control, _, _ = connection.recvmsg(1 << 20, socket.CMSG_SPACE(8 * descriptors.itemsize))
    for _, _, content in control:
        descriptors.frombytes(content)
    pid = os.fork()
    if pid == 0:
        connection.close()
        _ending(lambda: _run(*json.loads(data), [*descriptors]))
    ended = os.pidfd_open(pid)
    if ended not in select.select([connection, ended], [], [])[0]:
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with suppress(OSError):
        connection.send(str(code if code >= 0 else 128 - code).encode())


def _run(words: list[str], folder: str, environment: dict[str, str], descriptors: list[int]) -> None:
    """Be the process that the launcher was started as."""
    (control,) = (int(word.partition("=")[2]) for word in words if word.startswith("--control="))
    kept = [os.dup2(found, HIGH + n) for n, found in enumerate(descriptors)]
    for found, place in zip(kept, (0, 1, 2, control), strict=True):
        os.dup2(found, place)
    os.closerange(3, control)
    os.closerange(control + 1, HIGH + len(kept))
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = words[words.index("zygote") - 1 :]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    serve(sys.argv[1])
