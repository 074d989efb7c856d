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


EDGES = """
import torch
from torch import nn

class Differences(nn.Module):
    def forward(self, nodes, edge_index):
        rows, columns = edge_index
        return self.fc(nodes[rows] - nodes[columns])

class Graph(Differences):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(16, 8)

class Messages(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(32, 16)

    def forward(self, nodes, edges):
        rows, columns = edges
        return self.fc(torch.cat([nodes[rows], nodes[columns]], -1))

class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        for number in range(2):
            self.add_module(f"layer_{number}", Messages())

    def forward(self, nodes, links):
        return [self._modules[f"layer_{number}"](nodes, links) for number in range(2)]

def lengths(edges):
    rows, columns = edges
    return edges.shape[1] + torch.arange(9)[rows] - torch.arange(9)[columns]
"""


@pytest.mark.parametrize(
    ("name", "indices"),
    [
        pytest.param("Messages", ["edges[0]: i64[12]", "edges[1]: i64[12]"], id="parts of a pair"),
        pytest.param("Layers", ["links: i64[2, 32]"], id="a pair for layers that are found by name"),
        pytest.param("lengths", ["edges: i64[2, 8]"], id="a tensor of two rows"),
        pytest.param("Graph", ["edge_index[0]: i64[12]", "edge_index[1]: i64[12]"], id="by the method of a base class"),
    ],
)
def test_what_is_unpacked_and_used_as_an_index(trace, name, indices):
    inputs = trace(EDGES, name).trace.inputs
    assert [f"{i.name}: {i.spec}" for i in inputs if i.spec.startswith("i64")] == indices
