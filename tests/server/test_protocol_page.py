"""docs/reference/protocol.md names what the server answers, and nothing else."""

import re
from pathlib import Path

from fx_lsp.server import app, status
from fx_lsp.server.display import benchmarks
from fx_lsp.server.settings import _ROWS as ROWS

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "reference" / "protocol.md").read_text(encoding="utf-8")
SETTINGS = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
OF_THE_CLIENT = {"fxLsp.pinInputs", "fxLsp.showMemory"}
TOLD = {status.STATUS, benchmarks.MEASURING, "fxLsp/changed"}


def test_requests_and_notifications():
    answered = {method for method in app._HANDLERS if method.startswith("fxLsp/")}
    assert set(re.findall(r"^### `(fxLsp/\w+)`", PAGE, re.MULTILINE)) == answered | TOLD


def test_commands():
    assert set(re.findall(r"`(fxLsp\.\w+)`", PAGE)) == set(app._COMMANDS) | OF_THE_CLIENT


def test_settings():
    of_plugins = {"virtualDocuments", "commandLinks", "changes", "trust", "trusted", "interpreters"}
    named = set(re.findall(r"^\| `([\w.]+)` \|", PAGE[PAGE.index("## Settings") :], re.MULTILINE))
    assert named == of_plugins
    table = SETTINGS.partition("\n## ")[0]
    of_people = set(re.findall(r"^\| `([\w.-]+)` \|", table, re.MULTILINE))
    assert {row.key for row in ROWS} == of_plugins | of_people
