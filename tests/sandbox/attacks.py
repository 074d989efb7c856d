"""Attacks on other processes, on files of others, on what a user has in all, and by what is left, each of one line.

An attack is a function of its `Target`; it returns a true value if it has succeeded, and anything may be raised.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import resource
import select
import signal
import socket
import struct
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from attempts import LIBC, call


@dataclass(frozen=True)
class Target:
    """A process `pid` of the same user, a `folder` that is readable, a `secret` one that is not, and `ids` of System V:
    of a semaphore, a queue and a segment of memory.
    """

    pid: int
    folder: str
    secret: str
    ids: tuple[int, int, int]

    @property
    def kept(self) -> str:
        return os.path.join(self.folder, "kept.txt")


Attack = Callable[[Target], Any]
WORD, PAGE = ctypes.c_long(), mmap.PAGESIZE


def done(number: int, arm: int, *arguments: Any) -> bool:
    """Whether a system call by number has succeeded."""
    return call(number, arm, *arguments) >= 0


def filled(number: int, arm: int, *arguments: Any) -> bool:
    """Whether a system call has written something else over a place for results, which is its last argument."""
    place = (ctypes.c_long * 64)(*[77] * 64)
    call(number, arm, *arguments, ctypes.byref(place))
    return any(word != 77 for word in place)


def read_memory(pid: int, number: int, arm: int) -> bool:
    """Whether memory of a process is read, or written, at the place of a word that this one has there as well."""
    vector = (ctypes.c_void_p * 2)(ctypes.addressof(WORD), 8)
    return call(number, arm, pid, ctypes.byref(vector), ctypes.c_long(1), ctypes.byref(vector), ctypes.c_long(1), 0) > 0


def pidfd(pid: int) -> int:
    return call(434, 434, pid, 0)


def owned_pipe(pid: int) -> None:
    """Have a process signalled when a pipe is readable."""
    ends = os.pipe()
    fcntl.fcntl(ends[0], fcntl.F_SETOWN, pid)
    fcntl.fcntl(ends[0], 10, signal.SIGTERM)  # F_SETSIG
    fcntl.fcntl(ends[0], fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    os.write(ends[1], b"x")


def queued(pid: int, number: int, arm: int, *tasks: int) -> bool:
    information = struct.pack("iii", signal.SIGTERM, 0, -1) + bytes(116)
    return done(number, arm, *tasks, signal.SIGTERM, information)


PROCESSES: dict[str, Attack] = {
    "kill": lambda it: done(62, 129, it.pid, signal.SIGTERM),
    "kill of the group": lambda it: done(62, 129, -it.pid, signal.SIGTERM),
    "tkill": lambda it: done(200, 130, it.pid, signal.SIGTERM),
    "tgkill": lambda it: done(234, 131, it.pid, it.pid, signal.SIGSTOP),
    "rt_sigqueueinfo": lambda it: queued(it.pid, 129, 138, it.pid),
    "rt_tgsigqueueinfo": lambda it: queued(it.pid, 297, 240, it.pid, it.pid),
    "pidfd_send_signal": lambda it: done(424, 424, pidfd(it.pid), signal.SIGTERM, None, 0),
    "pidfd_getfd": lambda it: done(438, 438, pidfd(it.pid), 0, 0),
    "a signal of a pipe": lambda it: owned_pipe(it.pid),
    "ptrace attach": lambda it: done(101, 117, ctypes.c_long(16), ctypes.c_long(it.pid), None, None),
    "ptrace seize": lambda it: done(101, 117, ctypes.c_long(0x4206), ctypes.c_long(it.pid), None, None),
    "process_vm_readv": lambda it: read_memory(it.pid, 310, 270),
    "process_vm_writev": lambda it: read_memory(it.pid, 311, 271),
    "process_madvise": lambda it: done(440, 440, pidfd(it.pid), struct.pack("QQ", 0, PAGE), ctypes.c_long(1), 21, 0),
    "process_mrelease": lambda it: done(448, 448, pidfd(it.pid), 0),
    "kcmp": lambda it: done(312, 272, it.pid, os.getpid(), 1, 0, 0),
    "get_robust_list": lambda it: filled(274, 100, it.pid, ctypes.byref(ctypes.c_long())),
    "prlimit64, to know": lambda it: filled(302, 261, it.pid, resource.RLIMIT_NOFILE, None),
    "prlimit64, to set": lambda it: done(302, 261, it.pid, resource.RLIMIT_NOFILE, struct.pack("QQ", 3, 3), None),
    "move_pages": lambda it: filled(279, 239, it.pid, ctypes.c_long(1), (ctypes.c_long * 1)(0), None),
    "migrate_pages": lambda it: call(256, 238, it.pid, ctypes.c_long(1), bytes(8), bytes(8)) > 0,
    "perf_event_open": lambda it: done(298, 241, struct.pack("IIQ", 1, 112, 0) + bytes(96), it.pid, -1, -1, 0),
    "setpgid": lambda it: done(109, 154, it.pid, os.getpgid(0)),
    "setns": lambda it: done(308, 268, pidfd(it.pid), 0x20000),
    "setpriority": lambda it: os.setpriority(os.PRIO_PROCESS, it.pid, 19),
    "setpriority of the group": lambda it: os.setpriority(os.PRIO_PGRP, it.pid, 19),
    "setpriority of the user": lambda it: done(141, 140, 2, os.getuid(), 19),
    "ioprio_set": lambda it: call(251, 30, 1, it.pid, 3 << 13) > 0,
    "sched_setaffinity": lambda it: os.sched_setaffinity(it.pid, {min(os.sched_getaffinity(0))}),
    "sched_setscheduler": lambda it: os.sched_setscheduler(it.pid, os.SCHED_IDLE, os.sched_param(0)),
    "sched_setattr": lambda it: call(314, 274, it.pid, struct.pack("IIQiIQQQ", 48, 5, 0, 19, 0, 0, 0, 0), 0) > 0,
    "the memory, as a file": lambda it: os.open(f"/proc/{it.pid}/mem", os.O_RDONLY),
    "the oom score": lambda it: os.open(f"/proc/{it.pid}/oom_score_adj", os.O_WRONLY),
    "the environment": lambda it: os.open(f"/proc/{it.pid}/environ", os.O_RDONLY),
    "the descriptors": lambda it: os.readlink(f"/proc/{it.pid}/fd/0"),
}


def locked(path: str, lock: Callable[[int], Any]) -> bool:
    """Whether a file that was opened for reading is locked."""
    descriptor = os.open(path, os.O_RDONLY)
    with contextlib.suppress(OSError):
        lock(descriptor)
    with open(f"/proc/self/fdinfo/{descriptor}") as stream:
        return "lock:" in stream.read()


def watched(path: str) -> bool:
    """Whether the kernel says what happens to a file, also to one that is not readable."""
    return LIBC.inotify_add_watch(LIBC.inotify_init1(0), path.encode(), 0xFFF) >= 0


RECORD = struct.pack("hhqqi", fcntl.F_RDLCK, 0, 0, 0, 0)
LOCKS: dict[str, Attack] = {
    "flock": lambda it: locked(it.kept, lambda fd: fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)),
    "flock of a folder": lambda it: locked(it.folder, lambda fd: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)),
    "lockf": lambda it: locked(it.kept, lambda fd: fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)),
    "F_SETLK": lambda it: locked(it.kept, lambda fd: fcntl.fcntl(fd, fcntl.F_SETLK, RECORD)),
    "F_OFD_SETLK": lambda it: locked(it.kept, lambda fd: fcntl.fcntl(fd, 37, RECORD)),
    "F_OFD_SETLKW": lambda it: locked(it.kept, lambda fd: fcntl.fcntl(fd, 38, RECORD)),
    "F_SETLEASE": lambda it: locked(it.kept, lambda fd: fcntl.fcntl(fd, 1024, fcntl.F_RDLCK)),
    "F_NOTIFY": lambda it: fcntl.fcntl(os.open(it.folder, os.O_RDONLY), 1026, 0x80000003) == 0,
    "inotify": lambda it: watched(it.kept),
    "inotify of what is not readable": lambda it: watched(it.secret),
    "fanotify": lambda it: done(300, 262, 0, 0),
}


def count(make: Callable[[], Any], most: int) -> int:
    """How often something can be made until that fails; all of it is there at the same time."""
    made: list[Any] = []
    with contextlib.suppress(BaseException):
        while len(made) < most:
            result = make()
            if type(result) is int and result < 0:
                break
            made.append(result)
    for each in made:
        with contextlib.suppress(BaseException):
            os.close(each) if type(each) is int else each.close()
    return len(made)


def grown_pipe() -> int:
    end = os.pipe()[0]
    return end if fcntl.fcntl(end, 1031, 1 << 20) >= 1 << 20 else -1


def sleeping(wake: threading.Event) -> int:
    threading.Thread(target=wake.wait, daemon=True).start()
    return 1 << 20  # no descriptor


def native_fork() -> int:
    pid = LIBC.fork()
    return pid if pid else os._exit(0)


def threads() -> int:
    wake = threading.Event()
    started = count(lambda: sleeping(wake), 5000)
    wake.set()
    return started


def timer() -> int:
    event, number = struct.pack("qii", 0, signal.SIGUSR2, 0) + bytes(48), ctypes.c_int()
    return 1 << 20 if done(222, 107, 1, event, ctypes.byref(number)) else -1


def pending() -> int:
    """How many signals can wait for this process."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN})
    information = struct.pack("iii", signal.SIGRTMIN, 0, -1) + bytes(116)
    task = os.getpid(), threading.get_native_id()
    return count(lambda: 1 << 20 if done(297, 240, *task, signal.SIGRTMIN, information) else -1, 5000)


def queue(it: Target) -> bool:
    return LIBC.mq_open(b"/tried", os.O_CREAT | os.O_RDWR, 0o600, None) >= 0


def in_flight() -> int:
    """How many descriptors wait in sockets that nobody reads."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    return 100 * count(lambda: socket.send_fds(ours, [b"x"], [theirs.fileno()] * 100), 1000)


SUMS: dict[str, Attack] = {
    "processes": lambda it: os.fork() or os._exit(0),
    "processes of the C library": lambda it: native_fork() > 0,
    "threads": lambda it: threads() > 4500,
    "descriptors": lambda it: count(lambda: os.dup(0), 5000) > 4200,
    "limits that are raised": lambda it: resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 17, 1 << 17)) is None,
    "shared memory of POSIX": lambda it: os.open("/dev/shm/tried", os.O_CREAT | os.O_RDWR),
    "files of memory": lambda it: os.memfd_create("tried"),
    "secret memory": lambda it: done(447, 447, 0),
    "locked memory": lambda it: LIBC.mlock(ctypes.create_string_buffer(1 << 28), ctypes.c_size_t(1 << 28)) == 0,
    "shared anonymous memory": lambda it: count(lambda: mmap.mmap(-1, 1 << 28), 64) > 32,
    "pipes that are grown": lambda it: count(grown_pipe, 200) > 100,
    "descriptors in flight": lambda it: in_flight() > 5000,
    "keys": lambda it: done(248, 217, b"user", b"tried", b"x", ctypes.c_size_t(1), -4),
    "keyrings": lambda it: done(250, 219, 1, None),
    "timers": lambda it: count(timer, 2000) > 1000,
    "signals that wait": lambda it: pending() > 1000,
    "instances of inotify": lambda it: count(lambda: LIBC.inotify_init1(0), 200) > 100,
    "rings": lambda it: done(425, 425, 4, ctypes.create_string_buffer(120)),
    "programs in the kernel": lambda it: done(321, 280, 0, bytes(64), 64),
    "events of performance": lambda it: done(298, 241, struct.pack("IIQ", 1, 112, 0) + bytes(96), 0, -1, -1, 0),
    "faults of pages": lambda it: done(323, 282, 1),
}


EIGHT = ctypes.c_size_t(8)


def left(*parts: Any) -> str:
    return os.path.join(tempfile.gettempdir(), *parts)


def nested(folder: str) -> None:
    os.chdir(folder)
    for _ in range(2000):
        os.mkdir("d")
        os.chdir("d")


def daemon() -> None:
    """Start a process in a session of its own, twice forked."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            select.select([], [], [], 600)
        os._exit(0)


LEFTOVERS: dict[str, Attack] = {
    "a folder that nobody may enter": lambda it: os.makedirs(left("closed", "in")) or os.chmod(left("closed"), 0),
    "a folder made so": lambda it: os.mkdir(left("made closed"), 0),
    "a file that nobody may read": lambda it: os.close(os.open(left("unreadable"), os.O_CREAT, 0)),
    "a name that is no text": lambda it: os.mkdir(os.fsencode(left()) + b"/\xff\n\x1b[2J"),
    "a name that is long": lambda it: os.mkdir(left("n" * 255)),
    "a name of an option": lambda it: os.mkdir(left("-rf")),
    "a fifo": lambda it: os.mkfifo(left("fifo")),
    "a link to all": lambda it: os.symlink("/", left("root")),
    "a link to the project": lambda it: os.symlink(it.folder, left("project")),
    "a link to itself": lambda it: os.symlink(left("loop"), left("loop")),
    "many links of a file": lambda it: [os.link(left("unreadable"), left(f"link{n}")) for n in range(100)][:0],
    "a sparse file": lambda it: os.truncate(os.open(left("sparse"), os.O_CREAT | os.O_RDWR), 1 << 29),
    "an immutable file": lambda it: (
        fcntl.ioctl(os.open(left("f"), os.O_CREAT), 0x40086602, struct.pack("l", 0x30)) == 0
    ),
    "folders that are deep": lambda it: nested(tempfile.mkdtemp()),
    "a socket": lambda it: socket.socket(socket.AF_UNIX).bind(left("socket")),
    "a process of its own": lambda it: daemon(),
    "a timer of its own": lambda it: signal.setitimer(signal.ITIMER_REAL, 500)[:0],
    "a semaphore of System V": lambda it: done(64, 190, 0, 1, 0o1600),
    "memory of System V": lambda it: done(29, 194, 0, ctypes.c_size_t(4096), 0o1600),
    "a queue of System V": lambda it: done(68, 186, 0, 0o1600),
    "a queue of POSIX": queue,
    "a semaphore of POSIX": lambda it: os.open("/dev/shm/sem.tried", os.O_CREAT | os.O_RDWR),
}

SYSTEM_V: dict[str, Attack] = {
    "the end of a semaphore of another": lambda it: done(66, 191, it.ids[0], 0, 0),
    "a value of a semaphore of another": lambda it: done(66, 191, it.ids[0], 0, 16, ctypes.c_long(5)),
    "an operation on one": lambda it: done(65, 193, it.ids[0], struct.pack("Hhh", 0, 1, 0), ctypes.c_size_t(1)),
    "the end of a queue of another": lambda it: done(71, 187, it.ids[1], 0, None),
    "a message to a queue of another": lambda it: done(
        69, 189, it.ids[1], bytes([1, *[0] * 8]), ctypes.c_size_t(1), 2048
    ),
    "a message of a queue of another": lambda it: done(70, 188, it.ids[1], bytes(64), EIGHT, ctypes.c_long(0), 2048),
    "the end of memory of another": lambda it: done(31, 195, it.ids[2], 0, None),
    "memory of another": lambda it: done(30, 196, it.ids[2], None, 0),
}

KINDS = {"processes": PROCESSES, "locks": LOCKS, "sums": SUMS, "leftovers": LEFTOVERS, "System V": SYSTEM_V}


def run(kind: str, target: Target) -> list[str]:
    """Try all attacks of a kind, each whatever became of the others; return the names of those that succeeded."""
    succeeded: list[str] = []
    for name, attack in KINDS[kind].items():
        with contextlib.suppress(BaseException):
            if attack(target):
                succeeded.append(name)
    return succeeded
