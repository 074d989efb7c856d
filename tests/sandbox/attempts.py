"""Ways to write, to start a program, and to reach the network, as code of a workspace could try them.

Each attempt is a function of where it is tried, and raises or returns as it happens. Files are judged from outside.
What starts a program returns whether that ran.
"""

from __future__ import annotations

import asyncio
import contextlib
import csv
import ctypes
import ctypes.util
import dbm.dumb
import fcntl
import http.client
import io
import logging
import mmap
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import pickle
import platform
import pty
import shelve
import shutil
import signal
import socket
import sqlite3
import stat
import struct
import subprocess
import sys
import tarfile
import tempfile
import threading
import urllib.request
import webbrowser
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

ARM = os.uname().machine == "aarch64"
LIBC: Any = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100
AT_EMPTY_PATH = 0x1000


@dataclass(frozen=True)
class Place:
    """Where things are tried: a `folder` with `kept.txt`, `tool.sh` and `full/kept.txt`, a `port` of TCP and of UDP, a
    socket in the file system `unix`, and one named `abstract`.
    """

    folder: str
    port: int = 0
    unix: str = ""
    abstract: str = ""

    @property
    def kept(self) -> str:
        return os.path.join(self.folder, "kept.txt")

    @property
    def new(self) -> str:
        return os.path.join(self.folder, "new.txt")


Attempt = Callable[[Place], Any]
WRITES: dict[str, Attempt] = {}
PROGRAMS: dict[str, Attempt] = {}
CONNECTIONS: dict[str, Attempt] = {}


def attempts(kind: dict[str, Attempt]) -> Callable[[Attempt], Attempt]:
    def note(attempt: Attempt) -> Attempt:
        kind[attempt.__name__.strip("_")] = attempt
        return attempt

    return note


def run(kind: dict[str, Attempt], place: Place) -> list[str]:
    """Try all of a kind, each whatever became of the others; return the names of those that returned a true value."""
    done: list[str] = []
    for name, attempt in kind.items():
        with contextlib.suppress(BaseException):
            if attempt(place):
                done.append(name)
    return done


def call(number: int, arm: int, *arguments: Any) -> int:
    return LIBC.syscall(ctypes.c_long(arm if ARM else number), *arguments)


# Files that are opened.

for mode in ("w", "a", "r+", "x", "wb", "ab", "r+b", "w+"):
    WRITES[f"open {mode}"] = lambda place, mode=mode: open(place.new if "x" in mode else place.kept, mode).write(
        b"!" if "b" in mode else "!"  # type: ignore[arg-type]
    )
for flags in ("O_WRONLY", "O_RDWR", "O_WRONLY|O_APPEND", "O_WRONLY|O_TRUNC", "O_RDONLY|O_TRUNC"):
    number = 0
    for flag in flags.split("|"):
        number |= getattr(os, flag)
    WRITES[f"os.open {flags}"] = lambda place, flags=number: os.write(os.open(place.kept, flags), b"!")
WRITES["os.open O_CREAT"] = lambda place: os.open(place.new, os.O_CREAT | os.O_RDONLY)
WRITES["os.open O_TMPFILE"] = lambda place: os.link(
    f"/proc/self/fd/{os.open(place.folder, os.O_TMPFILE | os.O_RDWR)}", place.new, follow_symlinks=True
)
WRITES["io.FileIO"] = lambda place: io.FileIO(place.kept, "w").write(b"!")
WRITES["os.fdopen"] = lambda place: os.fdopen(os.open(place.new, os.O_WRONLY | os.O_CREAT), "w").write("!")


@attempts(WRITES)
def relative_to_a_folder(place: Place) -> None:
    folder = os.open(place.folder, os.O_RDONLY)
    os.write(os.open("kept.txt", os.O_WRONLY, dir_fd=folder), b"!")


@attempts(WRITES)
def through_the_working_directory(place: Place) -> None:
    os.chdir(place.folder)
    open("kept.txt", "w").write("!")


@attempts(WRITES)
def through_proc_self_fd(place: Place) -> None:
    descriptor = os.open(place.kept, os.O_RDONLY)
    open(f"/proc/self/fd/{descriptor}", "w").write("!")


WRITES["through proc self root"] = lambda place: open("/proc/self/root" + place.kept, "w").write("!")


@attempts(WRITES)
def through_proc_thread_self_cwd(place: Place) -> None:
    os.chdir(place.folder)
    open("/proc/thread-self/cwd/kept.txt", "w").write("!")


@attempts(WRITES)
def through_a_symbolic_link(place: Place) -> None:
    link = os.path.join(tempfile.mkdtemp(), "link")
    os.symlink(place.kept, link)
    open(link, "w").write("!")


@attempts(WRITES)
def through_a_linked_folder(place: Place) -> None:
    link = os.path.join(tempfile.mkdtemp(), "link")
    os.symlink(place.folder, link)
    open(os.path.join(link, "new.txt"), "w").write("!")


@attempts(WRITES)
def through_a_hard_link(place: Place) -> None:
    link = os.path.join(tempfile.mkdtemp(), "link")
    os.link(place.kept, link)
    open(link, "w").write("!")


@attempts(WRITES)
def through_a_hard_link_of_a_descriptor(place: Place) -> None:
    link = os.path.join(tempfile.mkdtemp(), "link")
    os.link(f"/proc/self/fd/{os.open(place.kept, os.O_RDONLY)}", link, follow_symlinks=True)
    open(link, "w").write("!")


@attempts(WRITES)
def opened_again_with_flags(place: Place) -> None:
    descriptor = os.open(place.kept, os.O_RDONLY)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_RDWR)
    os.write(descriptor, b"!")


@attempts(WRITES)
def mapped(place: Place) -> None:
    descriptor = os.open(place.kept, os.O_RDONLY)
    mmap.mmap(descriptor, 1, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)[0] = 33


@attempts(WRITES)
def mapped_for_reading_then_protected(place: Place) -> None:
    descriptor = os.open(place.kept, os.O_RDONLY)
    LIBC.mmap.restype = ctypes.c_void_p
    address = LIBC.mmap(None, ctypes.c_size_t(4096), 1, 1, descriptor, 0)
    if LIBC.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(4096), 3) == 0:
        ctypes.memset(address, 33, 1)


# Files that are made, moved and removed.

WRITES["os.mkdir"] = lambda place: os.mkdir(os.path.join(place.folder, "made"))
WRITES["os.makedirs"] = lambda place: os.makedirs(os.path.join(place.folder, "made", "deep"))
WRITES["os.mkfifo"] = lambda place: os.mkfifo(place.new)
WRITES["os.mknod"] = lambda place: os.mknod(place.new, stat.S_IFREG | 0o600)
WRITES["os.mknod of a device"] = lambda place: os.mknod(place.new, stat.S_IFCHR | 0o600, os.makedev(1, 3))
WRITES["os.symlink"] = lambda place: os.symlink("/etc", place.new)
WRITES["os.link"] = lambda place: os.link(place.kept, place.new)
WRITES["os.remove"] = lambda place: os.remove(place.kept)
WRITES["os.unlink of a link's target"] = lambda place: pathlib.Path(place.kept).unlink()
WRITES["os.rmdir"] = lambda place: os.rmdir(os.path.join(place.folder, "empty"))
WRITES["os.rename"] = lambda place: os.rename(place.kept, place.new)
WRITES["os.rename of a folder"] = lambda place: os.rename(os.path.join(place.folder, "full"), place.new)
WRITES["os.replace out"] = lambda place: os.replace(place.kept, os.path.join(tempfile.mkdtemp(), "taken"))
WRITES["shutil.rmtree"] = lambda place: shutil.rmtree(os.path.join(place.folder, "full"))
WRITES["shutil.copy"] = lambda place: shutil.copy("/etc/hostname", place.new)
WRITES["shutil.copyfile"] = lambda place: shutil.copyfile("/etc/hostname", place.kept)
WRITES["shutil.move"] = lambda place: shutil.move(place.kept, place.new)
WRITES["shutil.copytree"] = lambda place: shutil.copytree(os.path.join(place.folder, "full"), place.new)
WRITES["os.removedirs"] = lambda place: os.removedirs(os.path.join(place.folder, "empty"))
WRITES["tempfile"] = lambda place: tempfile.NamedTemporaryFile(dir=place.folder, delete=False).write(b"!")
WRITES["unix socket"] = lambda place: socket.socket(socket.AF_UNIX).bind(place.new)


@attempts(WRITES)
def replaced_by_a_temporary_file(place: Place) -> None:
    descriptor, path = tempfile.mkstemp()
    os.write(descriptor, b"!")
    os.replace(path, place.kept)


@attempts(WRITES)
def exchanged(place: Place) -> None:
    _, path = tempfile.mkstemp()
    call(316, 276, AT_FDCWD, path.encode(), AT_FDCWD, place.kept.encode(), 2)


WRITES["truncated"] = lambda place: os.truncate(place.kept, 0)
WRITES["truncated by descriptor"] = lambda place: os.ftruncate(os.open(place.kept, os.O_RDONLY), 0)
WRITES["allocated"] = lambda place: os.posix_fallocate(os.open(place.kept, os.O_RDONLY), 0, 100)


@attempts(WRITES)
def copied_by_the_kernel(place: Place) -> None:
    os.copy_file_range(os.open("/etc/hostname", os.O_RDONLY), os.open(place.kept, os.O_RDONLY), 10)


@attempts(WRITES)
def sent_to_a_file(place: Place) -> None:
    os.sendfile(os.open(place.new, os.O_WRONLY | os.O_CREAT), os.open("/etc/hostname", os.O_RDONLY), 0, 10)


WRITES["written at a position"] = lambda place: os.pwrite(os.open(place.kept, os.O_RDONLY), b"!", 0)
# What belongs to files.

WRITES["os.chmod"] = lambda place: os.chmod(place.kept, 0o777)
WRITES["os.fchmod"] = lambda place: os.fchmod(os.open(place.kept, os.O_RDONLY), 0o777)
WRITES["os.chown"] = lambda place: os.chown(place.kept, 65534, 65534)
WRITES["os.lchown"] = lambda place: os.lchown(place.kept, 65534, 65534)
WRITES["os.utime"] = lambda place: os.utime(place.kept, (0, 0))
WRITES["os.utime of a descriptor"] = lambda place: os.utime(os.open(place.kept, os.O_RDONLY), (0, 0))
WRITES["os.setxattr"] = lambda place: os.setxattr(place.kept, "user.tried", b"!")
WRITES["pathlib.touch"] = lambda place: pathlib.Path(place.kept).touch()


@attempts(WRITES)
def flags_of_a_file(place: Place) -> None:
    fcntl.ioctl(os.open(place.kept, os.O_RDONLY), 0x40086602, struct.pack("l", 0x10))  # immutable


# The C library and the kernel.

WRITES["libc open"] = lambda place: LIBC.write(LIBC.open(place.kept.encode(), os.O_WRONLY), b"!", 1)
WRITES["libc creat"] = lambda place: LIBC.creat(place.new.encode(), 0o600)
WRITES["libc fopen"] = lambda place: LIBC.fopen(place.new.encode(), b"w")
WRITES["libc truncate"] = lambda place: LIBC.truncate(place.kept.encode(), ctypes.c_long(0))
WRITES["libc unlink"] = lambda place: LIBC.unlink(place.kept.encode())
WRITES["libc rename"] = lambda place: LIBC.rename(place.kept.encode(), place.new.encode())
WRITES["libc mkdir"] = lambda place: LIBC.mkdir(place.new.encode(), 0o700)
WRITES["libc chmod"] = lambda place: LIBC.chmod(place.kept.encode(), 0o777)
WRITES["libc link"] = lambda place: LIBC.link(place.kept.encode(), place.new.encode())
WRITES["libc symlink"] = lambda place: LIBC.symlink(b"/etc", place.new.encode())
WRITES["libc setxattr"] = lambda place: LIBC.setxattr(place.kept.encode(), b"user.tried", b"!", 1, 0)
WRITES["system call openat"] = lambda place: call(257, 56, AT_FDCWD, place.new.encode(), os.O_CREAT | os.O_WRONLY, 384)
WRITES["system call fchmodat2"] = lambda place: call(452, 452, AT_FDCWD, place.kept.encode(), 0o777, 0)


@attempts(WRITES)
def system_call_openat2(place: Place) -> None:
    how = struct.pack("QQQ", os.O_CREAT | os.O_WRONLY, 0o600, 0)
    call(437, 437, AT_FDCWD, place.new.encode(), how, len(how))


@attempts(WRITES)
def submitted_to_a_ring(place: Place) -> None:
    assert call(425, 425, 4, ctypes.create_string_buffer(120)) < 0, "there is a ring to submit writes to"
    raise OSError("no ring")


@attempts(WRITES)
def mounted_over(place: Place) -> None:
    LIBC.unshare(0x10020000)
    LIBC.mount(b"none", place.folder.encode(), b"tmpfs", 0, None)
    open(place.new, "w").write("!")


@attempts(WRITES)
def memory_of_the_parent(place: Place) -> None:
    with open(f"/proc/{os.getppid()}/mem", "r+b") as memory:
        memory.seek(os.stat(sys.executable).st_size)
    open(place.new, "w").write("!")


@attempts(WRITES)
def by_a_fork(place: Place) -> None:
    if os.fork() == 0:
        try:
            open(place.kept, "w").write("!")
        finally:
            os._exit(0)
    os.wait()


@attempts(WRITES)
def by_a_native_fork(place: Place) -> None:
    child = LIBC.fork()
    if child == 0:
        LIBC.truncate(place.kept.encode(), ctypes.c_long(0))
        os._exit(0)
    if child > 0:
        os.waitpid(child, 0)


@attempts(WRITES)
def by_a_thread(place: Place) -> None:
    thread = threading.Thread(target=lambda: LIBC.unlink(place.kept.encode()))
    thread.start()
    thread.join()


@attempts(WRITES)
def by_another_process(place: Place) -> None:
    process = multiprocessing.get_context("fork").Process(target=os.remove, args=(place.kept,))
    process.start()
    process.join(5)


WRITES["by dd"] = lambda place: subprocess.run(["dd", "if=/etc/hostname", f"of={place.new}"], check=False)
# Libraries.


@attempts(WRITES)
def a_database(place: Place) -> None:
    with sqlite3.connect(place.new) as connection:
        connection.execute("CREATE TABLE t (x)")


WRITES["a shelf"] = lambda place: shelve.open(place.new).close()
WRITES["a dbm"] = lambda place: dbm.dumb.open(place.new, "c").close()
WRITES["a zip"] = lambda place: zipfile.ZipFile(place.new, "w").close()
WRITES["a tar"] = lambda place: tarfile.open(place.new, "w").close()
WRITES["a log"] = lambda place: logging.getLogger("tried").addHandler(logging.FileHandler(place.new))
WRITES["a table"] = lambda place: csv.writer(pathlib.Path(place.new).open("w")).writerow([1])
WRITES["a pickle"] = lambda place: pickle.dump(1, pathlib.Path(place.new).open("wb"))


@attempts(WRITES)
def a_trace_of_an_interpreter(place: Place) -> None:
    import faulthandler

    faulthandler.dump_traceback(open(place.new, "w"))


# Programs.

TOUCH = "/usr/bin/env"
SHELL = "/bin/sh"


def status_of(pid: int) -> bool:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


PROGRAMS["subprocess.run"] = lambda place: subprocess.run([TOUCH], capture_output=True, check=True)
PROGRAMS["subprocess shell"] = lambda place: subprocess.run("true", shell=True, check=True)
PROGRAMS["subprocess of this Python"] = lambda place: subprocess.run([sys.executable, "-c", ""], check=True)
PROGRAMS["check_output"] = lambda place: subprocess.check_output(["uname"])
PROGRAMS["Popen in a session"] = lambda place: subprocess.Popen([TOUCH], start_new_session=True).wait() == 0
PROGRAMS["Popen with a function before"] = lambda place: subprocess.Popen([TOUCH], preexec_fn=int).wait() == 0
PROGRAMS["os.system"] = lambda place: os.system("true") == 0
PROGRAMS["os.popen"] = lambda place: os.popen("echo ran").read()
PROGRAMS["os.posix_spawn"] = lambda place: status_of(os.posix_spawn(TOUCH, [TOUCH], {}))
PROGRAMS["os.posix_spawnp"] = lambda place: status_of(os.posix_spawnp("true", ["true"], {}))
PROGRAMS["os.spawnv"] = lambda place: os.spawnv(os.P_WAIT, TOUCH, [TOUCH]) == 0
PROGRAMS["os.spawnlp"] = lambda place: os.spawnlp(os.P_WAIT, "true", "true") == 0
PROGRAMS["pty.spawn"] = lambda place: pty.spawn(["true"]) == 0
PROGRAMS["libc system"] = lambda place: LIBC.system(b"true") == 0
PROGRAMS["libc popen"] = lambda place: popened()
PROGRAMS["webbrowser"] = lambda place: webbrowser.get(f"{SHELL} -c true %s").open("x")
PROGRAMS["find_library"] = lambda place: ctypes.util.find_library("m")
PROGRAMS["a tool in the project"] = lambda place: subprocess.run([os.path.join(place.folder, "tool.sh")], check=True)
PROGRAMS["the dynamic loader"] = lambda place: subprocess.run([loader(), "/bin/true"], check=True)
PROGRAMS["/proc/self/exe"] = lambda place: subprocess.run(["/proc/self/exe", "-c", ""], check=True)


def popened() -> bool:
    LIBC.popen.restype = ctypes.c_void_p
    stream = LIBC.popen(b"true", b"r")
    return bool(stream) and LIBC.pclose(ctypes.c_void_p(stream)) == 0


def loader() -> str:
    return "/lib/ld-linux-aarch64.so.1" if ARM else "/lib64/ld-linux-x86-64.so.2"


def forked(replace: Callable[[], Any]) -> bool:
    """Whether what replaces a fork of this process has ended well: without a program it ends with 9."""
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            replace()
        os._exit(9)
    return status_of(child)


PROGRAMS["os.execv"] = lambda place: forked(lambda: os.execv(TOUCH, [TOUCH]))
PROGRAMS["os.execvpe"] = lambda place: forked(lambda: os.execvpe("true", ["true"], {}))
PROGRAMS["os.execve of a descriptor"] = lambda place: forked(
    lambda: os.execve(os.open("/bin/true", os.O_RDONLY), ["true"], {})
)
PROGRAMS["libc execl"] = lambda place: forked(lambda: LIBC.execl(b"/bin/true", b"true", None))


@attempts(PROGRAMS)
def libc_posix_spawn(place: Place) -> bool:
    pid, arguments = ctypes.c_int(), (ctypes.c_char_p * 2)(b"true", None)
    return LIBC.posix_spawn(ctypes.byref(pid), b"/bin/true", None, None, arguments, None) == 0 and status_of(pid.value)


@attempts(PROGRAMS)
def a_program_in_memory(place: Place) -> bool:
    descriptor = os.memfd_create("tried")
    os.write(descriptor, pathlib.Path("/bin/true").read_bytes())
    return forked(lambda: os.execve(descriptor, ["true"], {}))


@attempts(PROGRAMS)
def a_program_without_a_name(place: Place) -> bool:
    descriptor = os.open(tempfile.gettempdir(), os.O_TMPFILE | os.O_RDWR, 0o700)
    os.write(descriptor, pathlib.Path("/bin/true").read_bytes())
    program = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY)
    os.close(descriptor)
    return forked(lambda: os.execve(program, ["true"], {}))


@attempts(PROGRAMS)
def a_copied_program(place: Place) -> bool:
    path = shutil.copy("/bin/true", tempfile.mkdtemp())
    return subprocess.run([path], check=True).returncode == 0


@attempts(PROGRAMS)
def a_script_that_was_written(place: Place) -> bool:
    path = os.path.join(tempfile.mkdtemp(), "tried")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o700)
    os.write(descriptor, b"#!/bin/sh\n")
    os.close(descriptor)
    return subprocess.run([path], check=True).returncode == 0


@attempts(PROGRAMS)
def execveat(place: Place) -> bool:
    program = os.open("/bin/true", os.O_RDONLY)
    arguments = (ctypes.c_char_p * 2)(b"true", None)
    return forked(lambda: call(322, 281, program, b"", arguments, None, AT_EMPTY_PATH))


@attempts(PROGRAMS)
def a_spawned_process(place: Place) -> bool:
    process = multiprocessing.get_context("spawn").Process(target=int)
    process.start()
    process.join(5)
    return process.exitcode == 0


@attempts(PROGRAMS)
def of_a_loop(place: Place) -> bool:
    async def start() -> int:
        return await (await asyncio.create_subprocess_exec("true")).wait()

    return asyncio.run(start()) == 0


PROGRAMS["of platform"] = lambda place: bool(subprocess.check_output(["uname", "-p"])) and bool(platform.processor())
# Connections.


def connected(family: int, kind: int, address: Any) -> None:
    with socket.socket(family, kind) as end:
        end.connect(address)
        end.send(b"tried")


CONNECTIONS["TCP"] = lambda place: connected(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", place.port))
CONNECTIONS["TCP 6"] = lambda place: connected(socket.AF_INET6, socket.SOCK_STREAM, ("::1", place.port))
CONNECTIONS["UDP"] = lambda place: connected(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", place.port))
CONNECTIONS["unix"] = lambda place: connected(socket.AF_UNIX, socket.SOCK_STREAM, place.unix)
CONNECTIONS["abstract unix"] = lambda place: connected(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + place.abstract)
CONNECTIONS["create_connection"] = lambda place: socket.create_connection(("localhost", place.port), 2)
CONNECTIONS["urllib"] = lambda place: urllib.request.urlopen(f"http://127.0.0.1:{place.port}/", timeout=2)
CONNECTIONS["http"] = lambda place: http.client.HTTPConnection("127.0.0.1", place.port, timeout=2).connect()
CONNECTIONS["multiprocessing"] = lambda place: multiprocessing.connection.Client(place.unix)


@attempts(CONNECTIONS)
def sendto(place: Place) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.sendto(b"tried", ("127.0.0.1", place.port))


@attempts(CONNECTIONS)
def sendmsg(place: Place) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.sendmsg([b"tried"], [], 0, ("127.0.0.1", place.port))


@attempts(CONNECTIONS)
def fast_open(place: Place) -> None:
    with socket.socket() as end:
        end.sendto(b"tried", getattr(socket, "MSG_FASTOPEN", 0x20000000), ("127.0.0.1", place.port))


@attempts(CONNECTIONS)
def native(place: Place) -> None:
    end = LIBC.socket(2, 1, 0)
    LIBC.connect(
        end, struct.pack("=H", 2) + struct.pack("!H", place.port) + socket.inet_aton("127.0.0.1") + bytes(8), 16
    )


@attempts(CONNECTIONS)
def a_pair_that_is_connected_anew(place: Place) -> None:
    ours, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.connect(place.unix + ".datagrams")
    ours.send(b"tried")


@attempts(CONNECTIONS)
def a_pair_that_sends_elsewhere(place: Place) -> None:
    ours, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.sendmsg([b"tried"], [], 0, place.unix + ".datagrams")


@attempts(CONNECTIONS)
def of_a_loop_(place: Place) -> None:
    asyncio.run(asyncio.wait_for(asyncio.open_connection("127.0.0.1", place.port), 2))


@attempts(CONNECTIONS)
def a_store(place: Place) -> None:
    from datetime import timedelta

    import torch.distributed

    torch.distributed.TCPStore("127.0.0.1", place.port, timeout=timedelta(seconds=2))


@attempts(CONNECTIONS)
def of_the_parent(place: Place) -> None:
    handle = call(434, 434, os.getppid(), 0)
    for number in range(3, 20):
        descriptor = call(438, 438, handle, number, 0)
        if descriptor >= 0:
            os.write(descriptor, b"tried")


# Signals.


def signals(place: Place) -> None:
    """Try to end the process above."""
    for attempt in (
        lambda: os.kill(os.getppid(), signal.SIGKILL),
        lambda: LIBC.kill(os.getppid(), 9),
        lambda: signal.pidfd_send_signal(os.pidfd_open(os.getppid()), signal.SIGKILL),
    ):
        with contextlib.suppress(BaseException):
            attempt()
