"""`fx-lsp trust [FOLDER]`: lets the language server run code of a folder, or lists the folders and hosts that are
trusted.

The exit code is 0, or 2 if there is no such folder or the answer cannot be stored.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from fx_lsp.errors import TargetError
from fx_lsp.tracing.trust import folder_trust, revoke_folder_trust, set_folder_trust, stored, trust_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fx-lsp trust`."""
    parser.add_argument("folder", nargs="?", metavar="FOLDER", help="trust this folder and the folders in it")
    parser.add_argument("--revoke", action="store_true", help="trust the folder no longer; the server asks again")


def run(arguments: argparse.Namespace) -> int:
    """Store or revoke trust in a folder, or list all answers. Raises TargetError."""
    folder: str | None = arguments.folder
    if folder is None:
        if arguments.revoke:
            raise TargetError("pass the folder: fx-lsp trust --revoke FOLDER")
        _list()
        return 0
    if not arguments.revoke and not Path(folder).is_dir():
        raise TargetError(f"there is no folder {folder}")
    real = os.path.realpath(folder)
    try:
        if arguments.revoke:
            revoke_folder_trust(folder)
        else:
            set_folder_trust(folder, "trusted")
    except OSError as error:
        raise TargetError(f"your answer cannot be stored in {trust_path()}: {error.strerror or error}") from error
    is_trusted = folder_trust(folder) == "trusted"
    if is_trusted == arguments.revoke:
        raise TargetError(f"your answer is not valid: check the permissions and the place of {trust_path()}")
    print(f"{real} is {'trusted' if is_trusted else 'not trusted'}")
    return 0


def _list() -> None:
    folders, hosts = stored("folders"), stored("hosts")
    rows = [(answer, folder) for folder, answer in folders.items()] + [("trusted", f"host {name}") for name in hosts]
    for answer, name in sorted(rows, key=lambda row: row[1]):
        print(f"{answer:8} {name}")
    if not rows:
        print("You have trusted no folder and no host.")
