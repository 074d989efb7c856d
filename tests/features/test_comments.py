"""Problems of `# fx:` comments; `tests/shown/cases/comments.py` has their places and messages."""

from dataclasses import replace

import pytest

from fx_lsp.features.source.comments import comment_problems, without_doubles
from fx_lsp.features.wording.problems import problems
from fx_lsp.model import Failure, Span
from fx_lsp.specs import Comment, Expression, parse_comment
from fx_lsp.tracing.source.targets import discover

FILE = "/project/model.py"


@pytest.mark.parametrize("value", ["-" * 5000 + "1", "a" + ".b" * 2000, "1" + " + a" * 1500])
def test_what_is_nested_too_deeply(value: str):
    text = f"# fx: x={value}\ndef f(x):\n    return x @ x\n"
    (problem,) = comment_problems(FILE, text, discover(FILE, text).targets)
    assert problem.message == "cannot parse the `# fx:` comment: the comment is nested too deeply."


@pytest.mark.parametrize("value", ["{a + 1: 2}", "{[1]: 2}", "{[1]}", "{**a}"])
def test_a_value_that_is_no_literal_is_an_expression(value: str):
    assert parse_comment(f"x={value}") == Comment({"x": Expression(value)})


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
