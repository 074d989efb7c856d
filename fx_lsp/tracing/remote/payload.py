"""Pack the part of fx-lsp that measures, which is sent to a host and needs only torch and triton there."""

from __future__ import annotations

import inspect
import io
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import fx_lsp
from fx_lsp.sandbox import removal
from fx_lsp.tracing.remote import supervisor

MODULES = ("__init__", "errors", "measured", "model", "sandbox/__init__", "sandbox/removal", "wire")
PARTS = ("bench", "numerics")
"""The modules and packages of fx_lsp that run on a host."""


@cache
def runner_files() -> Mapping[str, bytes]:
    """Return the runner, by path: all modules of fx-lsp that `python -m fx_lsp.bench` imports."""
    home = Path(fx_lsp.__file__).parent
    files = [home / f"{name}.py" for name in MODULES]
    files += [file for part in PARTS for file in sorted((home / part).rglob("*.py"))]
    return {file.relative_to(home.parent).as_posix(): file.read_bytes() for file in files}


@cache
def prober_files() -> Mapping[str, bytes]:
    """Return the prober, by path: all modules of fx-lsp that `python -m fx_lsp.tracing.remote.prober` imports."""
    home = Path(fx_lsp.__file__).parent
    names = [*MODULES, "tracing/remote/supervisor", "tracing/remote/prober"]
    files = {f"fx_lsp/{name}.py": (home / f"{name}.py").read_bytes() for name in names}
    return {"fx_lsp/tracing/__init__.py": b"", "fx_lsp/tracing/remote/__init__.py": b"", **files}


@cache
def supervisor_source() -> str:
    """Return the text of the supervisor with the module that it imports before it, as one text that needs no file."""
    text = inspect.getsource(supervisor)
    for line in ("from __future__ import annotations\n", "from fx_lsp.sandbox.removal import remove_tree\n"):
        text = text.replace(line, "", 1)
    return inspect.getsource(removal) + text


def packed(files: Mapping[str, bytes]) -> bytes:
    """Return the files as a zip."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return data.getvalue()
