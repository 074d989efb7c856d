"""Store what the user trusts: folders whose code may run, and hosts that may be used.

One file next to hosts.toml has both, and fx-lsp alone writes it:
    {"folders": {"/home/me/project": "trusted", "/tmp/stranger": "never"}, "hosts": {"h200": "<hash of its settings>"}}
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Literal, cast

from fx_lsp import files, folders

FolderTrust = Literal["trusted", "never"]
Kind = Literal["folders", "hosts"]


def trust_path() -> Path:
    """Return the path of that file."""
    return folders.config_folder() / "trusted.json"


def stored(kind: Kind) -> dict[str, str]:
    """Return the stored entries of a kind. A file that other users may write has none."""
    try:
        path = trust_path()
        if os.name != "nt" and path.stat().st_mode & 0o022:
            return {}
        table: Any = json.loads(files.read_bytes(path))
        entries: Any = table.get(kind)
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}
    if not isinstance(entries, dict):
        return {}
    return {name: value for name, value in cast("dict[str, Any]", entries).items() if isinstance(value, str)}


def store(kind: Kind, name: str, value: str | None) -> None:
    """Store one entry, or remove it with None. Raises OSError."""
    path = trust_path()
    entries = {key: text for key, text in {**stored(kind), name: value}.items() if text is not None}
    others = {other: stored(other) for other in ("folders", "hosts") if other != kind}
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    files.write(path, json.dumps({**others, kind: entries}, indent=1, sort_keys=True), 0o600)


def folder_trust(folder: str) -> FolderTrust | None:
    """Return the user's answer about a folder: that about the innermost folder around it; None without any.

    A folder that contains the file with the answers could answer for itself: it has none, except the home directory.
    """
    real, entries = Path(_key(folder)), stored("folders")
    if not entries or (real in Path(os.path.realpath(trust_path())).parents and real not in _above_home()):
        return None
    answers = (entries.get(str(path)) for path in (real, *real.parents))
    return cast("FolderTrust | None", next((answer for answer in answers if answer in ("trusted", "never")), None))


def set_folder_trust(folder: str, answer: FolderTrust) -> None:
    """Store the user's answer about a folder and the folders in it. Raises OSError."""
    store("folders", _key(folder), answer)


def revoke_folder_trust(folder: str) -> None:
    """Remove the user's answer about a folder; one about a folder around it no longer applies. Raises OSError."""
    store("folders", _key(folder), None)
    if folder_trust(folder) == "trusted":
        set_folder_trust(folder, "never")


def _key(folder: str) -> str:
    return os.path.normcase(os.path.realpath(folder))


def _above_home() -> set[Path]:
    home = Path(_key(str(Path.home())))
    return {home, *home.parents}
