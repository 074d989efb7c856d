"""Find the hosts of a command, ask the user to confirm those that were never used, and print the progress of their
jobs.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence

from fx_lsp.errors import TargetError
from fx_lsp.measured import Event, Failed, Finished, JobProgress, Report
from fx_lsp.tracing.remote.hosts import LOCAL, Cluster, Host, Hosts, Place
from fx_lsp.tracing.remote.running import unknown
from fx_lsp.tracing.remote.trust import trust


def named(hosts: Hosts, names: Sequence[str]) -> list[Place]:
    """Return the places of those names; this machine without names. Raises TargetError."""
    for problem in hosts.problems:
        print(f"fx-lsp: {problem}", file=sys.stderr)
    places: list[Place] = []
    for name in dict.fromkeys(names or (LOCAL,)):
        place = hosts.find(name)
        if place is None:
            names_there = ", ".join(hosts.places)
            raise TargetError(f"there is no host {name}; there are: {names_there}; name hosts in {hosts.path}")
        places.append(place)
    return places


def allowed(places: Iterable[Host | Cluster], yes: bool) -> None:
    """Ask for each place that was never used, or is reached in a new way. Raises TargetError without a confirmation."""
    for place in unknown(places):
        if not yes and not _asked(place.name, place.reached):
            raise TargetError(
                f"{place.name} ({place.reached}) is only used after you confirm: run this in a terminal, or pass --yes"
            )
        try:
            trust(place)
        except OSError as error:
            raise TargetError(f"your confirmation of {place.name} cannot be stored: {error}") from error


def _asked(name: str, how: str) -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(f"{name} has not been used before, or its address has changed: {how}", file=sys.stderr)
    print("Programs of fx-lsp, your function and its kernels will run there. Use it? [y/N] ", end="", file=sys.stderr)
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


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
                print(
                    f"\r\x1b[2K{' · '.join(self._last.values())[: shutil.get_terminal_size().columns - 1]}",
                    end="",
                    file=sys.stderr,
                    flush=True,
                )
            else:
                print(text, file=sys.stderr, flush=True)
        return None

    def clear(self) -> None:
        """Clear the line."""
        if self._terminal:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)
