"""What is read from strings and statements without running anything."""

import ast

import pytest

from fx_lsp.syntax import assigned, axis_terms, bound_lambda


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


@pytest.mark.parametrize(
    ("code", "bound"),
    [
        ("a = f(b)", ["a: f(b)"]),
        ("a: T = 1", ["a: 1"]),
        ("a = b = c.d = 1", ["a: 1", "b: 1"]),
        ("a, b = c", []),
        ("a: T", []),
        ("a += 1", []),
        ("f(a=1)", []),
    ],
)
def test_names_that_a_statement_binds_to_a_value(code: str, bound: list[str]) -> None:
    assert [f"{name}: {ast.unparse(value)}" for name, value in assigned(ast.parse(code).body[0])] == bound
