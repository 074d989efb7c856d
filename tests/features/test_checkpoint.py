"""Statements as a checkpoint: which they are, what they take and give, and the text with them rewritten."""

import ast
import textwrap
from dataclasses import replace

import pytest
from inline_snapshot import snapshot
from samples import FILE, TRACE

from fx_lsp.features.source.checkpoint import Checkpoint, checkpoint
from fx_lsp.model import ObservedValue, Span, StageInfo, Target

OPEN, CLOSE = "# [", "# ]"


def offered(source: str) -> tuple[Checkpoint | None, str]:
    """What is offered for the lines between the marks, which are then blank; and the text."""
    text = textwrap.dedent(source).lstrip("\n")
    lines = text.splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if OPEN in line) + 1
    last = next(i for i, line in enumerate(lines) if CLOSE in line)
    text = "".join(line for line in lines if OPEN not in line and CLOSE not in line)
    everything = Span(FILE, 1, 0, text.count("\n") + 1, 0)
    values = tuple(ObservedValue(Span(FILE, n, 0, n, 1), "", "f32[2]") for n in range(1, text.count("\n") + 1))
    trace = replace(TRACE, values=values, stages=(StageInfo("forward", 1, 1), StageInfo("backward", 1, 1)))
    return checkpoint(text, Target(FILE, "f", "function", everything, everything), trace, first, last - 1), text


def rewritten(source: str) -> str | None:
    """The text after the edit, or None where there is none."""
    found, text = offered(source)
    if found is None or not found.edits:
        return None
    lines = text.splitlines(keepends=True)
    for edit in sorted(found.edits, key=lambda e: e.line, reverse=True):
        tail = lines[edit.end_line - 1].encode()[edit.end_col :].decode()
        lines[edit.line - 1 : edit.end_line] = [lines[edit.line - 1][: edit.col] + edit.text + tail]
    result = "".join(lines)
    ast.parse(result)
    return result


def test_statements_become_a_function_that_is_called_through_checkpoint():
    assert rewritten("""
        import torch
        import torch.nn.functional as F

        def f(x, w, v):
            h = x @ w
            # [
            a = F.gelu(h)  # the activation
            p = torch.softmax(a * a, -1)
            # ]
            return (p @ v).sum()
        """) == snapshot("""\
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

def f(x, w, v):
    h = x @ w

    def region(h):
        a = F.gelu(h)  # the activation
        p = torch.softmax(a * a, -1)
        return p

    p = checkpoint(region, h, use_reentrant=False)
    return (p @ v).sum()
""")


def test_self_stays_what_it_is_and_a_loop_hands_its_values_on():
    assert rewritten("""
        '''A model.'''
        from torch import nn

        class Net(nn.Module):
            def forward(self, x, mask):
                seen = None
                for layer in self.layers:
                    # [
                    h = self.norm(x)
                    x = x + layer(h, mask)
                    # ]
                    seen = h
                return x, seen
        """) == snapshot("""\
'''A model.'''
from torch import nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def forward(self, x, mask):
        seen = None
        for layer in self.layers:
            def region(x, layer, mask):
                h = self.norm(x)
                x = x + layer(h, mask)
                return h, x

            h, x = checkpoint(region, x, layer, mask, use_reentrant=False)
            seen = h
        return x, seen
""")


def test_what_is_bound_in_one_branch_only_goes_in_as_well():
    assert rewritten("""
        def f(x, flag):
            y = x
            # [
            if flag:
                y = x.sin()
            # ]
            return y
        """) == snapshot("""\
from torch.utils.checkpoint import checkpoint


def f(x, flag):
    y = x

    def region(flag, x, y):
        if flag:
            y = x.sin()
        return y

    y = checkpoint(region, flag, x, y, use_reentrant=False)
    return y
""")


def test_tabs_texts_of_several_lines_and_names_that_are_taken():
    assert rewritten(
        "import torch.utils.checkpoint as cp\n\ndef region(x):\n\treturn x\n\ndef f(x):\n\t# [\n"
        '\tname = """\na\n"""\n\ty = region(x)\n\t# ]\n\treturn y, name\n'
    ) == snapshot('''\
import torch.utils.checkpoint as cp

def region(x):
	return x

def f(x):
	def region_2(x):
		name = """
a
"""
		y = region(x)
		return name, y

	name, y = cp.checkpoint(region_2, x, use_reentrant=False)
	return y, name
''')


def test_a_call_that_is_too_long_is_broken():
    names = [f"a_rather_long_name_of_an_input_{n}" for n in range(3)]
    text = rewritten(f"def f({', '.join(names)}):\n    # [\n    y = {' + '.join(names)}\n    # ]\n    return y\n")
    assert text is not None
    assert text[text.index("    def region") :] == snapshot("""\
    def region(
        a_rather_long_name_of_an_input_0,
        a_rather_long_name_of_an_input_1,
        a_rather_long_name_of_an_input_2,
    ):
        y = a_rather_long_name_of_an_input_0 + a_rather_long_name_of_an_input_1 + a_rather_long_name_of_an_input_2
        return y

    y = checkpoint(
        region,
        a_rather_long_name_of_an_input_0,
        a_rather_long_name_of_an_input_1,
        a_rather_long_name_of_an_input_2,
        use_reentrant=False,
    )
    return y
""")


@pytest.mark.parametrize(
    ("imports", "call", "new"),
    [
        ("from torch.utils.checkpoint import checkpoint", "checkpoint(", ""),
        ("from torch.utils.checkpoint import checkpoint as ckpt", "ckpt(", ""),
        ("import torch.utils.checkpoint", "torch.utils.checkpoint.checkpoint(", ""),
        ("from torch.utils import checkpoint", "checkpoint.checkpoint(", ""),
        ("import torch", "checkpoint(", "from torch.utils.checkpoint import checkpoint\n"),
        ("checkpoint = 3", "checkpoint_2(", "from torch.utils.checkpoint import checkpoint as checkpoint_2\n"),
        ("from __future__ import annotations", "checkpoint(", "from torch.utils.checkpoint import checkpoint\n"),
    ],
)
def test_the_import_is_added_where_it_is_missing(imports, call, new):
    text = rewritten(f"{imports}\n\ndef f(x):\n    # [\n    y = x.sin()\n    # ]\n    return y\n")
    assert text is not None
    assert f"    y = {call}region, x, use_reentrant=False)\n" in text
    assert text.startswith(f"{imports}\n{new}\n") or text.startswith(f"{new}\n\n{imports}\n")


def test_line_ends_stay():
    text = rewritten("import torch\r\ndef f(x):\r\n    # [\r\n    y = x.sin()\r\n    # ]\r\n    return y\r\n")
    assert text is not None
    assert text.count("\r\n") == text.count("\n")


UNSAFE = {
    "it returns": "if x.ndim:\n    return x\ny = x.sin()",
    "it yields": "y = x.sin()\nyield y",
    "it waits": "y = await x",
    "it breaks": "for _ in x:\n    y = x\n    break",
    "a global": "global G\ny = x.sin()",
    "nothing comes out": "x.sin()",
    "nothing that is read comes out": "z = x.sin()",
    "an input is changed in place": "x += 1\ny = x.sin()",
    "so is one by another name": "z = x\nz += 1\ny = z.sin()",
    "by a method": "x.add_(1)\ny = x",
    "by an index": "x[0] = 1\ny = x.sin()",
    "an attribute is set": "x.scale = 1\ny = x.sin()",
    "a list grows": "seen.append(x)\ny = x.sin()",
    "super() needs its method": "y = super().f(x)",
    "not sure to be bound": "if x.ndim:\n    y = x.sin()",
    "not sure to be bound before": "y = x + maybe",
    "a closure reads it": "y = x.sin()\nz = late()",
}


@pytest.mark.parametrize("statements", UNSAFE.values(), ids=UNSAFE.keys())
def test_there_is_no_edit_where_it_would_not_be_safe(statements):
    body = textwrap.indent(statements, "    ")
    head = "async def f(x, seen):\n    if seen:\n        maybe = 1\n    late = lambda: z\n"
    found, _ = offered(f"{head}    # [\n{body}\n    # ]\n    return y\n")
    assert found is not None
    assert found.edits == ()


@pytest.mark.parametrize(
    "statements",
    [
        "y = x.sin()",
        "y = x + 1\ny += 1",
        "y = [v.sin() for v in seen]",
        "y = (lambda v: v + x)(1)",
        "def g(v):\n    return v\ny = g(x)",
        "with no_grad() as context:\n    y = x.sin()",
        "if x.ndim:\n    y = 1\nelse:\n    y = x",
        "if (n := len(seen)) > 1:\n    pass\ny = n",
    ],
)
def test_there_is_one_where_it_is_safe(statements):
    body = textwrap.indent(statements, "    ")
    assert rewritten(f"def f(x, seen):\n    # [\n{body}\n    # ]\n    return y\n") is not None


@pytest.mark.parametrize(
    "source",
    [
        "def f(x):\n    z = 1; \\\n# [\n    y = x\n# ]\n    return y\n",
        "def f(x):\n    # [\n    y = x.sin(); \\\n    # ]\n    return y\n",
        "def f(x):\n    if x.ndim:\n        y = x\n    # [\n    elif x:\n        y = 2\n    # ]\n    return y\n",
        "# [\ndef f(x): y = x; return y\n# ]\n",
    ],
)
def test_statements_without_lines_of_their_own_are_left_alone(source):
    found, _ = offered(source)
    assert found is None or not found.edits


def test_a_cursor_is_the_statement_around_it():
    source = (
        "def f(x):\n    # [\n    # ]\n    for _ in x:\n        x = (\n            x.sin()\n        )\n    return x\n"
    )
    for line, work in {2: "checkpoint=2-5", 3: "checkpoint=3-5", 4: "checkpoint=3-5", 6: "checkpoint=6-6"}.items():
        text = source.replace(f"    {OPEN}\n    {CLOSE}\n", "").splitlines(keepends=True)
        text[line - 1 : line] = [f"{OPEN}\n", text[line - 1], f"{CLOSE}\n"]
        found, _ = offered("".join(text))
        assert found is not None and found.work == work


def test_nothing_is_offered_where_nothing_is_saved():
    text = "def f(x):\n    y = x.sin()\n    return y\n"
    span = Span(FILE, 1, 0, 3, 12)
    target = Target(FILE, "f", "function", span, span)
    trace = replace(TRACE, values=(ObservedValue(Span(FILE, 2, 4, 2, 5), "y", "f32[2]"),))
    assert trace.info("backward") is not None and checkpoint(text, target, trace, 2, 2) is not None
    assert checkpoint(text, target, trace, 3, 3) is None
    assert checkpoint(text, target, trace, 1, 1) is None
    assert checkpoint(text, target, replace(trace, stages=(StageInfo("inference", 1, 1),)), 2, 2) is None
