"""Run a job on a place that the user named: a host, a pool of hosts or a cluster."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from fx_lsp.measured import BenchmarkJob, Event
from fx_lsp.tracing.remote.cluster import run_on_cluster
from fx_lsp.tracing.remote.hosts import Cluster, Host, Hosts, Place
from fx_lsp.tracing.remote.queues import Queue
from fx_lsp.tracing.remote.trust import is_trusted


@dataclass(frozen=True)
class LocalPython:
    """Describe how a target is traced on this machine: with the project's interpreter, and modules of `roots`."""

    python: str
    roots: Sequence[str]


async def run_on(
    place: Place, hosts: Hosts, job: BenchmarkJob, queue: Queue, here: LocalPython
) -> AsyncGenerator[tuple[str, Event], None]:
    """Run a job and yield its events, each with the name of its host; the last is its end.

    On this machine, a target runs as it is traced.
    """
    if isinstance(place, Cluster):
        async with aclosing(run_on_cluster(place, job)) as events:
            async for event in events:
                yield place.name, event
        return
    members = [_as_here(host, here) for host in hosts.members(place)]
    async with aclosing(queue.run(members, job)) as ran:
        async for host, event in ran:
            yield host.name, event


def reached(hosts: Hosts, places: Iterable[Place]) -> list[Host | Cluster]:
    """Return every host and cluster behind the places, each once."""
    by_name: dict[str, Host | Cluster] = {}
    for place in places:
        for one in (place,) if isinstance(place, Cluster) else hosts.members(place):
            by_name[one.name] = one
    return list(by_name.values())


def unknown(places: Iterable[Host | Cluster]) -> list[Host | Cluster]:
    """Return the places that were never used, or are reached in a new way: the user has to confirm each."""
    return [place for place in places if not is_trusted(place)]


def _as_here(host: Host, here: LocalPython) -> Host:
    return replace(host, python=host.python or here.python, paths=(*host.paths, *here.roots)) if host.local else host
