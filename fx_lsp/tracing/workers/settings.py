"""Define the settings of an engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fx_lsp.tracing.workers.launch import Limits


@dataclass(frozen=True)
class EngineSettings:
    """`interpreter` is a path or None to look for one; `cache_path` None keeps nothing on disk.

    `interpreters` are those of folders, taken where `interpreter` is None. `workers` bounds the traces at once per
    interpreter, `search_seconds` the search for inputs. With `trace_on_open` false, only what is asked for is traced.
    Without `trusted` nothing is, and no interpreter is started: texts are only read.
    """

    interpreter: str | None = None
    cache_path: str | None = None
    workers: int = 2
    limits: Limits = field(default_factory=Limits)
    search_seconds: float = 5.0
    trace_on_open: bool = True
    trusted: bool = True
    interpreters: tuple[tuple[str, str], ...] = ()

    def interpreter_of(self, workspace: Sequence[str]) -> str | None:
        """Return the interpreter that is set for a workspace, None where one has to be looked for."""
        return self.interpreter or next((path for folder, path in self.interpreters if folder in workspace[:1]), None)
