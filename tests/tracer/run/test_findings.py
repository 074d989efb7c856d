"""Mistakes that run are told where they are, in the examples of their pages and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Traced, TraceFixture
from inline_snapshot import snapshot

from fx_lsp.features.source.findings import FINDINGS
from fx_lsp.model import Remark, Trace

PAGES = Path(__file__).parents[3] / "docs" / "problems"


def remarks(traced: Traced) -> tuple[Remark, ...]:
    """All remarks of a trace, also those of which a user has to ask."""
    assert isinstance(traced.reply.outcome, Trace)
    return traced.reply.outcome.remarks


def examples() -> Iterator[object]:
    for code in FINDINGS:
        wrong, right = re.findall(r"^```python\n(.*?)^```", (PAGES / f"{code}.md").read_text(), re.M | re.S)
        for kind, block in (("wrong", wrong), ("right", right)):
            for name in re.findall(r"^(?:class|def) (\w+)", block, re.M):
                yield pytest.param(code, block, name, kind == "wrong", id=f"{code}-{kind}-{name}")


@pytest.mark.parametrize(("code", "block", "name", "is_wrong"), list(examples()))
def test_examples_of_pages(trace: TraceFixture, code: str, block: str, name: str, is_wrong: bool) -> None:
    findings = [remark for remark in remarks(trace(block, name)) if remark.code == code]
    assert bool(findings) is is_wrong
    lines = block.splitlines()
    assert all(remark.span and lines[remark.span.line - 1].endswith(f"  # {code}") for remark in findings)


def test_each_page_has_three_examples_of_both_kinds() -> None:
    for page in FINDINGS:
        blocks = re.findall(r"^```python\n(.*?)^```", (PAGES / f"{page}.md").read_text(), re.M | re.S)
        assert [len(re.findall(r"^(?:class|def) ", block, re.M)) >= 3 for block in blocks] == [True, True]


def test_the_table_of_pages_says_what_is_told() -> None:
    rows = re.findall(r"^\| \[`(.*?)`\]\(.*?\) \| (.*?) \| (yes|no) \|$", (PAGES / "README.md").read_text(), re.M)
    assert rows == [(code, kind.title, "yes" if kind.is_told else "no") for code, kind in FINDINGS.items()]


PRELUDE = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n\n"


def told(trace: TraceFixture, source: str, name: str = "f") -> list[str]:
    """The findings in a source, each with the expression that it is about."""
    traced = trace(PRELUDE + source, name)

    def shown(remark: Remark) -> str:
        return f"{traced.at(remark.span)} · {remark.code}: {remark.message}"

    return [shown(remark) for remark in remarks(traced) if remark.code]


def test_each_read_of_a_value_is_told_in_words(trace: TraceFixture) -> None:
    source = """
# fx: x=f32[4, 8]
def f(x):
    print(x)
    sizes = x.sum(0).tolist()
    for row in x.cpu():
        x = x + row
    return x * sizes[0]
"""
    assert told(trace, source) == snapshot(
        [
            "print(x) · host-sync: the host waits for the device here: a tensor is printed",
            "x.sum(0).tolist() · host-sync: the host waits for the device here: it needs a tensor's values",
            "x.cpu() · host-sync: the host waits for the device here: the tensor is copied to the host",
        ]
    )


def test_a_wide_result_is_told_once_and_not_of_all_that_follows(trace: TraceFixture) -> None:
    source = """
# fx: x=f32[4, 8], table=f64[8]
def f(x, table):
    y = x * table
    z = y + x
    return (z @ z.T).softmax(-1)
"""
    assert told(trace, source) == snapshot(
        ["x * table · upcast: f32[4, 8] and f64[8] give f64[4, 8]: the operations that follow are computed in float64"]
    )


def test_numbers_and_autocast_are_no_upcast(trace: TraceFixture) -> None:
    source = """
# fx: x=bf16[4, 8], w=f32[8, 8]
def f(x, w):
    with torch.autocast("cpu", torch.bfloat16):
        y = x @ w + x * w[0]
    return y * 2.5 + torch.tensor(0.5)
"""
    assert told(trace, source) == []


def test_libraries_and_layers_convert_what_they_like(trace: TraceFixture) -> None:
    source = """
class f(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2)

    # fx: x=f32[5, 3, 8]
    def forward(self, x):
        return self.attention(x, x, x)[0]
"""
    assert told(trace, source) == []


def test_parameters_of_a_list_that_are_used_in_part(trace: TraceFixture) -> None:
    source = """
class f(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    # fx: x=f32[4, 8]
    def forward(self, x):
        return self.layers[1](x)
"""
    assert told(trace, source) == []


def test_layers_by_the_name_of_their_attribute_are_used(trace: TraceFixture) -> None:
    source = """
class f(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)

    # fx: x=f32[4, 8]
    def forward(self, x, which="second"):
        return getattr(self, which)(x)
"""
    assert told(trace, source) == []


def test_layers_that_a_base_class_uses_elsewhere(trace: TraceFixture) -> None:
    source = """
class Base(nn.Module):
    @torch.no_grad()
    def features(self, x):
        return self.head(x)


class f(Base):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 8)
        self.left = nn.Linear(8, 8)

    # fx: x=f32[4, 8]
    def forward(self, x):
        return self.body(x)
"""
    assert told(trace, source) == snapshot(
        ["self.left · no-gradient: `self.left` gets no gradient: the class does not use it"]
    )


def test_what_a_batch_of_one_brings_is_not_told(trace: TraceFixture) -> None:
    source = """
# fx: x=f32[1, 8]
def f(x):
    return x.softmax(0), x.std(0, correction=0), x.argmax(0)
"""
    assert told(trace, source) == []


def test_warnings_of_others_are_not_told(trace: TraceFixture) -> None:
    source = """
import warnings


# fx: x=f32[4, 8]
def f(x):
    warnings.warn("the program says this")
    return x.std(0, keepdim=True).softmax(-1)
"""
    assert told(trace, source) == []


def test_shapes_that_were_guessed_are_no_reason_to_warn(trace: TraceFixture) -> None:
    source = """
def f(prediction, target):
    return F.l1_loss(prediction.softmax(-1), F.one_hot(target, 64).float().sum(0))
"""
    assert told(trace, source) == []
    (warning,) = told(trace, "# fx: prediction=f32[4, 64], target=i64[16]" + source)
    assert "different to the input size (torch.Size([4, 64]))" in warning


def test_what_a_check_says_is_not_said_by_pytorch_again(trace: TraceFixture) -> None:
    source = """
# fx: prediction=f32[16, 1], target=f32[16]
def f(prediction, target):
    return F.mse_loss(prediction, target)
"""
    (finding,) = told(trace, source)
    assert finding.startswith("F.mse_loss(prediction, target) · all-pairs: ")
