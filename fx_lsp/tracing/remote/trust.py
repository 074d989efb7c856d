"""Ask which hosts the user has confirmed, and by which connection."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

from fx_lsp.tracing.remote.hosts import Cluster, Host
from fx_lsp.tracing.trust import store, stored
from fx_lsp.wire import to_json


def fingerprint(place: Host | Cluster) -> str:
    """Return a hash of everything that determines which machine is reached, and what runs there."""
    same = replace(place, limit=0.0, connect=0.0) if isinstance(place, Host) else replace(place, limit=0.0)
    return hashlib.sha256(json.dumps([type(place).__name__, to_json(same)], sort_keys=True).encode()).hexdigest()


def is_trusted(place: Host | Cluster) -> bool:
    """Return True if the user has confirmed this place and its connection. This machine needs no confirmation."""
    return (isinstance(place, Host) and place.local) or stored("hosts").get(place.name) == fingerprint(place)


def trust(place: Host | Cluster) -> None:
    """Record the user's confirmation. Raises OSError on failure."""
    store("hosts", place.name, fingerprint(place))
