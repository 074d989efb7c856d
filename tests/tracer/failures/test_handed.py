"""An error deep inside, about a None of another name: which parameter of the target it was."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fx_lsp.tracer.inputs.solve.passed_none import handed_as_none
from fx_lsp.tracer.source.provenance import Sources

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="older Pythons keep no columns")

SOURCE = """
import functools
import torch

def checked(tokens=None, *, embeds=None, mask=None):
    if (tokens is None) == (embeds is None):
        raise ValueError("give exactly one of tokens and embeds")
    return tokens if embeds is None else embeds

def traced(function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        return function(*args, **kwargs)
    return call

class Stack(torch.nn.Module):
    @traced
    def forward(self, tokens=None, embeds=None):
        return checked(tokens, embeds=embeds)

stack = Stack()

def by_keyword(first, second=None, second_embeds=None, mask=None):
    return stack(first) + stack(
        embeds=second_embeds,
        tokens=second,
    )

def by_position(first, other=None):
    return checked(first) + checked(other, mask=first)

def chosen(first=None, other=None):
    return checked(first if first is not None else other)

def given(first):
    return checked(first, embeds=first)

def unpacked(x, tokens=None):
    return checked(**{"tokens": tokens})
"""


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("by_keyword", ["second", "second_embeds"]),
        ("by_position", ["other"]),
        ("chosen", ["first", "other"]),
        ("given", []),
        ("unpacked", ["tokens", "embeds"]),
    ],
)
def test_what_was_handed_on_as_none(tmp_path: Path, name: str, found: list[str]) -> None:
    file = tmp_path / "model.py"
    file.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("model", file)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Callable[..., Any] = getattr(module, name)
    with pytest.raises(ValueError, match="exactly one") as raised:
        function(1) if name != "chosen" else function()
    error = raised.value
    error.__traceback__ = raised.tb.tb_next  # without the frame of this test
    assert handed_as_none(error, Sources(str(file), None)) == found
