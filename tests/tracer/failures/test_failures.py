"""What goes wrong stands on the expression that caused it, in a sentence."""

import tempfile

import pytest
from inline_snapshot import snapshot

from fx_lsp.features.wording.traces import summarize
from fx_lsp.model import InputSpec
from fx_lsp.tracer.failures.exceptions import comment_hint

PRELUDE = "import torch\nfrom torch import nn, Tensor\nimport torch.nn.functional as F\n"


def where(traced):
    return traced.at(traced.failure.span)


@pytest.mark.parametrize(
    ("mask", "part"),
    [
        ("torch.zeros(4, 8, 5).bool()", "[4, 8, 5] at index 2"),
        ("slice(None), torch.zeros(8, 3).bool()", "[8, 3] at index 1"),
        ("torch.zeros(5).bool()", "[5] at index 0"),
        ("torch.zeros(4, 8, 12, 3, 2).bool()", "too many indices"),
    ],
)
def test_a_mask_that_does_not_fit_is_reported_by_the_dimension_that_differs(trace, mask: str, part: str):
    traced = trace(PRELUDE + f"# fx: x=f32[4, 8, 12, 3]\ndef f(x: Tensor):\n    return x[{mask}].sum()\n")
    assert part in traced.failure.message


def test_code_with_effects(trace, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))  # where writing is allowed
    target = tmp_path / "weights.pt"
    traced = trace(
        PRELUDE
        + f"""
# fx: x=f32[4, 8]
def f(x: Tensor):
    y = x * 2
    with open({str(target)!r}, "w") as out:
        out.write("x")
    return y
"""
    )
    assert traced.failure.kind == "effect"
    assert "weights.pt" in traced.failure.message
    assert not target.exists()


def test_an_error_in_an_import(trace, tmp_path):
    (tmp_path / "helpers.py").write_text("import torch\nraise ValueError('broken config')\n")
    traced = trace(
        PRELUDE
        + """
from helpers import g

def f(x: Tensor):
    return g(x)
"""
    )
    assert traced.failure.kind == "import"
    assert "broken config" in traced.failure.message
    assert where(traced) == "from helpers import g"


def test_a_dimension_that_is_not_there_where_fake_tensors_let_it_pass(trace):
    for call in ("x.softmax(dim=3)", "F.log_softmax(x, -4)", "torch.sort(x, 3)"):
        traced = trace(PRELUDE + f"def f(x):\n    y = x.sin()\n    return {call}\n", comment="x=f32[3, 4]")
        assert (traced.failure.kind, traced.failure.severity, where(traced)) == ("shape", "error", call)
        assert "expected to be in range of [-2, 1]" in traced.failure.message
        assert "f32[3, 4])" in traced.failure.message


def test_what_is_written_in_place_fails_for_its_own_reason(trace):
    traced = trace(PRELUDE + "def f(x, y):\n    x += y\n    return x\n", comment="x=f32[1, 4], y=f32[3, 4]")
    assert (traced.failure.kind, traced.failure.severity, where(traced)) == ("shape", "error", "x += y")
    assert "leaf" not in traced.failure.message
    assert "(x: f32[1, 4], y: f32[3, 4])" in traced.failure.message


def test_fake_tensors_are_tensors_to_the_user(trace):
    traced = trace(PRELUDE + "def f(x: Tensor):\n    return x.foo()\n", comment="x=f32[3]")
    assert traced.failure.message == "AttributeError: 'Tensor' object has no attribute 'foo'"


def test_the_tensor_that_is_indexed_has_its_name(trace):
    traced = trace(PRELUDE + "def f(x: Tensor):\n    return x[5]\n", comment="x=f32[3, 4]")
    assert "(x: f32[3, 4])" in traced.failure.message


def test_a_hint_is_a_comment_as_it_may_be_written(trace):
    source = """
class Net(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.layer = nn.Linear(dim, dim)

    def forward(self, x):
        return self.layer(x).view(x.shape[-1], 9)
"""
    traced = trace(PRELUDE + source, "Net", comment="x=f32[4, 7, 3, 2, 5]")
    assert "# fx: init.dim" not in traced.failure.hint
    assert "`# fx: init(dim=" in traced.failure.hint


def test_a_value_that_backward_needs_and_that_is_written_over(trace):
    traced = trace(PRELUDE + "def f(x):\n    y = x.exp()\n    y.mul_(2)\n    return y.sum()\n", comment="x=f32[4]")
    assert traced.trace.notes[-1] == (
        "it has no backward graph: backward needs the result of `Exp`, of shape [4], "
        "but it is modified in place afterwards"
    )
    assert summarize(traced.trace) == "3 ops · cannot be differentiated"


def test_what_guesses_come_to_begins_with_the_fact_and_ends_with_the_comment(trace):
    failure = trace(
        PRELUDE
        + """
class Config:
    pass

def f(x: Tensor, layers, config: Config, scale=2.0):
    for layer in layers:
        x = x.nothing + layer.weight
    return x.reshape(config.shape_of_all) * scale
"""
    ).failure
    assert (failure.kind, failure.severity) == ("inputs", "information")
    assert failure.message == snapshot("AttributeError: 'Tensor' object has no attribute 'nothing'")
    assert failure.hint == snapshot(
        "The inputs are guessed; write the real ones in a comment: `# fx: x=f32[4, 64], layers=f32[8, 96], config=…`."
    )


def test_a_constructor_that_fails_says_so_after_the_fact(trace):
    failure = trace(
        PRELUDE
        + """
class Net(nn.Module):
    def __init__(self, dim, path):
        super().__init__()
        self.layer = nn.Linear(dim, len(path.width))

    def forward(self, x):
        return self.layer(x)
""",
        "Net",
    ).failure
    assert failure.kind == "construct"
    assert failure.message == snapshot("TypeError: object of type 'int' has no len() (constructing Net)")
    assert failure.hint == snapshot(
        "The inputs are guessed; write the real ones in a comment: `# fx: init(dim=64, path=…)`."
    )


def test_a_comment_has_what_is_known_of_every_parameter():
    inputs = (
        InputSpec("init.dim", "64", "search"),
        InputSpec("init.config", "SimpleNamespace(a=1)", "search"),
        InputSpec("x", "f32[4, 64]", "call site", "line 9"),
        InputSpec("pair[0]", "f32[4]", "search"),
        InputSpec("pair[1]", "i64[4]", "search"),
        InputSpec("named['a']", "f32[4]", "search"),
        InputSpec("activation", "torch.relu", "search"),
        InputSpec("eps", "1e-06", "default"),
    )
    comment = "init(dim=64, config=…), x=f32[4, 64], pair=(f32[4], i64[4]), named=…, activation=torch.relu"
    assert comment_hint(inputs) == f"The inputs are guessed; write the real ones in a comment: `# fx: {comment}`."


PART_WITHOUT_STATE = """
class Part(nn.Module):
    def __init__(self, dim: int):
        self.dim = dim

    def forward(self, x):
        return x * self.dim


class Net(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.part = Part(dim)
        self.linear = nn.Linear(dim, dim)

    def forward(self, x):
        return self.part(self.linear(x))
"""


@pytest.mark.parametrize("call", ["", "Net(4)(torch.zeros(2, 4))\n"], ids=["guessed", "called"])
def test_a_part_whose_constructor_does_not_call_that_of_modules_is_named(trace, call):
    failure = trace(PRELUDE + PART_WITHOUT_STATE + call, "Net").failure
    assert failure.message.startswith("TypeError: the constructor of Part does not call `super().__init__()`")
    assert failure.kind != "internal"
