"""Store which hosts the user has confirmed: a file next to hosts.toml, written by fx-lsp alone."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from fx_lsp import files
from fx_lsp.tracing.remote.hosts import Cluster, Host, config_folder
from fx_lsp.wire import to_json


def trust_path() -> Path:
    """Return the path of that file."""
    return config_folder() / "trusted.json"


def fingerprint(place: Host | Cluster) -> str:
    """Return a hash of everything that determines which machine is reached, and what runs there."""
    same = replace(place, limit=0.0, connect=0.0) if isinstance(place, Host) else replace(place, limit=0.0)
    return hashlib.sha256(json.dumps([type(place).__name__, to_json(same)], sort_keys=True).encode()).hexdigest()


def is_trusted(place: Host | Cluster) -> bool:
    """Return True if the user has confirmed this place and its connection. This machine needs no confirmation."""
    return (isinstance(place, Host) and place.local) or _read().get(place.name) == fingerprint(place)


def trust(place: Host | Cluster) -> None:
    """Record the user's confirmation. Raises OSError on failure."""
    path = trust_path()
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    files.write(path, json.dumps({**_read(), place.name: fingerprint(place)}, indent=1), 0o600)


def _read() -> dict[str, str]:
    try:
        path = trust_path()
        if os.name != "nt" and path.stat().st_mode & 0o022:
            return {}
        table: Any = json.loads(files.read_bytes(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return cast("dict[str, str]", table) if isinstance(table, dict) else {}
