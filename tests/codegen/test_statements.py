"""Statements until they are printed, and names in Python text."""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot

from fx_lsp.codegen.ir.scopes import names_from_outside, rename_calls, rename_definition
from fx_lsp.codegen.ir.statement import assign, names_used, print_statements, rename, without_definitions
from fx_lsp.codegen.triton.helpers import HELPERS, helpers_in, with_needed

CODE = """\
def largest(rows, *more, key=max(1, 2)):
    # max(rows) as the user wrote it
    def smallest(max):
        return max(rows)

    return max(more), f"é {max(rows)} of {len(rows)}", map(max, rows), "max(rows)", rows.max(1)
"""


def test_calls_of_one_function_become_calls_of_another() -> None:
    assert rename_calls(CODE, "max", "builtins.max") == snapshot("""\
def largest(rows, *more, key=builtins.max(1, 2)):
    # max(rows) as the user wrote it
    def smallest(max):
        return max(rows)

    return builtins.max(more), f"é {builtins.max(rows)} of {len(rows)}", map(max, rows), "max(rows)", rows.max(1)
""")


def test_names_from_outside_are_those_that_no_function_binds() -> None:
    assert names_from_outside(CODE) == {"max", "len", "map"}
    assert names_from_outside("lambda row: row + other") == {"other"}


def test_a_definition_has_another_name() -> None:
    assert (
        rename_definition("@jit\ndef sign(a):\n    return sign(a)\n", "sign_")
        == "@jit\ndef sign_(a):\n    return sign(a)\n"
    )


def test_helpers_come_with_those_that_they_call() -> None:
    assert with_needed({"remainder", "cols", "tl"}) == ["remainder", "fmod"]
    assert helpers_in("tl.reduce(a, axis=1, combine_fn=nan_max)") == ["nan_max"]
    assert helpers_in(HELPERS["fmod"]) == []  # it calls the library of the GPU


def test_names_are_renamed_where_they_are_defined_and_used() -> None:
    statements = [assign("sign", "tl.load(sign_ptr)"), assign("out", "sign * x.sign")]
    assert [line.text.strip() for line in print_statements(rename(statements, {"sign": "sign_"}))] == snapshot(
        ["sign_ = tl.load(sign_ptr)", "out = sign_ * x.sign"]
    )
    assert names_used(statements) == {"tl", "sign_ptr", "sign", "x"}
    assert len(without_definitions(statements, {"out"})) == 1


@pytest.mark.parametrize(
    "text",
    [
        "(batch % 2) * 32 + rows",
        "(start // BLOCK) * BLOCK",
        "((rows + 1) % N) * M",
        "rows * N // 4 + rows // 4 % 8",
        "grid[(cols, 4)]",
        "x[:, None] * y[2:, 1]",
        "grad and not x.requires_grad",
    ],
)
def test_brackets_are_those_that_people_write(text: str) -> None:
    assert print_statements([assign("a", text)], "")[0].text == f"a = {text}"
