"""Find the hosts of a command, and ask the user to confirm those that were never used."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from fx_lsp.errors import TargetError
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
