"""Compile kernels in processes that run nothing else: a process with code of a workspace may start no assembler.

The zygote forks a compiler when a process below it asks over a socket that all of them inherit.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from fx_lsp.sandbox import confinement

if TYPE_CHECKING:
    from fx_lsp.codegen.inspect.assembly import Streams


MAX_COMPILERS = 4
"""The most compilers at once for a fork of the zygote and all that it has started; a trace needs one."""


@dataclass
class CompilerSocket:
    """The socket by which compilers are asked for: the zygote's end, and that of the processes below it."""

    ends: list[socket.socket] = field(default_factory=list[socket.socket])

    def open(self, private: int) -> socket.socket:
        """Open the socket, its end for processes below at a descriptor from `private` on; return the zygote's end."""
        import fcntl

        ours, theirs = socket.socketpair()
        moved = socket.socket(fileno=fcntl.fcntl(theirs.fileno(), fcntl.F_DUPFD_CLOEXEC, private))
        theirs.close()
        self.ends = [ours, moved]
        return ours

    def accept(self) -> socket.socket | None:
        """Return the socket of a process that asks for a compiler, in the zygote; None if it has sent anything else."""
        _, descriptors, _, _ = socket.recv_fds(self.ends[0], 1, 1)
        for descriptor in descriptors:
            try:
                return socket.socket(fileno=descriptor)
            except OSError:
                os.close(descriptor)
        return None

    def connect(self) -> Streams:
        """Return streams to and from a new compiler, in a process below the zygote."""
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self.ends[1], [b"c"], [theirs.fileno()])
        return ours.makefile("w", encoding="utf-8"), ours.makefile("r", encoding="utf-8")


requests = CompilerSocket()


def creator_of(end: socket.socket) -> int:
    """Return the process that has made a pair of sockets, as the kernel noted it then (Linux; else 0)."""
    if sys.platform != "linux":
        return 0
    return struct.unpack("3i", end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))[0]


def prepare() -> None:
    """Have kernels compiled in another process, if this one is about to be confined: that must exist before."""
    if not confinement.is_confined():
        return
    from fx_lsp.codegen.inspect.assembly import compile_with, start_compiler

    if requests.ends:
        compile_with(requests.connect)
    else:
        streams = start_compiler()
        compile_with(lambda: streams)


def compile_kernels(end: socket.socket) -> NoReturn:
    """Compile what is asked for over a socket, in this process, which ends with it."""
    try:
        confinement.enter((), assembles=True)
        from fx_lsp.codegen.inspect.assembly import answer

        answer(end.makefile("r", encoding="utf-8"), end.makefile("w", encoding="utf-8"))
    finally:
        os._exit(0)
