"""Compile kernels in processes that run nothing else: a process with code of a workspace may start no assembler.

The zygote forks a compiler when a process below it asks over a socket, which its forks inherit: each process that the
zygote starts has one of its own, so that what code does to it costs no other.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from fx_lsp.sandbox import confinement

if TYPE_CHECKING:
    from fx_lsp.codegen.inspect.assembly import Streams


@dataclass
class CompilerSocket:
    """The end of a socket by which a process that the zygote has started, and its forks, ask for compilers."""

    end: socket.socket | None = None

    def use(self, end: socket.socket, private: int) -> None:
        """Ask over `end` from now on, at a descriptor from `private` on."""
        import fcntl

        self.end = socket.socket(fileno=fcntl.fcntl(end.fileno(), fcntl.F_DUPFD_CLOEXEC, private))
        end.close()

    def connect(self) -> Streams:
        """Return streams to and from a new compiler, in a process below the zygote."""
        assert self.end is not None
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self.end, [b"c"], [theirs.fileno()])
        return ours.makefile("w", encoding="utf-8"), ours.makefile("r", encoding="utf-8")


def accept(asking: socket.socket) -> socket.socket | None:
    """Return the socket that a process has sent which asks for a compiler, in the zygote; None for anything else."""
    with suppress(OSError):
        _, descriptors, _, _ = socket.recv_fds(asking, 1, 1)
        for descriptor in descriptors:
            try:
                return socket.socket(fileno=descriptor)
            except OSError:
                os.close(descriptor)
    return None


requests = CompilerSocket()


def prepare() -> None:
    """Have kernels compiled in another process, if this one is about to be confined: that must exist before."""
    if not confinement.is_confined():
        return
    from fx_lsp.codegen.inspect.assembly import compile_with, start_compiler

    if requests.end is not None:
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
