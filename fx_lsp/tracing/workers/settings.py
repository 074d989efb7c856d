"""Define the settings of an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fx_lsp.tracing.workers.launch import Limits


def any_file(file: str) -> bool:
    """Return True: a command of the command line runs the code that it names."""
    return True


@dataclass(frozen=True)
class EngineSettings:
    """`interpreter` is a path or None to look for one; `cache_path` None keeps nothing on disk.

    `interpreters` are those of folders, taken where `interpreter` is None. `workers` bounds the traces at once per
    interpreter, `search_seconds` the search for inputs. With `trace_on_open` false, only what is asked for is traced.
    For a file whose code `may_run` is false of, no interpreter is started: its text is only read.
    """

    interpreter: str | None = None
    cache_path: str | None = None
    workers: int = 2
    limits: Limits = field(default_factory=Limits)
    search_seconds: float = 5.0
    trace_on_open: bool = True
    may_run: Callable[[str], bool] = any_file
    interpreters: tuple[tuple[str, str], ...] = ()

    def interpreter_of(self, workspace: Sequence[str]) -> str | None:
        """Return the interpreter that is set for a workspace, None where one has to be looked for."""
        return self.interpreter or next(
            (path for root in workspace for folder, path in self.interpreters if folder == root), None
        )
