"""A hint that is written into the text: as jaxtyping or a comment, and never so that the program changes."""

import ast

import pytest
from inline_snapshot import snapshot

from fx_lsp.features.source.annotations import annotating

JAXTYPING = """\
import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
"""


def written(text: str, label: str) -> str | None:
    """The line of `|` in a text after the edit, or None."""
    before, _, after = text.partition("|")
    source, line = before + after, before.count("\n") + 1
    change = annotating(source, line, len(before.rpartition("\n")[2].encode()), label)
    if change is None:
        return None
    rows = source.split("\n")
    row, end = rows[change.line - 1].encode(), rows[change.end_line - 1].encode()
    rows[change.line - 1 : change.end_line] = [
        (row[: change.col] + change.text.encode() + end[change.end_col :]).decode()
    ]
    ast.parse("\n".join(rows))
    return rows[change.line - 1]


@pytest.mark.parametrize(
    ("code", "label", "shown"),
    [
        ("def f(x|): ...", ": f32[B, 64]", 'def f(x: Float[Tensor, "B _"]): ...'),
        ("def f(x: Tensor|): ...", "f32[B, T]", 'def f(x: Float[Tensor, "B T"]): ...'),
        ("def f(x: torch.Tensor| = None): ...", "~f32[]", 'def f(x: Float[Tensor, ""] = None): ...'),
        ("def f(x):\n    y| = x + 1", ": bf16[B=4, 3*C]", '    y: Float[Tensor, "B _"] = x + 1'),
        ("def f(x):\n    y| = x.long()", ": i64[B]", '    y: Shaped[Tensor, "B"] = x.long()'),
        ("def f(x, n=(lambda: 1)):\n    return x|", "-> f32[B]", 'def f(x, n=(lambda: 1)) -> Float[Tensor, "B"]:'),
        ("def f(x) -> Tensor:\n    return x|", "-> f32[B]", 'def f(x) -> Float[Tensor, "B"]:'),
        ("def f(x):\n    größe| = x", ": f32[B]", '    größe: Float[Tensor, "B"] = x'),
    ],
)
def test_a_file_with_jaxtyping_gets_its_annotations(code: str, label: str, shown: str):
    assert written(f"{JAXTYPING}\n{code}\n", label) == shown


@pytest.mark.parametrize(
    ("code", "label", "shown"),
    [
        ("def f(x):\n    a, b| = x", ": f32[B]", "    a, b = x  # b: f32[B]"),
        ("def f(x):\n    if x is None:\n        return x\n    return x|", "-> f32[B]", "    return x  # f32[B]"),
        ("class M:\n    w| = torch.ones(3)", ": f32[3]", "    w = torch.ones(3)  # f32[3]"),
        ("def f(x):\n    global y\n    y| = x", ": f32[3]", "    y = x  # f32[3]"),
        ("def f(x):\n    y| += x", ": f32[2]", "    y += x  # y: f32[2]"),
    ],
)
def test_where_no_annotation_is_possible_a_comment_is_written(code: str, label: str, shown: str):
    assert written(f"{JAXTYPING}\n{code}\n", label) == shown


def test_a_file_without_jaxtyping_gets_comments():
    assert written("def f(x):\n    y| = x + 1\n", ": ~f32[B, 64]") == snapshot("    y = x + 1  # ~f32[B, 64]")
    assert written("def f(x):\n    y| = g(\n        x\n    )\n", ": f32[4]") == snapshot("    y = g(  # f32[4]")
    assert written("def f(x):\n    return g(x).\\\n        h()|\n", "-> f32[4]") == snapshot("        h()  # f32[4]")


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("def f(x):\n    y| = x  # the sum\n", ": f32[4]"),
        ("def f(x):\n    y| = x + \\\n        1\n", ": f32[4]"),
        ('def f(x):\n    y| = """a\n    b"""\n', ": f32[4]"),
        ("def f(x|):\n    pass\n", ": f32[4]"),
        ("def f(x):\n    n| = 4\n", "=4"),
        ("def f(x):\n    y| = x\n", ": f32[4] (varies)"),
        ("def f(x:\n    y| = x\n", ": f32[4]"),
    ],
)
def test_nothing_is_written_where_an_edit_would_break_the_code_or_say_what_varies(text: str, label: str):
    assert written(text, label) is None


def test_names_that_are_imported_later_or_only_for_types_are_not_used():
    later = "def f(x|): ...\nfrom jaxtyping import Float\nfrom torch import Tensor\n"
    assert written(later, ": f32[B]") is None
    for_types = "if TYPE_CHECKING:\n    from jaxtyping import Float\nfrom torch import Tensor\ndef f(x|): ...\n"
    assert written(for_types, ": f32[B]") is None
