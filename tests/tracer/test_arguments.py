"""Parameters that are no tensors, by what they are handed on as: functions have defaults, and PyTorch says types."""

import pytest

SOURCE = """
import torch
import torch.nn.functional as F

def helper(x, amount=0.25, order="fro"):
    return torch.linalg.norm(x * amount, order)

def dropped(x, share, on):
    return F.dropout(x, share, on)

def reduced(x, how):
    return F.cross_entropy(x, x.argmax(-1), reduction=how)

def handed(x, what, which):
    return helper(x, order=which, amount=what)

def best(x, flag):
    return torch.topk(x, 3, largest=flag)[0]

def limited(x, kind):
    return x * torch.finfo(kind).max

def padded(x, amounts):
    return F.pad(x, amounts)

def stacked(parts, where):
    return torch.stack(parts, dim=where)

def spread(x, corrected):
    return x.var(-1, keepdim=True, unbiased=corrected)

def weighted(x, share):
    return helper(x, amount=share * 2)
"""


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("dropped", ["share: 0.5", "on: True"]),
        ("reduced", ["how: 'mean'"]),
        ("handed", ["what: 0.25", "which: 'fro'"]),
        ("best", ["flag: False"]),
        ("limited", ["kind: torch.float32"]),
        ("padded", ["amounts: (1, 1)"]),
        ("stacked", ["parts[1]: f32[4, 64]"]),
        ("spread", ["corrected: False"]),
        ("weighted", ["share: f32[4, 64]"]),
    ],
)
def test_what_is_handed_on(trace, name: str, found: list[str]) -> None:
    given = [line.partition(" · ")[0] for line in trace(SOURCE, name).inputs()]
    assert [line for line in given if line.partition(":")[0] in {f.partition(":")[0] for f in found}] == found


def test_an_array_as_a_default(trace):
    source = """
import numpy as np
import torch

def f(x, weights=np.ones(8)):
    return torch.relu(x) * weights.sum()
"""
    assert trace(source).inputs()[1].endswith("· default")
