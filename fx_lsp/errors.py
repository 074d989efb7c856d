"""Exceptions of fx-lsp. They mean a bug of fx-lsp or a dead process, never a user's mistake.
    FxLspError
    ├── ProtocolError        a frame or a message between two of our processes is malformed
    ├── WorkerError          a process did not answer
    │   ├── WorkerDied       it ended: signal or exit code, with its printed output
    │   │   └── WorkerExceeded it was ended because it used too much, with all that it had started
    │   ├── WorldStale       it has run code that a later text changed, or imported a package that was upgraded
    │   ├── WorkerTimeout    it was ended because it ran past the limit
    │   ├── TracerFailed     its code, which is fx-lsp's own, raised
    │   └── WorkerStartError it could not be started (interpreter missing, no torch, wrong path)
    │       └── NotTrusted   it may not be started
    ├── ForeignFileError     fx-lsp did not write a file that is in the way; the file is left unchanged
    └── UsageError           an option or a file of the command line that cannot be used
        └── TargetError      a target string that names nothing
An error in a user's code, or code that cannot be traced, is a value instead: a `fx_lsp.model.Failure`.
"""

from __future__ import annotations

from typing import Literal


class FxLspError(Exception):
    """Base class of every exception that fx-lsp raises on purpose."""


class ProtocolError(FxLspError):
    """A frame or message between two fx-lsp processes is malformed."""


class WorkerError(FxLspError):
    """A worker process did not answer.

    `output` is the tail of what the process printed (stdout and stderr), at most 64 KiB.
    """

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output


class WorkerDied(WorkerError):
    """The worker ended before it answered.

    `status` is its exit code, or the negated number of the signal that ended it, as `subprocess` counts.
    """

    def __init__(self, message: str, status: int, output: str = "") -> None:
        super().__init__(message, output)
        self.status = status


class WorkerExceeded(WorkerDied):
    """The worker was ended: it and all that it had started used more than `limit` bytes of "memory" or "files"."""

    def __init__(self, resource: Literal["memory", "files"], limit: int, output: str = "") -> None:
        super().__init__(f"it used more than {limit >> 20} MiB of {resource}", -9, output)
        self.resource = resource
        self.limit = limit


class WorldStale(WorkerError):
    """A process has run code that a later text or upgrade changed; another process has to run it."""


class WorkerTimeout(WorkerError):
    """The worker ran past its time limit and was ended."""


class TracerFailed(WorkerError):
    """An exception in fx-lsp's own code ended a trace: `output` is its traceback, the message its last line."""


class WorkerStartError(WorkerError):
    """The worker could not be started: the interpreter is missing, it has no torch, or torch fails to import.

    `kind` is the `Failure.kind` to show: "interpreter" or "no-torch". `was_killed` says that a signal ended it, so that
    another start may succeed.
    """

    def __init__(self, message: str, kind: str, hint: str, output: str = "", was_killed: bool = False) -> None:
        super().__init__(message, output)
        self.kind = kind
        self.hint = hint
        self.was_killed = was_killed


class NotTrusted(WorkerStartError):
    """The user does not trust the code, so no worker may be started."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, "interpreter", hint)


class ForeignFileError(FxLspError, OSError):
    """fx-lsp would write or remove a file that it did not write."""


class UsageError(FxLspError):
    """An option of the command line, or a file that it names, cannot be used."""


class TargetError(UsageError):
    """A target string that does not name a function or class of its file."""
