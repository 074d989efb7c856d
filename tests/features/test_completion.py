"""Completion inside of `# fx:` comments; `|` is the cursor."""

import pytest
from inline_snapshot import snapshot

from fx_lsp.features.source.completion import Completion, completions, in_comment
from fx_lsp.model import InputSpec, Trace
from fx_lsp.specs import DTYPES
from fx_lsp.tracing.source.targets import discover

FILE = "/project/model.py"

MODULE = """\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, dim: int, heads=4):
        super().__init__()

    def forward(self, x, mask: torch.Tensor | None = None, *, causal=False):
        return x
"""

INPUTS = (
    InputSpec("init.dim", "64", "search"),
    InputSpec("x", "f32[4, 64]", "call site", "line 40"),
    InputSpec("mask", "None", "default"),
)


def offers(comment: str) -> list[Completion]:
    """What is offered in a comment above `Block`."""
    text = MODULE.replace("class", f"{comment}\nclass")
    at = text.index("|")
    line = text[:at].count("\n") + 1
    col = len(text[:at].rpartition("\n")[2].encode())
    text = text.replace("|", "", 1)
    trace = Trace("", INPUTS, (), (), (), (), 0.1, "2.13.0")
    targets = [(target, trace) for target in discover(FILE, text).targets]
    return list(completions(text, text.split("\n")[line - 1], (line, col), targets))


def labels(comment: str) -> list[str]:
    return [offer.label for offer in offers(comment) if offer.kind not in ("dtype", "context")]


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("# fx: |", ["x", "mask", "causal", "init(", "eval()", "train()"]),
        ("# fx: m|", ["x", "mask", "causal", "init(", "eval()", "train()"]),
        ("# fx: init(|", ["dim", "heads"]),
        ("# fx: ev|", ["x", "mask", "causal", "init(", "eval()", "train()"]),
        ("# fx: eval(), |", ["x", "mask", "causal", "init("]),
        ("# fx: init(), |", ["x", "mask", "causal", "eval()", "train()"]),
        ("# fx: init(dim=2), |", ["x", "mask", "causal", "eval()", "train()"]),
        ("# fx: init(dim=2), eval(), |", ["x", "mask", "causal"]),
        ("# fx: init(dim=2, |)", ["heads"]),
        ("# fx: init(dim=2), x=f32[2], |", ["mask", "causal"]),
        ("# fx: init(dim=2), |, mask=None", ["x", "causal", "eval()", "train()"]),
        ("# fx: init(dim=2), x=f32[2],\n# fx: |", ["mask", "causal"]),
        ("# fx: x=|", ["f32[4, 64]", "None", "True", "False"]),
        ("# fx: causal=|", ["False", "None", "True"]),
        ("# fx: init(heads=|", ["4", "None", "True", "False"]),
        ("# fx: init(dim=|", ["64", "None", "True", "False"]),
        ("# fx: x=(f|", ["None", "True", "False"]),
        ("# fx: x=f32[2]@|", ["cuda", "cpu"]),
        ("# fx: x=f32[2]@cu|", ["cuda", "cpu"]),
        ("# fx: x=f32[|", []),
        ("# a comment x=|", []),
    ],
)
def test_what_fits(comment: str, expected: list[str]):
    assert labels(comment) == expected


def test_what_is_offered_says_what_it_is():
    assert offers("# fx: x=|")[0] == snapshot(
        Completion(
            label="f32[4, 64]", kind="value", text="f32[4, 64]", col=8, detail="as traced now: from the call at line 40"
        )
    )
    assert [offer.detail for offer in offers("# fx: |")] == snapshot(
        [
            "",
            "torch.Tensor | None = None",
            "= False",
            "how Block is constructed",
            "evaluation mode",
            "training mode",
            "traced under torch's `no_grad`",
            "traced under torch's `inference_mode`",
            "traced under torch's `autocast`",
            "traced under torch's `set_default_dtype`",
            "traced under torch's `set_default_device`",
            "traced under torch's `sdpa_kernel`",
            "traced under torch's `use_deterministic_algorithms`",
            "traced under torch's `set_float32_matmul_precision`",
        ]
    )


def test_every_dtype_is_offered():
    found = {offer.text: offer.detail for offer in offers("# fx: x=b|") if offer.kind == "dtype"}
    assert found == {f"{short}[": f"torch.{long}" for short, long in DTYPES.items()}


def test_an_offer_replaces_the_word_before_the_cursor():
    line = "# fx: init(dim=2), ma"
    assert {offer.col for offer in offers(f"{line}|")} == {len(line) - 2}


@pytest.mark.parametrize(
    ("before", "inside"),
    [("# fx: x", True), ("def f(x):  # fx:", True), ("x = y", False), ("# fx", False), ("prefix: x = ", False)],
)
def test_code_is_left_alone(before: str, inside: bool):
    assert in_comment(before) == inside


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("# fx: no_grad(), |", ["inference_mode()", "autocast(", "set_default_dtype("]),
        ("# fx: init(|", []),
        ("# fx: x=f32[2], |", []),
    ],
)
def test_the_context_of_a_call_comes_before_its_arguments(comment: str, expected: list[str]):
    assert [offer.label for offer in offers(comment) if offer.kind == "context"][:3] == expected
