"""Count what a process and all that it has started use together: temporary files, and memory (Linux)."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

SCRATCH_BYTES = 2 << 30
"""The most bytes of temporary files that a process and all that it has started may have."""
ENTRY_BYTES = 16 << 10
"""The bytes that a file or a folder counts at least: a disk has a limited number of them."""
_REMOVED = " (deleted)"


def processes_below(root: int) -> list[int]:
    """Return a process and all below it; the process alone while no file can be opened."""
    children: dict[int, list[int]] = {}
    with suppress(OSError):
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError, ValueError):
                parent = int(path.read_text(errors="replace").rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(path.parent.name))
    below = [root]
    for pid in below:
        below += children.get(pid, ())
    return below


def memory_of(pid: int) -> int:
    """Return the bytes of memory of a process, with its share of what it has in common with others; 0 if unknown."""
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return 0


def resident_bytes(pid: int) -> int:
    """Return the bytes of memory of a process, with all that it has in common with others; 0 if unknown."""
    with suppress(OSError, ValueError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def memory_together(pids: Sequence[int], limit: int) -> int:
    """Return the bytes of memory of some processes; what they share may count several times within a limit."""
    together = sum(map(resident_bytes, pids))
    return together if together <= limit else sum(map(memory_of, pids))


def scratch_bytes(folder: str, pids: Sequence[int], limit: int) -> int:
    """Return the bytes of the files in a folder, and of those that were removed from it and that processes still use.

    Does not count on beyond a limit. A folder whose path is too long for the system is beyond it.
    """
    sizes = dict(entry for pid in pids for entry in _removed(folder, pid))
    total, waiting = sum(sizes.values()), [folder]
    while waiting and total <= limit:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    if status.st_nlink == 1 or status.st_ino not in sizes:
                        sizes[status.st_ino] = _size(status)
                        total += sizes[status.st_ino]
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError as error:
            total += limit + 1 if error.errno == errno.ENAMETOOLONG else 0
    return total


def _removed(folder: str, pid: int) -> Iterator[tuple[int, int]]:
    """Yield the number and the size of the files that were removed from a folder and that a process has mapped or open.

    Of one that is only mapped, the size is that up to the end of the mapped part.
    """
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape").splitlines():
            if folder in line and line.endswith(_REMOVED):
                addresses, _, offset, _, number = line.split(maxsplit=5)[:5]
                start, end = (int(address, 16) for address in addresses.split("-"))
                yield int(number), int(offset, 16) + end - start
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                link = f"/proc/{pid}/fd/{name}"
                target = os.readlink(link)
                if target.startswith(folder + os.sep) and target.endswith(_REMOVED):
                    status = os.stat(link)
                    yield status.st_ino, _size(status)


def _size(status: os.stat_result) -> int:
    return max(status.st_blocks * 512 if hasattr(status, "st_blocks") else status.st_size, ENTRY_BYTES)
