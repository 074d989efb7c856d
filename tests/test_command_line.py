"""`fx-lsp` without a command that it knows."""

from __future__ import annotations

import signal

import pytest

from fx_lsp.cli import main


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "usage: fx-lsp [-h]"),
        (["grpah", "m.py::f"], "fx-lsp: there is no command `grpah`. Did you mean `graph`? fx-lsp --help"),
        (["xyz"], "fx-lsp: there is no command `xyz`. fx-lsp --help lists the commands"),
        (["m.py::f"], "`m.py::f`. A target follows a command: fx-lsp graph m.py::f. "),
    ],
)
def test_no_such_command(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert (printed.out, said in printed.err) == ("", True), printed.err


def test_signals_mean_what_they_did_after_a_command() -> None:
    """Processes that are forked from a program which called `main` end when they are told to."""
    before = signal.getsignal(signal.SIGTERM)
    assert main(["trust", "--revoke"]) == 2
    assert signal.getsignal(signal.SIGTERM) is before
