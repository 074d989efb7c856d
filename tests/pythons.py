"""The Pythons of this machine that fx-lsp supports, for tests that are run with each of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

VERSIONS = ("3.10", "3.11", "3.12", "3.13")


@cache
def python_of(version: str) -> str | None:
    """Return a Python of this version that starts: the one that runs the tests, one on PATH or one of pyenv."""
    if version == "{}.{}".format(*sys.version_info):
        return sys.executable
    home = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [shutil.which(f"python{version}"), *map(str, home.glob(f"{version}.*/bin/python"))]
    return next((path for path in candidates if path and starts(path)), None)


def starts(python: str) -> bool:
    """Return whether an interpreter runs a program."""
    return subprocess.run([python, "-c", ""], capture_output=True).returncode == 0


@cache
def has_package_index() -> bool:
    """Return whether pip can install packages here."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, "hatchling"]
        return subprocess.run(command, capture_output=True).returncode == 0
