"""Trace a function of a text for one work of the tracer: its passes, its partitions, where its numbers differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from conftest import Traced, in_fork, request_for

from fx_lsp.model import TraceReply
from fx_lsp.tracer.job import run


def traced_for(folder: Path, source: str, name: str, work: str, before: Callable[[], object] | None = None) -> Traced:
    """Return what is known of a function; `before` is called first in the process that traces."""
    file = folder / "user.py"
    file.write_text(source)
    request = replace(request_for(str(file), source, name), work=work)

    def answer() -> TraceReply:
        if before is not None:
            before()
        return run(request)

    return Traced(in_fork(answer), source)
