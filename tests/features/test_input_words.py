import pytest
from inline_snapshot import snapshot

from fx_lsp.features.inputs import inputs_text, source_text
from fx_lsp.model import InputSource, InputSpec


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
