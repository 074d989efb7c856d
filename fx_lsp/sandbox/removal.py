"""Remove a folder that code of a workspace has filled."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from itertools import count

_FOLDER = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)


def remove_tree(folder: str) -> None:
    """Remove a folder, however deep it is; what cannot be removed stays. Follows no link.

    Folders in its folders are moved up to it, so that neither the stack nor the lengths of paths grow with the depth.
    """
    if os.rename not in os.supports_dir_fd:
        shutil.rmtree(folder, ignore_errors=True)
        return
    with suppress(OSError):
        top = os.open(folder, _FOLDER)
        try:
            prefix, numbers, waiting = os.urandom(8).hex(), count(), _remove_files(top)
            while waiting:
                with suppress(OSError):
                    name = waiting.pop()
                    inner = os.open(name, _FOLDER, dir_fd=top)
                    try:
                        for one in _remove_files(inner):
                            moved = f"{prefix}-{next(numbers)}"
                            os.rename(one, moved, src_dir_fd=inner, dst_dir_fd=top)
                            waiting.append(moved)
                    finally:
                        os.close(inner)
                    os.rmdir(name, dir_fd=top)
        finally:
            os.close(top)
        os.rmdir(folder)


def _remove_files(folder: int) -> list[str]:
    """Remove the files of an open folder; return the names of its folders."""
    folders: list[str] = []
    with os.scandir(folder) as entries:
        for entry in [*entries]:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                with suppress(OSError):
                    os.unlink(entry.name, dir_fd=folder)
    return folders
