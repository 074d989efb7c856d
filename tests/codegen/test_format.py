"""Lines of a kernel file are broken as ruff breaks them, on every version of Python in the same way."""

from __future__ import annotations

import tokenize

import pytest

from fx_lsp.codegen.file import format as formatting
from fx_lsp.codegen.file.format import break_lines

RAISE = (
    'raise ValueError(f"the first input has {ids.dim()} dimensions {tuple(ids.shape), str(ids.dtype)}, and the kernel '
    'was written for {(4, 8)}")'
)


def test_an_f_string_stays_on_its_line() -> None:
    assert break_lines(RAISE, 4) == [
        "    raise ValueError(",
        f"        {RAISE.removeprefix('raise ValueError(').removesuffix(')')}",
        "    )",
    ]


def test_the_parts_of_an_f_string_are_one_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.12 and later tokenize `f"a {b}"` as a start, a middle, an operator, a name, an operator and an end."""
    line = 'f"a {b}" + c'
    places = ((161, 'f"', 0, 2), (162, "a ", 2, 4), (tokenize.OP, "{", 4, 5), (tokenize.NAME, "b", 5, 6))
    places += ((tokenize.OP, "}", 6, 7), (163, '"', 7, 8), (tokenize.OP, "+", 9, 10), (tokenize.NAME, "c", 11, 12))
    tokens = [tokenize.TokenInfo(kind, text, (1, start), (1, end), line) for kind, text, start, end in places]
    names = {**tokenize.tok_name, 161: "FSTRING_START", 162: "FSTRING_MIDDLE", 163: "FSTRING_END"}
    monkeypatch.setattr(tokenize, "tok_name", names)
    monkeypatch.setattr(tokenize, "generate_tokens", lambda readline: iter(tokens))
    assert [token.string for token in formatting._source_tokens(line)] == ['f"a {b}"', "+", "c"]
