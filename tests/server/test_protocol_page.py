"""docs/protocol.md names what the server answers, and nothing else."""

import re
from pathlib import Path

from fx_lsp.server import app, status
from fx_lsp.server.display import benchmarks
from fx_lsp.server.settings import _ROWS as ROWS

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
SETTINGS = (ROOT / "docs" / "_from_readme_settings.md").read_text(encoding="utf-8")
OF_THE_CLIENT = {"fxLsp.pinInputs", "fxLsp.showMemory"}
TOLD = {status.STATUS, benchmarks.MEASURING, "fxLsp/changed"}


def test_requests_and_notifications():
    answered = {method for method in app._HANDLERS if method.startswith("fxLsp/")}
    assert set(re.findall(r"^### `(fxLsp/\w+)`", PAGE, re.MULTILINE)) == answered | TOLD


def test_commands():
    assert set(re.findall(r"`(fxLsp\.\w+)`", PAGE)) == set(app._COMMANDS) | OF_THE_CLIENT


def test_settings():
    of_plugins = {"virtualDocuments", "commandLinks", "changes", "trusted", "interpreters"}
    named = set(re.findall(r"^\| `([\w.]+)` \|", PAGE[PAGE.index("## Settings") :], re.MULTILINE))
    assert named == of_plugins
    of_people = set(re.findall(r"^\| `([\w.<>]+)` \|", SETTINGS, re.MULTILINE))
    rows = {"problems": "problems.<code>", "hint_kinds": "inlayHints.<kind>"}
    keys = {rows.get(row.field, row.key) for row in ROWS}
    assert keys == of_plugins | of_people
