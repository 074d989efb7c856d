"""The lines of the user's file that times by line belong to."""

import pytest

from fx_lsp.tracing.source.copies import own_line

SOURCE = """\
import torch
from torch import nn


def helper(x):
    return x.sin()


class Block(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, mask=None):
        x = helper(x) if mask is None else helper(x).masked_fill(mask, 0.0)
        for _ in range(2):
            x = x @ x
        return x
"""
GENERATED = '''\
"""block"""
import torch


def block(x):
    return x


def original():
    """Return what the kernels were generated from."""
    from torch import nn

    def helper(x):
        return x.sin()

    class Block(nn.Module):
        def __init__(self):
            super().__init__()

        def forward(self, x, mask=None):
            x = (helper(x) if mask is None
                 else helper(x).masked_fill(mask, 0.0))
            for _ in range(2):
                x = x @ x
            return x

    return Block.__call__, {"module": Block()}
'''


def line_of(text: str, code: str) -> int:
    return next(n for n, line in enumerate(text.splitlines(), 1) if code in line)


@pytest.mark.parametrize("code", ["return x.sin()", "x = x @ x"])
def test_a_line_is_found_where_it_was_copied_from(code: str):
    assert own_line(GENERATED, line_of(GENERATED, code), SOURCE) == line_of(SOURCE, code)


def test_a_line_that_was_broken_into_two_belongs_to_the_one_line():
    whole = line_of(SOURCE, "helper(x) if mask")
    assert own_line(GENERATED, line_of(GENERATED, "x = (helper"), SOURCE) == whole
    assert own_line(GENERATED, line_of(GENERATED, "else helper"), SOURCE) == whole


def test_what_the_user_did_not_write_has_no_line():
    assert own_line(GENERATED, line_of(GENERATED, "    return x\n".strip()), SOURCE) == 0
    assert own_line(GENERATED, line_of(GENERATED, "return Block"), SOURCE) == 0
    assert own_line(GENERATED, 2, SOURCE) == 0


def test_a_function_that_was_edited_since_has_no_lines():
    edited = SOURCE.replace("x @ x", "x @ x + 1")
    assert own_line(GENERATED, line_of(GENERATED, "x = x @ x"), edited) == 0
    assert own_line(GENERATED, line_of(GENERATED, "x.sin()"), edited) == line_of(SOURCE, "x.sin()")
