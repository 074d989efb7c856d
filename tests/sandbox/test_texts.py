"""What code of a workspace says reaches terminals and files as text, and as nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fx_lsp.errors import ProtocolError
from fx_lsp.model import Failure, Stage
from fx_lsp.wire import decode_stage, encode_stage, outcome_from_json, outcome_to_json

SAID = "\x1b[31mred\x1b[0m \x1b]0;title\x07bell\x07\x00\x9b\x7f\ttab\r\nline\rover\ufffe\ud800 é😀"
READABLE = "red bell\\x07\\x00\\x9b\\x7f\ttab\nline\nover\\ufffe\\ud800 é😀"


def test_failures_and_stages_are_readable() -> None:
    failure = Failure("error", SAID, hint=SAID, output=SAID)
    assert outcome_from_json(outcome_to_json(failure)) == Failure("error", READABLE, hint=READABLE, output=READABLE)
    assert decode_stage(encode_stage(Stage("torch", (), SAID))) == Stage("torch", (), READABLE)
    nested: list[object] = []
    for _ in range(900):
        nested = [nested]
    with pytest.raises(ProtocolError, match="nested too deeply"):
        outcome_from_json({"failure": nested})


@pytest.mark.parametrize("form", ["text", "junit", "json"])
def test_the_text_of_an_exception_is_printed_without_control_characters(tmp_path: Path, form: str) -> None:
    code = f"import torch\n\ndef f(x: torch.Tensor):\n    print({SAID!r})\n    raise ValueError({SAID!r})\n"
    (tmp_path / "model.py").write_text(code)
    command = [sys.executable, "-m", "fx_lsp", "check", "model.py", "--format", form]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    said = done.stdout.decode()
    assert "red bell" in said
    assert all(character in "\n\t" or character.isprintable() for character in said), repr(said)
    if form == "junit":
        ElementTree.fromstring(said)
