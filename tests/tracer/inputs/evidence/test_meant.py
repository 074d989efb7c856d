"""What code means by parameters of which it says little: their classes, their uses, what the file has besides."""

import pytest

HEAD = """
import torch
import torch.nn.functional as F
from torch import nn
"""


def guessed(traced):
    """The inputs, with where each is from."""
    return [f"{i.name}: {i.spec} · {i.source}" for i in traced.trace.inputs if i.source != "default"]


@pytest.mark.parametrize("size", [28, 40])
def test_images_are_as_large_as_a_module_is_made_for(trace, size):
    source = f"""
    class Seen(nn.Module):
        def __init__(self, img_size={size}):
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 4, stride=4)
            self.places = nn.Parameter(torch.zeros(8, img_size // 4, img_size // 4))

        def forward(self, image):
            return self.conv(image) + self.places
    """
    assert guessed(trace(HEAD + _dedented(source), "Seen")) == [f"image: f32[4, 3, {size}, {size}] · search"]


def _dedented(source):
    import textwrap

    return textwrap.dedent(source)


STATISTICS = """
class Frozen(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, 16, 3)
        self.mean, self.var = nn.Parameter(torch.zeros(16)), nn.Parameter(torch.ones(16))

    def forward(self, x):
        return F.relu(F.batch_norm(self.conv(x), self.mean, self.var, training=TRAINING))
"""


def test_parameters_of_which_there_is_no_gradient_want_none(trace):
    """The module is one that is never trained, and has its statistics as parameters."""
    traced = trace(HEAD + STATISTICS.replace("TRAINING", "False"), "Frozen")
    note = "traced with parameters that do not require grad: the code does what PyTorch cannot differentiate"
    assert traced.trace.notes[-1] == note
    assert "batch_norm" in traced.graph("forward")


def test_parameters_that_are_changed_in_training_fail(trace):
    failure = trace(HEAD + STATISTICS.replace("TRAINING", "True"), "Frozen").failure
    assert "not differentiable" in failure.message


CHECKED = """
from __future__ import annotations
from typing import TYPE_CHECKING
import torch

if TYPE_CHECKING:
    from nets import Net

def encoded(net: Net, x: torch.Tensor):
    return net.encode(x) * net.factor
"""
NETS = """
from torch import nn
from user import encoded

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor, self.proj = 2, nn.Linear(12, 8)

    def encode(self, x):
        return self.proj(x)
"""


def test_what_only_checkers_import_says_what_annotations_mean(trace):
    traced = trace(CHECKED, "encoded", files={"nets.py": NETS})
    assert guessed(traced) == ["net: Net() · annotation", "x: f32[4, 12] · search"]


LISTS = """
from typing import Any, Dict, List
import copy

def shifted(boxes: torch.Tensor, crop: List[int], whole: List[int]):
    left, top, _, _ = crop
    moved = boxes + torch.tensor([[left, top, left, top]])
    return torch.isclose(moved.float(), torch.as_tensor(whole, dtype=torch.float)[None, :])

def joined(records: List[Dict[str, Any]]):
    return torch.stack([record["image"].flatten(1) for record in records])

def bins(x: torch.Tensor, count: int):
    assert count in {80, 96}, "no other"
    return x[..., None].expand(*x.shape, count) * 2

def guided(model, x: torch.Tensor):
    return model(x, condition=None) * 2

def moved_to(x: torch.Tensor):
    y = copy.deepcopy(x)
    y[:, 1] = 0
    return y * x

@torch.inference_mode()
def sampled(x: torch.Tensor):
    return x.cumsum(-1)
"""


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        pytest.param("shifted", ["f32[16, 4]", *["2"] * 8], id="lists are as long as they are unpacked"),
        pytest.param(
            "joined", ["f32[4, 3, 64, 64]", "f32[4, 3, 64, 64]"], id="dictionaries of tensors in an annotated list"
        ),
        pytest.param("bins", ["f32[4, 64]", "80"], id="one of the numbers that it is compared with"),
        pytest.param("guided", ["lambda x, *others, **named: x", "f32[4, 64]"], id="what is called with keywords"),
        pytest.param("moved_to", ["f32[4, 64]"], id="a copy of a tensor"),
        pytest.param("sampled", ["f32[4, 64]"], id="inference mode"),
    ],
)
def test_lists_numbers_functions_and_copies(name: str, inputs: list[str], trace):
    assert [i.spec for i in trace(HEAD + LISTS, name).trace.inputs] == inputs
