"""Print the progress of benchmarks."""

from __future__ import annotations

import os
import sys

from fx_lsp.measured import Event, Failed, Finished, JobProgress, Report


class ProgressPrinter:
    """Print progress on standard error: the last event of each host in one line of a terminal, else new events."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._last: dict[str, str] = {}

    def take(self, host: str, event: Event) -> Report | Failed | None:
        """Show progress and return None; return the end of the job for other events."""
        if not isinstance(event, JobProgress):
            self._last.pop(host, None)
            return event.report if isinstance(event, Finished) else event
        text = f"{host}: {event.text.removeprefix(f'{host}: ')}" + (
            f" ({event.done} of {event.total})" if event.total else ""
        )
        if self._last.get(host) != text:
            self._last[host] = text
            if self._terminal:
                print(f"\r\x1b[2K{' · '.join(self._last.values())[: _width()]}", end="", file=sys.stderr, flush=True)
            else:
                print(text, file=sys.stderr, flush=True)
        return None

    def clear(self) -> None:
        """Clear the line."""
        if self._terminal:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)


def _width() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns - 1
    except OSError:
        return 79
