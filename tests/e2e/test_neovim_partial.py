"""A target that fails, code that is not reached, and a variant with an optional argument, in Neovim."""

from __future__ import annotations

import pytest
from scenarios import Neovim, Run

pytest_plugins = ["shared_editors"]
pytestmark = pytest.mark.torch

SOURCE = """\
import torch
import torch.nn.functional as F
from torch import nn


def fails(x):
    # fx: x=f32[4, 8]
    y = x.sin()
    z = y @ y
    return z.cos()


class Net(nn.Module):
    # fx: idx=i64[4, 6]
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(50, 8)
        self.head = nn.Linear(8, 50)
        self.relu = True

    def forward(self, idx, targets=None):
        x = self.emb(idx)
        if self.relu:
            x = x.relu()
        else:
            x = x.tanh()
        logits = self.head(x)
        if targets is not None:
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
            return loss
        return logits
"""


@pytest.fixture(scope="module")
def found(neovim: Neovim, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("partial")
    file = folder / "partial.py"
    file.write_text(SOURCE)
    return neovim("0.11", "partial.lua", file, folder)


def test_what_ran_of_a_function_that_fails(found: Run) -> None:
    assert found.lens("def fails") == "not traced: line 9 | show partial graph"
    assert "y: f32[4, 8] = x.sin()" in found["hints"][str(found.line("y = x.sin()"))]
    assert "partial: up to line 9, where it fails" in found["hover_ran"]
    assert "not run: line 9 fails" in found["hover_behind"]
    assert found["partial"]["name"].endswith("/partial.py/fails.torch.py")
    assert "y: f32[4, 8] = x.sin()" in found["partial"]["text"]
    assert "matmul = y.matmul(y)  # fails here" in found["partial"]["text"]


def test_code_that_is_not_reached_is_faded_and_says_why(found: Run) -> None:
    assert found["faded"] == [{"line": found.line("x = x.tanh()"), "message": "branch not taken: self.relu is True"}]
    assert "branch not taken: self.relu is True" in found["hover_unreached"]


def test_a_variant_has_hints_and_graphs(found: Run) -> None:
    assert " | with targets | " in found.lens("class Net")
    assert "loss: f32[] = F.cross_entropy" in found["hints"][str(found.line("loss = F.cross"))]
    assert "with targets: ~i64[" in found["hover_variant"]
    assert found["variant"]["name"].endswith("/partial.py/Net.forward.py?variant=targets")
    assert "aten.nll_loss_forward.default(" in found["variant"]["text"]
