"""Name the folders in which fx-lsp keeps files of this user, by the conventions of the platform."""

from __future__ import annotations

from pathlib import Path

from platformdirs import PlatformDirs

_OF_THIS_USER = PlatformDirs("fx-lsp", appauthor=False, roaming=True, opinion=False)
"""Settings follow a user of Windows to other machines, caches do not. No folder has a folder `Cache` inside.

A relative XDG variable is ignored: it would name a folder of the workspace, where others write.
"""


def cache_folder() -> Path:
    """Return the folder of fx-lsp in the platform's cache directory. fx-lsp wrote all files directly in it."""
    return _OF_THIS_USER.user_cache_path


def config_folder() -> Path:
    """Return the folder of this user's settings of fx-lsp."""
    return _OF_THIS_USER.user_config_path
