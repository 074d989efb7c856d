"""The comment that writes inputs down: what it says, where it goes, and that it reads back as the same inputs."""

import random
from dataclasses import replace
from typing import Any

import pytest
from inline_snapshot import snapshot

from fx_lsp.comments import fx_comment
from fx_lsp.features.source.pin import WIDTH, comment_text, pin, spec_text
from fx_lsp.model import CallContext, Failure, InputSource, InputSpec, Outcome, Span, Target, Trace
from fx_lsp.specs import MODE, Comment, TensorSpec, parse_comment

FILE = "/project/model.py"

FUNCTION = """\
import math
from enum import Enum


# attention, written out
@decorate
def f(q, k, scale=1.0):
    return q @ k
"""

MODULE = """\
from torch import nn


class Outer:
    class Block(nn.Module):
        def __init__(self, dim):
            super().__init__()

        def forward(
            self,
            x,
        ):
            return x
"""


def target(text: str, name: str, kind: Any = "function") -> Target:
    lines = text.split("\n")
    at = next(n for n, line in enumerate(lines, 1) if f"def {name}" in line or f"class {name}" in line)
    first = at - 1 if lines[at - 2].lstrip().startswith("@") else at
    col = len(lines[at - 1]) - len(lines[at - 1].lstrip())
    last = len(lines) - 1
    return Target(FILE, name, kind, Span(FILE, at, col, at, col + 1), Span(FILE, first, 0, last, len(lines[last - 1])))


def given(source: InputSource = "search", **specs: str) -> tuple[InputSpec, ...]:
    return tuple(InputSpec(name, spec, source) for name, spec in specs.items())


def traced(inputs: tuple[InputSpec, ...]) -> Trace:
    return Trace("", inputs, (), (), (), (), 0.1, "2.13.0")


def pinned(text: str, of: Target, outcome: Outcome, line: int | None = None) -> str | None:
    """The text after the action with the cursor at `line`, or None where nothing is offered."""
    found = pin(text, of, outcome, of.name_span.line if line is None else line)
    if found is None:
        return None
    lines = text.splitlines(keepends=True)
    offsets = [sum(map(len, lines[:n])) for n in range(len(lines) + 1)]
    for edit in sorted(found.edits, key=lambda e: (e.line, e.col), reverse=True):
        start, end = offsets[edit.line - 1] + edit.col, offsets[edit.end_line - 1] + edit.end_col
        text = text[:start] + edit.text + text[end:]
    return text


QK = traced((*given(q="f32[8, 64]", k="f32[64, 8]"), *given("default", scale="1.0")))


def test_a_function_gets_its_comment_above_its_decorators():
    after = pinned(FUNCTION, target(FUNCTION, "f"), QK)
    assert after is not None
    assert after.split("\n")[3:8] == snapshot(
        [
            "",
            "# attention, written out",
            "# fx: q=f32[8, 64], k=f32[64, 8]",
            "@decorate",
            "def f(q, k, scale=1.0):",
        ]
    )


def test_a_module_gets_its_constructor_and_its_indentation():
    inputs = (InputSpec("init.dim", "64", "annotation"), *given(x="f32[4, 64]"))
    after = pinned(MODULE, target(MODULE, "Block", "module"), traced(inputs))
    assert after is not None
    assert after.split("\n")[3:6] == snapshot(
        ["class Outer:", "    # fx: init(dim=64), x=f32[4, 64]", "    class Block(nn.Module):"]
    )


@pytest.mark.parametrize(
    ("comment", "training", "written"),
    [
        (None, "False", ["init(dim=64)", "eval()", "x=f32[4]"]),
        (None, "True", ["init(dim=64)", "train()", "x=f32[4]"]),
        ("# fx: train()", "False", ["init(dim=64)", "train()", "x=f32[4]"]),
        ("# fx: eval(), init(dim=3)", None, ["init(dim=3)", "eval()", "x=f32[4]"]),
    ],
)
def test_the_mode_is_written_too(comment: str | None, training: str | None, written: list[str]):
    text = f"{comment or ''}\n{MODULE[MODULE.index('    class') :]}"
    inputs = (InputSpec("init.dim", "64", "call site"), *given(x="f32[4]"))
    mode = () if training is None else (InputSpec(MODE, training, "call site"),)
    assert comment_text(text, (*mode, *inputs), fx_comment(text, target(text, "Block", "module"))) == written
    parsed = parse_comment(", ".join(written))
    assert isinstance(parsed, Comment)
    assert parsed.training == ("train()" in written)


def test_the_context_of_the_call_is_written_too():
    context = CallContext("no_grad", autocast=(("cuda", "bf16"),), place="train.py:3")
    inputs = (InputSpec("x", "f32[4]", "call site", requires_grad=False), *given(n="4"))
    written = comment_text("", inputs, context=context)
    assert written == ["no_grad()", 'autocast("cuda", bf16)', "x=f32[4].detach()", "n=4"]
    parsed = parse_comment(", ".join(written))
    assert isinstance(parsed, Comment)
    assert parsed.context == replace(context, place="")
    assert parsed.args["x"].detached


@pytest.mark.parametrize(("line", "offered"), [(4, False), (5, True), (7, False), (9, True), (11, True), (13, False)])
def test_it_is_offered_on_headers(line: int, offered: bool):
    assert (pinned(MODULE, target(MODULE, "Block", "module"), traced(given(x="f32[4]")), line) is not None) == offered


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# fx: q=f32[2, 2]\ndef f(q, k):\n    return q @ k\n", "# fx: q=f32[2, 2], k=f32[64, 8]\n"),
        ("# fx: q=f32[B, 2],\n# why\n# fx:\ndef f(q, k):\n    ...\n", "# fx: q=f32[B, 2], k=f32[64, 8]\n# why\n"),
        ("# fx: q=(\ndef f(q, k):\n    return q @ k\n", "# fx: q=f32[8, 64], k=f32[64, 8]\n"),
        ("def f(q, k):  # fx: q=f32[2, 2]\n    return\n", "def f(q, k):  # fx: q=f32[2, 2], k=f32[64, 8]\n"),
        ("def f(q, k):\n    # fx: q=2\n    return\n", "def f(q, k):\n    # fx: q=2, k=f32[64, 8]\n"),
    ],
)
def test_a_comment_is_completed_where_it_stands(before: str, after: str):
    found = pinned(before, target(before, "f"), QK)
    assert found is not None
    assert found == after + before[before.index("def f" if not after.startswith("def") else "    return") :]


def test_a_long_comment_has_several_lines():
    inputs = (
        InputSpec(f"{prefix}argument_{n}", "f32[8, 64, 64]", "search") for prefix in ("init.", "") for n in range(6)
    )
    after = pinned(MODULE, target(MODULE, "Block", "module"), traced(tuple(inputs)))
    assert after is not None
    lines = after.split("\n")[4:8]
    assert all(len(line) <= WIDTH for line in lines)
    assert lines == snapshot(
        [
            "    # fx: init(argument_0=f32[8, 64, 64], argument_1=f32[8, 64, 64], argument_2=f32[8, 64, 64]",
            "    # fx: argument_3=f32[8, 64, 64], argument_4=f32[8, 64, 64], argument_5=f32[8, 64, 64])",
            "    # fx: argument_0=f32[8, 64, 64], argument_1=f32[8, 64, 64], argument_2=f32[8, 64, 64]",
            "    # fx: argument_3=f32[8, 64, 64], argument_4=f32[8, 64, 64], argument_5=f32[8, 64, 64]",
        ]
    )


def test_a_long_comment_behind_code_moves_above_it():
    text = "def f(q, k):  # fx: q=f32[8, 64]\n    return q @ k\n"
    after = pinned(text, target(text, "f"), traced(given(k="{" + ", ".join(f"'{i}': {i}" for i in range(12)) + "}")))
    assert after == snapshot("""\
# fx: q=f32[8, 64]
# fx: k={'0': 0, '1': 1, '2': 2, '3': 3, '4': 4, '5': 5, '6': 6, '7': 7, '8': 8, '9': 9, '10': 10, '11': 11}
def f(q, k):
    return q @ k
""")


def test_what_the_comment_says_or_a_default_gives_is_not_offered():
    text = "# fx: q=f32[8, 64]\n" + FUNCTION
    inputs = (*given("comment", q="f32[8, 64]"), *given("default", scale="1.0"))
    assert pinned(text, target(text, "f"), traced(inputs)) is None


def test_lines_end_as_those_of_the_file():
    text = "def f(q, k):\r\n    return q @ k\r\n"
    assert pinned(text, target(text, "f"), QK) == "# fx: q=f32[8, 64], k=f32[64, 8]\r\n" + text


def test_what_was_tried_can_be_written_down_where_tracing_failed():
    failure = Failure("inputs", "no inputs were found", inputs=given(q="f32[8, 64]", k="f32[8, 64]"))
    found = pin(FUNCTION, target(FUNCTION, "f"), failure, 7)
    assert found is not None
    assert (found.title, found.mends) == snapshot(("Write a # fx: comment with the inputs that were tried", True))


@pytest.mark.parametrize(
    ("spec", "written"),
    [
        ("f32[8, 64]@cuda:0", "f32[8, 64]@cuda:0"),
        ("nan", "float('nan')"),
        ("<Enum.a: 1>", "Enum.a"),
        ("<Unknown.a: 1>", None),
        ("math.pi", "math.pi"),
        ("torch.float32", None),
        ("Config(dim=64)", None),
        ("Config(…)", None),
        ("<object object at 0x7f00>", None),
        ("1, y=2", None),
    ],
)
def test_only_what_the_file_can_say_is_written(spec: str, written: str | None):
    assert spec_text(FUNCTION, spec) == written


def test_an_input_that_cannot_be_written_is_left_out():
    assert comment_text("", given(x="f32[2]", config="Config()")) == ["x=f32[2]"]
    assert comment_text(
        "", (*given(x="f32[2]"), InputSpec("xs[0]", "f32[2]", "search"), *given(**{"xs[1]": "<f>"}))
    ) == ["x=f32[2]"]


def _paths(name: str, value: Any) -> dict[str, str]:
    """The inputs that a value is described as, as a tracer does it."""
    if isinstance(value, tuple) and value:
        items: Any = enumerate(value)
    elif isinstance(value, dict) and value:
        items = value.items()
    else:
        return {name: str(value) if isinstance(value, TensorSpec) else repr(value)}
    return {path: spec for key, item in items for path, spec in _paths(f"{name}[{key!r}]", item).items()}


def _any_value(random: random.Random, depth: int = 0) -> Any:
    def tensor() -> TensorSpec:
        sizes = tuple(random.choice([1, 2, 64, "B"]) for _ in range(random.randrange(4)))
        strides = tuple(range(len(sizes), 0, -1)) if sizes and random.random() < 0.3 else None
        return TensorSpec(random.choice(["f32", "bf16", "i64", "b8"]), sizes, strides, random.choice([None, "cuda:0"]))

    def inside() -> list[Any]:
        return [_any_value(random, depth + 1) for _ in range(random.randrange(1, 4))]

    choices: list[Any] = [
        tensor,
        tensor,
        lambda: random.choice([None, True, 3, -1, 0.5, 1e-05, "a, b]=('", "é", (), {}]),
    ]
    if depth < 2:
        choices += [
            lambda: tuple(inside()),
            lambda: {random.choice("abc") + "'[" * i: v for i, v in enumerate(inside())},
        ]
    return random.choice(choices)()


@pytest.mark.parametrize("seed", range(40))
def test_a_pinned_comment_reads_back_as_the_same_inputs(seed: int):
    chance = random.Random(seed)
    args = {f"argument_{n}": _any_value(chance) for n in range(chance.randrange(1, 7))}
    init = {f"parameter_{n}": _any_value(chance) for n in range(chance.randrange(12))}
    inputs = {
        path: spec
        for prefix, values in (("init.", init), ("", args))
        for name, value in values.items()
        for path, spec in _paths(prefix + name, value).items()
    }
    text = pinned(MODULE, of := target(MODULE, "Block", "module"), traced(given(**inputs)))
    assert text is not None
    moved = target(text, "Block", "module")
    comment = fx_comment(text, moved)
    assert comment is not None
    assert moved.name_span.line - of.name_span.line == len(comment.lines)
    assert parse_comment(comment.text) == Comment(args, init or None)
