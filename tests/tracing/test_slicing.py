import ast
import textwrap

import pytest
from slices import marked, source_of

from fx_lsp.comments import fx_comment
from fx_lsp.tracing.slicing.module_slice import fingerprint, significant_lines, slice_source
from fx_lsp.tracing.source.targets import discover


def kept(source: str, name: str = "f") -> str:
    """The slice without its blank lines; checks that positions stayed and that it parses."""
    text = textwrap.dedent(source)
    sliced = slice_source(text, name)
    before, after = text.split("\n"), sliced.split("\n")
    assert len(before) == len(after)
    for old, new in zip(before, after, strict=True):
        code = new.replace("0;", "  ", 1) if new.startswith("0;") else new
        assert all(o == n or n in b" ;" for o, n in zip(old.encode(), code.encode(), strict=False))
    ast.parse(sliced)
    return "\n".join(line for line in after if line.strip())


def test_a_training_script_is_sliced_to_what_the_function_needs() -> None:
    text = '''
        """A script."""  #-
        from __future__ import annotations
        import argparse, os  #-
        import torch
        from torch import nn  #-
        import matplotlib.pyplot as plt  #-

        # Scale of everything.  #-
        SCALE = 2.0
        UNUSED = print("never")  #-
        parser = argparse.ArgumentParser()  #-
        args = parser.parse_args()  #-

        def helper(x, scale=SCALE):
            # inside
            return x * scale

        def f(x):
            """Doc."""
            args = 3
            return helper(torch.relu(x)) + args

        model = nn.Linear(4, 4)  #-
        for epoch in range(10):  #-
            loss = f(model(torch.randn(4))).sum()  #-
            loss.backward()  #-
        print(loss)  #-
        if __name__ == "__main__":  #-
            SCALE = 3  #-
        '''
    source = source_of(text)
    kept(source)
    assert marked(source, slice_source(source, "f")) == textwrap.dedent(text)


@pytest.mark.parametrize(
    "statement",
    [
        "NAME = 1",
        "NAME: int = 1",
        "a, (NAME, *b) = 1, (2, 3)",
        "import NAME",
        "import NAME.sub",
        "import x as NAME",
        "from x import y as NAME",
        "def NAME(): pass",
        "class NAME: pass",
        "for NAME in range(3): pass",
        "with a as NAME: pass",
        "try:\n    import NAME\nexcept ImportError:\n    NAME = None",
        "if a:\n    NAME = 1\nelse:\n    NAME = 2",
        "while (NAME := step()): pass",
        "print(NAME := 3)",
        "if TYPE_CHECKING:\n    import NAME",
        "match a:\n    case [NAME]: pass",
        "[i for i in (NAME := [3])]",
        "NAME = 1\nNAME += 1",
        "NAME = 1\nNAME.attr = 2",
        "NAME = {}\nNAME['k'] = 2",
        "NAME = []\nNAME.append(2)",
        "NAME = OrderedDict()\nNAME.update(a=2)",
        "def NAME(): pass\n@NAME.register\ndef _(x): pass",
        "NAME = 1\nNAME = 2",
    ],
)
def test_every_statement_that_binds_or_changes_a_needed_name_is_kept(statement: str) -> None:
    assert kept(f"{statement}\ndef f(x): return NAME") == f"{statement}\ndef f(x): return NAME"


@pytest.mark.parametrize(
    "function",
    [
        "@NAME\ndef f(x): pass",
        "def f(x=NAME): pass",
        "def f(*, x=NAME): pass",
        "def f(x: NAME): pass",
        "def f(x: 'NAME | None'): pass",
        "def f(x) -> 'list[NAME]': pass",
        "def f(x):\n    def g(): return NAME\n    return g",
        "def f(x): return lambda y: NAME + y",
        "def f(x): return [NAME for y in x]",
        "def f(x):\n    global NAME\n    NAME = 1",
        "class f(NAME): pass",
        "class f(metaclass=NAME): pass",
        "class f:\n    def m(self): return NAME",
        "class f:\n    NAME = 1\n    def m(self): return NAME",
        "class f:\n    x = NAME",
    ],
)
def test_names_are_read_everywhere_in_a_definition(function: str) -> None:
    assert kept(f"NAME = 1\nOTHER = 2\n{function}") == f"NAME = 1\n{function}"


@pytest.mark.parametrize(
    "function",
    [
        "def f(NAME): return NAME",
        "def f(x):\n    NAME = x\n    return NAME",
        "def f(x):\n    for NAME in x: print(NAME)",
        "def f(x): return [NAME for NAME in x]",
        "def f(x): return lambda NAME: NAME",
        "def f(x):\n    NAME = x\n    return lambda: NAME",
        "def f(x):\n    import NAME\n    return NAME.y",
        "def f(x):\n    with x as NAME: return NAME",
        "def f(x):\n    try: pass\n    except E as NAME: NAME",
        "def f(x: Literal['NAME']): pass",
        "class f:\n    NAME = 1\n    other = NAME",
    ],
)
def test_local_names_do_not_reach_module_level(function: str) -> None:
    assert kept(f"NAME = train()\n{function}") == function


def test_statements_that_change_something_else_are_dropped() -> None:
    code = "import a\na.run()\nb = A()\nb.append(1)\nfor i in a.data: loss.backward()\ndel a\ndef f(x): return a, b, i"
    assert kept(code) == "import a\nb = A()\nb.append(1)\ndef f(x): return a, b, i"


def test_what_decides_how_imports_work_is_always_kept() -> None:
    code = "import sys\nsys.path.insert(0, 'lib')\nfrom helpers import *\nimport os\ndef f(x): return x"
    assert kept(code) == "import sys\nsys.path.insert(0, 'lib')\nfrom helpers import *\ndef f(x): return x"


def test_input_conventions_are_part_of_what_a_target_needs() -> None:
    code = "import a\nexample_inputs = (1,)\ndef get_inputs(): return a.b\ndef f(x): return x"
    assert kept(code) == code


def test_a_method_keeps_its_class_whole() -> None:
    code = "class A:\n    def f(self): pass\n    def g(self): pass"
    assert kept(code, "A.f") == code


def test_statements_that_share_a_line_keep_their_columns() -> None:
    assert kept("a = 1; train()\ndef f(x): return a") == "a = 1\ndef f(x): return a"
    assert kept("train(); a = 1\ndef f(x): return a") == "0;       a = 1\ndef f(x): return a"
    assert kept("a = 1; train(); b = 2; c = 3\ndef f(x): return a, b") == "a = 1;          b = 2\ndef f(x): return a, b"
    assert kept("train(\n); a = 1\ndef f(x): return a") == "0; a = 1\ndef f(x): return a"
    assert kept("é = 1; a = 'ü'; b\ndef f(x): return a") == "0;      a = 'ü'\ndef f(x): return a"
    assert kept("a = 1; \\\n  b = 2\ndef f(x): return a, b") == "a = 1; \\\n  b = 2\ndef f(x): return a, b"


def test_text_that_does_not_parse_stays() -> None:
    assert slice_source("def f(:", "f") == "def f(:"


BASE = 'A = """x\n\n# no comment\n"""\n\n\ndef f(x):\n    return x, A\n'


@pytest.mark.parametrize(
    "same",
    [
        "\n\n# a comment\n" + BASE,
        BASE.replace("\n\n\ndef", "\n# comment\ndef"),
        BASE.replace("def f(x):\n", "def f(x):\n\n    # a comment\n"),
        "import os\n" + BASE + "train()\n",
        BASE.replace("\n", "\r\n"),
    ],
)
def test_the_fingerprint_ignores_where_the_slice_stands(same: str) -> None:
    assert fingerprint(slice_source(same, "f")) == fingerprint(slice_source(BASE, "f"))


@pytest.mark.parametrize(
    "other",
    [
        BASE.replace("# no comment", "# a comment"),
        BASE.replace("x\n\n#", "x\n#"),
        BASE.replace("return x", "return  x"),
        BASE.replace("    return", "  return"),
        BASE.replace("x, A", "A, x"),
        BASE.replace("def f(x):\n", "def f(x):  # comment\n"),
    ],
)
def test_the_fingerprint_tells_every_other_text_apart(other: str) -> None:
    assert fingerprint(slice_source(other, "f")) != fingerprint(slice_source(BASE, "f"))


def test_significant_lines_pair_up_between_texts_of_one_fingerprint() -> None:
    moved = "import os\n\n" + BASE.replace("    return", "    # comment\n    return")
    assert significant_lines(slice_source(BASE, "f")) == (1, 2, 3, 4, 7, 8)
    assert significant_lines(slice_source(moved, "f")) == (3, 4, 5, 6, 9, 11)


@pytest.mark.parametrize(
    ("text", "comment", "lines"),
    [
        ("# fx: x=f32[2]\ndef f(x: 'Tensor'): return x", "x=f32[2]", (1, 1)),
        ("#fx:x=f32[2]\n# why\n@deco\n@deco(2)\ndef f(x: 'Tensor'): return x", "x=f32[2]", (1, 1)),
        ("# fx: x=f32[2]\n# fx: y=3\ndef f(x: 'Tensor', y): return x", "x=f32[2], y=3", (1, 2)),
        ("def f(x: 'Tensor'):  # fx: x=f32[2]\n    return x", "x=f32[2]", (1, 1)),
        ("def f(\n    x: 'Tensor',\n):  # fx: x=f32[2]\n    return x", "x=f32[2]", (3, 3)),
        ("def f(x: 'Tensor'): return x  # fx: x=f32[2]", "x=f32[2]", (1, 1)),
        ("def f(x: 'Tensor'):\n    # fx: x=f32[2]\n    # fx: y=3\n    return x", "x=f32[2], y=3", (2, 3)),
        ("def f(x: 'Tensor'):\n    '''Doc.\n    '''\n    # fx: x=f32[2]\n    return x", "x=f32[2]", (4, 4)),
        ("# fx: x=f32[2]\n\ndef f(x: 'Tensor'): return x", None, None),
        ("def f(x: 'Tensor'):\n    y = x\n    # fx: x=f32[2]\n    return y", None, None),
        ("def f(x: 'Tensor'):\n    return x\n# fx: x=f32[2]\n", None, None),
        ("def f(x: 'Tensor', s='# fx: x=1'):\n    return x", None, None),
    ],
)
def test_the_comment_with_inputs(text: str, comment: str | None, lines: tuple[int, int] | None) -> None:
    (target,) = discover("/m.py", text).targets
    found = fx_comment(text, target)
    assert (found and found.text) == comment
    assert (found and found.span and (found.span.line, found.span.end_line)) == lines


def test_the_comment_span_counts_bytes() -> None:
    (target,) = discover("/m.py", text := "def f(x: 'Tensor', y='é'): # fx: y='ü'  \n    return x").targets
    found = fx_comment(text, target)
    assert found is not None and found.span is not None
    span = found.span
    assert text.split("\n")[0].encode()[span.col : span.end_col].decode() == "# fx: y='ü'"
