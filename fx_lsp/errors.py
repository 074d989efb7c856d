"""Exceptions of fx-lsp. They mean a bug of ours or a dead process, never a user's mistake.

    FxLspError
    ├── ProtocolError        a frame or a message between two of our processes is malformed
    ├── WorkerError          a process that should have answered did not
    │   ├── WorkerDied       it ended: signal or exit code, with what it had printed
    │   ├── WorldStale       it has run what a later text has otherwise
    │   ├── WorkerTimeout    it was ended because it ran past the limit
    │   ├── TracerFailed     its code, which is fx-lsp's own, raised
    │   └── WorkerStartError it could not be started (interpreter missing, no torch, wrong path)
    │       └── NotTrusted   it may not be started
    ├── ForeignFileError     a file is in the way that fx-lsp has not written; it is left as it is
    └── TargetError          a target string that names nothing (command line)

What a user's code does wrong, or what cannot be traced, is a `fx_lsp.model.Failure`: a value.
"""

from __future__ import annotations


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


class WorldStale(WorkerError):
    """A process that has run a program is not what it would be with a later text: another one has to run it."""


class WorkerTimeout(WorkerError):
    """The worker ran past its time limit and was ended."""


class TracerFailed(WorkerError):
    """An exception of fx-lsp's own code ended a trace: `output` is its traceback, the message its last line."""


class WorkerStartError(WorkerError):
    """The worker could not be started: no such interpreter, no torch in it, or torch fails to import.

    `kind` is the `Failure.kind` to show: "interpreter" or "no-torch".
    """

    def __init__(self, message: str, kind: str, hint: str, output: str = "") -> None:
        super().__init__(message, output)
        self.kind = kind
        self.hint = hint


class NotTrusted(WorkerStartError):
    """The user does not trust the code, so that no worker may be started."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, "interpreter", hint)


class ForeignFileError(FxLspError, OSError):
    """A file is where fx-lsp would write, or remove, and was not written by it."""


class TargetError(FxLspError):
    """A target string that does not name a function or class of its file."""
