import pytest

from fx_lsp.features.text import code, count, format_bytes, is_tensor_spec, one_line


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
