"""Texts on sizes, inputs, and what follows from guesses."""

import pytest
from inline_snapshot import snapshot

from fx_lsp.features.wording.guesses import Guesses, marked
from fx_lsp.features.wording.inputs import inputs_text, source_text
from fx_lsp.features.wording.text import code, count, format_bytes, is_tensor_spec, one_line
from fx_lsp.model import InputSource, InputSpec


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (4198, "4.1 KiB"),
        (1024**2 - 1, "1 MiB"),
        (3 * 1024**3 // 2, "1.5 GiB"),
        (2**70, "1048576 PiB"),
    ],
)
def test_bytes_are_shown_in_binary_units(size: int, shown: str):
    assert format_bytes(size) == shown


def test_counts_are_words():
    assert [count("op", n) for n in (0, 1, 2, 12345)] == ["0 ops", "1 op", "2 ops", "12,345 ops"]


@pytest.mark.parametrize("spec", ["f32[8, 128]", "bf16[2]@cuda", "(f32[2], None)", "b8[]", "f8e4m3fn[4, 4]", "c64[1]"])
def test_tensor_specs(spec: str):
    assert is_tensor_spec(spec)


@pytest.mark.parametrize("spec", ["4", "None", "'f32[8]'", "Config(dim=4)", "[1, 2]", "float32"])
def test_other_values_are_no_tensor_specs(spec: str):
    assert not is_tensor_spec(spec)


def test_one_line_is_cut():
    assert one_line("a\n  b\tc") == "a b c"
    assert one_line("x" * 200, 10) == "x" * 9 + "…"


def test_code_survives_backticks():
    assert code("a`b") == "``a`b``"
    assert code("`a`") == "`` `a` ``"


@pytest.mark.parametrize(
    ("source", "detail", "words"),
    [
        ("comment", "", "from the `# fx:` comment"),
        ("settings", "pyproject.toml", "from pyproject.toml"),
        ("recorded", "python train.py", "recorded, python train.py"),
        ("convention", "get_inputs()", "from get_inputs()"),
        ("annotation", "", "from its annotation"),
        ("default", "", "default"),
        ("call site", "line 40", "from the call at line 40"),
        ("call site", "tests/test_block.py:12", "from the call at tests/test_block.py:12"),
        ("search", "", "guessed"),
        ("search", "rank from an error", "guessed, rank from an error"),
    ],
)
def test_where_an_input_came_from(source: InputSource, detail: str, words: str):
    assert source_text(InputSpec("x", "f32[2]", source, detail)) == words


def test_inputs_of_one_source_share_a_line():
    inputs = [
        InputSpec("x", "f32[8, 128]", "call site", "line 40"),
        InputSpec("n", "4", "call site", "line 40"),
        *(InputSpec(f"cache[{i}]", "f32[8, 64]", "search") for i in range(32)),
        *(InputSpec(f"n{i}", "True", "default") for i in range(9)),
    ]
    assert inputs_text(inputs) == snapshot("""\
- `x: f32[8, 128]`, `n=4` · from the call at line 40
- `cache[0…31]: f32[8, 64]` · guessed
- `n0=True`, `n1=True`, `n2=True`, `n3=True`, `n4=True`, `n5=True`, `n6=True`, `n7=True` and 1 more · default\
""")


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
