"""Kernels as a file of the user: what stands over it, and how its open text is changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fx_lsp.features.pin import TextChange
from fx_lsp.features.written import edits, save_lens, written_lens


@pytest.mark.parametrize(
    ("standing", "conflicts", "title"),
    [
        ("current", 0, "kernels of m.py::f · up to date"),
        ("changed", 0, "kernels of m.py::f · the function has changed since then: update"),
        ("gone", 0, "kernels of m.py::f, which no longer exists"),
        ("unknown", 0, "kernels of m.py::f"),
        ("changed", 1, "kernels of m.py::f · 1 conflict to resolve"),
        ("current", 2, "kernels of m.py::f · 2 conflicts to resolve"),
    ],
)
def test_whether_it_is_up_to_date(standing: str, conflicts: int, title: str):
    lens = written_lens("m.py::f", "f", standing, conflicts)
    assert (lens.title, lens.action, lens.name) == (title, "write kernel", "f")
    assert lens.span == save_lens("f").span


def test_only_what_differs_is_changed():
    assert edits(["a\n", "b\n", "c\n", ""], ["a\n", "B\n", "c\n", ""]) == (TextChange(2, 0, 3, 0, "B\n"),)
    assert edits(["a\n", "b\n", ""], ["a\n", "b\n", "c\n", ""]) == (TextChange(3, 0, 3, 0, "c\n"),)
    assert edits(["a\n", ""], ["a\n", ""]) == ()


LINES = st.lists(st.sampled_from(["a\n", "b\n", "c\n"]), max_size=8).map(lambda lines: [*lines, ""])


@given(LINES, LINES)
def test_the_changes_make_one_text_of_the_other(before: list[str], after: list[str]):
    lines = list(before)
    for edit in reversed(edits(before, after)):
        lines[edit.line - 1 : edit.end_line - 1] = [edit.text]
    assert "".join(lines) == "".join(after)
