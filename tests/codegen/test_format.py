"""Lines of a kernel file are filled, on every version of Python in the same way."""

from __future__ import annotations

import re
import tokenize

import pytest

from fx_lsp.codegen.file import format as formatting
from fx_lsp.codegen.file.format import break_lines
from fx_lsp.codegen.ir.text import LINE_WIDTH

RAISE = (
    'raise ValueError(f"the first input has {ids.dim()} dimensions {tuple(ids.shape), str(ids.dtype)}, and the kernel '
    'was written for {(4, 8)}")'
)


def test_an_f_string_stays_on_its_line() -> None:
    assert break_lines(RAISE, 4) == [
        "    raise ValueError(",
        f"        {RAISE.removeprefix('raise ValueError(')}",
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


BRACKETS = [
    """\
tl.store(grad_v_ptr + batch * k_2 * 64 + cols[:, None] * 64 + depth[None, :],
         grad_v_acc, mask=cols[:, None] < k_2)""",
    """\
def backward_kernel_of_columns(k_ptr, v_ptr, q_ptr, grad_out_ptr, grad_v_ptr, M,
                               ROWS: tl.constexpr): pass""",
    """\
launch(backward_kernel_of_many_columns_and_rows,
       lambda meta: (triton.cdiv(k_2, meta["COLS"]),), k_ptr, v_ptr, k_2)""",
    """\
the_first_of_the_results = the_function_of_the_library_that_computes_it(
    grad_output, convert_element_type, amax)""",
]


@pytest.mark.parametrize("lines", BRACKETS)
def test_arguments_fill_lines(lines: str) -> None:
    """They are below each other, but not far to the right."""
    text = re.sub(r"(?<=\()\n *|\n(?=\))", "", lines)
    assert break_lines(re.sub(r"\n *", " ", text), 0) == lines.split("\n")
    assert max(map(len, lines.split("\n"))) <= LINE_WIDTH


ADDED_BRACKETS = [
    """\
return (grad_first if needs_first else x.new_empty(0),
        grad_second if needs_second else x.new_empty(0))""",
    """\
total = (first_partial_sum * the_scale_of_the_first
         + second_partial_sum * the_scale_of_the_second)""",
    """\
(the_mean_of_the_first, the_mean_of_the_second, rsqrt_of_the_first, rsqrt_of_the_second,
 x) = ctx.saved_tensors""",
]


@pytest.mark.parametrize("lines", ADDED_BRACKETS)
def test_brackets_are_added(lines: str) -> None:
    words, _, value = re.sub(r"\n *", " ", lines).partition("(")
    before, _, after = value.rpartition(")") if words else value.partition(")")
    assert break_lines(words + before + after, 0) == lines.split("\n")


def test_a_statement_that_fits_is_one_line() -> None:
    assert break_lines("x = f(a, b)", 8) == ["        x = f(a, b)"]
    assert break_lines(f"x = f({'a' * 81})", 0) == [f"x = f({'a' * 81})"]
    assert len(break_lines(f"x = f({'a' * 40}, {'b' * 40})", 0)) == 2
