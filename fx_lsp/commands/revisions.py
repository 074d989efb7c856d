"""Ask git which files of a repository changed since a revision."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from fx_lsp.errors import UsageError

_SECONDS = 120


def changed_since(revision: str, folders: Iterable[str]) -> frozenset[str]:
    """Return the files in the repositories of these folders that differ from a revision, and those that git does not
    track; also removed ones.

    Raises UsageError without git, outside of a repository, and for an unknown revision.
    """
    repositories = dict.fromkeys(_repository(Path(folder)) for folder in dict.fromkeys(folders))
    tops = dict.fromkeys(_top(str(folder)) for folder in repositories)
    return frozenset(str(top / name) for top in tops for name in _changed(top, revision))


@cache
def _repository(folder: Path) -> Path:
    """Return the nearest folder above that may be a repository, or `folder` itself."""
    return next((above for above in (folder, *folder.parents) if (above / ".git").exists()), folder)


def _top(folder: str) -> Path:
    done = _git(folder, "rev-parse", "--show-toplevel")
    if done.returncode:
        raise UsageError(f"--since needs a git repository, and {folder} is not in one ({_reason(done)})")
    return Path(done.stdout.rstrip("\n")).resolve()


def _changed(top: Path, revision: str) -> list[str]:
    commit = _git(str(top), "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if commit.returncode or revision.startswith("-"):
        raise UsageError(f"--since: `{revision}` is not a revision of the git repository {top}")
    differing = _git(str(top), "diff", "--name-only", "--no-renames", "-z", commit.stdout.strip(), "--")
    untracked = _git(str(top), "ls-files", "--others", "--exclude-standard", "-z")
    for done in (differing, untracked):
        if done.returncode:
            raise UsageError(f"--since: git cannot list the changed files of {top} ({_reason(done)})")
    return [name for name in f"{differing.stdout}{untracked.stdout}".split("\0") if name]


def _git(folder: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["git", "-C", folder, *arguments],
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=_SECONDS,
        )
    except FileNotFoundError as error:
        raise UsageError("--since needs git, which is not on PATH") from error
    except (OSError, ValueError) as error:
        raise UsageError(f"--since: git cannot be started: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"--since: git did not answer within {_SECONDS} s") from error


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    return done.stderr.strip().partition("\n")[0].removeprefix("fatal: ") or f"git ended with {done.returncode}"
