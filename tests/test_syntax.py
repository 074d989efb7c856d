"""What is read from strings and statements without running anything."""

import ast

import pytest

from fx_lsp.syntax import axis_terms, bound_lambda


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("b (h d) n -> b h n d", [(("b",), ("h", "d"), ("n",))]),
        ("b h w->b w h", [(("b",), ("h",), ("w",))]),
        ("b i d, b j d -> b i j", [(("b",), ("i",), ("d",)), (("b",), ("j",), ("d",))]),
        ("... d -> ... (d 1)", [(("...",), ("d",))]),
        ("b (s ...) -> b s", [(("b",), ("s", "..."))]),
        ("() n -> n", [((), ("n",))]),
        ("b c -> ", [(("b",), ("c",))]),
        ("n -> n 1", [(("n",),)]),
    ],
)
def test_patterns_of_axes(text: str, terms: object) -> None:
    assert axis_terms(text) == terms


@pytest.mark.parametrize(
    "text",
    [
        "ij,jk->ik",  # letters
        "b n d",
        "-> b n",
        "from a to b -> c",
        "(int, int) -> int",
        "b (h (d e)) -> b h d e",
        "x: int -> y",
        "b (h d -> b h d",
        "",
    ],
)
def test_other_texts(text: str) -> None:
    assert axis_terms(text) is None


def test_a_lambda_with_a_name_is_a_definition_where_it_stands() -> None:
    (statement,) = ast.parse("double: F = lambda x, *, n=2: x * n").body
    found = bound_lambda(statement)
    assert found is not None
    assert ast.unparse(found) == "def double(x, *, n=2):\n    return x * n"
    assert (found.lineno, found.col_offset, found.end_col_offset) == (1, 0, 35)


@pytest.mark.parametrize("code", ["f = g", "f, g = lambda: 1, lambda: 2", "f.g = lambda x: x", "lambda x: x", "f: F"])
def test_other_statements(code: str) -> None:
    assert bound_lambda(ast.parse(code).body[0]) is None
