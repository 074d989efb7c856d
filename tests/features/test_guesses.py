"""Guessed looks guessed."""

import pytest

from fx_lsp.features.guesses import Guesses, marked
from fx_lsp.model import InputSpec

X, N = InputSpec("x", "f32[4, 64]", "search", guessed=True), InputSpec("n", "3", "search", guessed=True)
W = InputSpec("w", "f32[64, 128]", "call site", "line 12")


@pytest.mark.parametrize(
    ("inputs", "spec", "shown"),
    [
        ([X], "f32[4, 8]", "~f32[4, 8]"),
        ([X], "(f32[4], None)", "~(f32[4], None)"),
        ([X], "f32[]", "f32[]"),
        ([X], "f32[1, 1]", "f32[1, 1]"),
        ([W], "f32[4, 8]", "f32[4, 8]"),
        ([X, W], "f32[64, 128]", "f32[64, 128]"),
        ([X, W], "f32[4, 128]", "~f32[4, 128]"),
        ([X], "f32[B, T]", "f32[B, T]"),
        ([N], "f32[3]", "~f32[3]"),
        ([InputSpec("act", "torch.relu", "search", guessed=True)], "f32[3]", "f32[3]"),
        ([], "f32[3]", "f32[3]"),
    ],
)
def test_what_follows_from_guesses_is_marked(inputs: list[InputSpec], spec: str, shown: str):
    assert Guesses(inputs).marked(spec) == shown


def test_inputs_and_bytes():
    assert [marked(item) for item in (X, N, W)] == ["~f32[4, 64]", "~3", "f32[64, 128]"]
    assert [Guesses([X]).marked_bytes(size) for size in (4096, 0)] == ["~4 KiB", "0 B"]
    assert Guesses([W]).marked_bytes(4096) == "4 KiB"
