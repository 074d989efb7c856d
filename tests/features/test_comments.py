"""Problems of `# fx:` comments: the characters under the carets, and the message."""

from __future__ import annotations

import textwrap
from dataclasses import replace

import pytest
from inline_snapshot import snapshot

from fx_lsp.features.comments import comment_problems, without_doubles
from fx_lsp.features.problems import problems
from fx_lsp.model import Failure, Span
from fx_lsp.specs import Comment, Expression, parse_comment
from fx_lsp.tracing.source.targets import discover

FILE = "/project/model.py"


def found(text: str) -> tuple[str, list[tuple[str, str]]]:
    """The text without its caret lines, and what is marked in it, with the message."""
    text = textwrap.dedent(text).strip("\n") + "\n"
    carets = [line for line in text.split("\n") if line.strip() and set(line) <= {" ", "^"}]
    plain = "\n".join(line for line in text.split("\n") if line not in carets)
    marked: list[tuple[str, str]] = []
    for problem in comment_problems(FILE, plain, discover(FILE, plain).targets):
        span = problem.span
        assert span.line == span.end_line
        line = plain.split("\n")[span.line - 1].encode()
        marked.append((line[span.col : span.end_col].decode(), problem.message))
        shown = " " * len(line[: span.col].decode()) + "^" * len(line[span.col : span.end_col].decode())
        assert shown in carets, f"marked {marked[-1]}, not what is above a caret"
    assert len(marked) == len(carets)
    return plain, marked


def message(text: str) -> str:
    (only,) = found(text)[1]
    return only[1]


def test_what_does_not_parse():
    assert message("""
        # fx: x=f32[8, y=3
                   ^
        def f(x, y):
            return x @ y
    """) == snapshot("cannot parse the `# fx:` comment: not `name=value, …`: '[' was never closed.")


@pytest.mark.parametrize("value", ["-" * 5000 + "1", "a" + ".b" * 2000, "1" + " + a" * 1500])
def test_what_is_nested_too_deeply(value: str):
    text = f"# fx: x={value}\ndef f(x):\n    return x @ x\n"
    (problem,) = comment_problems(FILE, text, discover(FILE, text).targets)
    assert problem.message == "cannot parse the `# fx:` comment: the comment is nested too deeply."


@pytest.mark.parametrize("value", ["{a + 1: 2}", "{[1]: 2}", "{[1]}", "{**a}"])
def test_a_value_that_is_no_literal_is_an_expression(value: str):
    assert parse_comment(f"x={value}") == Comment({"x": Expression(value)})


def test_the_place_on_one_of_several_lines():
    assert message("""
        # fx: é='ü',
        # fx: x=f23[8]
                ^^^
        @decorate
        def f(x, é):
            return x @ é
    """).startswith("cannot parse the `# fx:` comment: unknown dtype `f23`; one of f64, ")


def test_a_parameter_that_is_not_there():
    assert message("""
        def f(x, *, y=None):  # fx: x=f32[8], z=3
                                              ^
            return x @ y
    """) == snapshot("f has no parameter `z`; its parameters are x, y.")


def test_a_function_is_not_constructed():
    assert message("""
        # fx: init(dim=3), x=f32[8]
              ^^^^
        def f(x):
            return x.sin()
    """) == snapshot("`init(…)` only applies to modules and methods; f is a function.")


def test_a_function_has_no_mode():
    assert message("""
        # fx: eval(), x=f32[8]
              ^^^^^^
        def f(x):
            return x.sin()
    """) == snapshot("`eval()` only applies to modules and methods; f is a function.")


def test_a_mode_has_parentheses_and_comes_before_the_inputs():
    assert message("""
        # fx: eval, x=f32[8]
              ^^^^
        def f(x):
            return x.sin()
    """).endswith("write the mode as `eval()`.")
    assert message("""
        # fx: x=f32[8], eval()
              ^^^^^^^^^^^^^^^^
        def f(x):
            return x.sin()
    """).endswith("`init(…)` and `eval()` come first, and every input is written as `name=value`.")


def test_a_constructor_argument_that_is_not_there():
    assert message("""
        import torch
        from torch import nn

        # fx: init(dim=3, width=4), x=f32[8]
                          ^^^^^
        class Block(nn.Module):
            def __init__(self, dim):
                super().__init__()

            def forward(self, x):
                return x
    """) == snapshot("Block's constructor has no parameter `width`; its parameters are dim.")


def test_an_input_that_is_given_twice():
    assert (
        message("""
        # fx: x=f32[8], x=f32[4]
                        ^
        def f(x):
            return x.sin()
    """)
        == "`x` is given twice."
    )


def test_a_comment_at_nothing():
    assert message("""
        # fx: x=f32[8]
        ^^^^^^^^^^^^^^

        def f(x):
            return x.sin()
    """) == snapshot(
        "This comment is not attached to a function or class: write it directly above one, or first in its body."
    )


@pytest.mark.parametrize(
    "text",
    [
        "# fx: x=f32[8], y=2\ndef f(x, **rest):\n    return x.sin()\n",
        "# fx: x=f32[8], y=2\n@changes_the_signature\ndef f(x):\n    return x.sin()\n",
        "# fx: init(a=1), x=f32[8]\nclass Block(Base):\n    def forward(self, x):\n        return x.sin()\n",
        "# fx: eval(), x=f32[1]\nclass Block(nn.Module):\n    def forward(self, x):\n        return x.sin()\n",
        "# fx: text=3\ndef prints(text):\n    print(text)\n",
        'def f(x):\n    """As in\n    # fx: x=f32[8]\n    """\n    return x.sin()\n',
        "# fx:\ndef f(x):\n    return x.sin()\n",
        "# fx: x=f32[8]\n\ndef f(x:\n",
        "from torch import fx\n\n# fx: x=f32[8]\ndef built():\n    graph = fx.Graph()\n"
        "    graph.output(graph.placeholder('x'))\n    return graph\n",
    ],
    ids=[
        "kwargs",
        "decorator",
        "inherited constructor",
        "a mode",
        "no tensors",
        "in a string",
        "empty",
        "a broken file",
        "placeholders",
    ],
)
def test_what_is_no_problem(text: str):
    assert comment_problems(FILE, text, discover(FILE, text).targets) == ()


def test_tracing_does_not_say_it_again():
    text = "# fx: z=f32[8]\ndef f(x):\n    return x.sin()\n"
    (target,) = discover(FILE, text).targets
    own = comment_problems(FILE, text, [target])
    met = Failure("comment", "f has no parameter `z`", Span(FILE, 1, 0, 1, 14), severity="error")
    assert without_doubles(own, problems(FILE, [(target, met)], None)) == own
    elsewhere = replace(met, message="cannot parse the inputs in pyproject.toml", span=None)
    assert len(without_doubles(own, problems(FILE, [(target, elsewhere)], None))) == 2


def test_what_the_project_says_wrongly_stands_at_the_name():
    text = "import torch\n\ndef f(x):\n    return torch.sin(x)\n"
    (target,) = discover(FILE, text).targets
    met = Failure("comment", "cannot parse the inputs in pyproject.toml: no dtype", None, severity="error")
    (problem,) = problems(FILE, [(target, met)], None)
    assert problem.span == target.name_span
    assert problem.message == "cannot parse the inputs in pyproject.toml: no dtype."
