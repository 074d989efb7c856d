"""Files of modules with parts and buffers, and of functions whose names are not those of Python's keywords alone."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from files import generated, names_in, outputs
from inline_snapshot import snapshot

pytest_plugins = ["file_fixtures"]

SOURCE = """\
import torch
from torch import nn


# fx: init(c=8), x=f32[4, 8, 6, 6]
class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.bn = nn.BatchNorm2d(c)
        self.rest = nn.Sequential(nn.Dropout(0.0), nn.GroupNorm(4, c))

    def forward(self, x):
        return torch.relu(self.rest(self.bn(x)))


# fx: x=f32[3, 12]
class Observed(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(12))

    def forward(self, x):
        self.mean.lerp_(x.detach().mean(0), 0.1)
        return (x - self.mean).square()


# fx: init(width=12), x=f32[5, 12]
class Scaled(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


# fx: α=f32[3, 5], café=f32[5]
def größe(α, café):
    Δ = α.tanh()  # β
    return Δ * café


# fx: x=f32[T, N]
def first_two(x):
    return torch.stack([x[0], x[1] * 2])
"""
NAMES = names_in(SOURCE)
CALLS = """\
import torch
from original import Block, Observed
from Block import block
from Observed import observed

x = torch.randn(4, 8, 6, 6)
for change in ("module.bn.eval()", "module.bn.eps = 0.5", "module.rest[1].num_groups = 2", "module.rest.train(False)"):
    module = Block(8)
    block(module, x)
    exec(change)
    try:
        block(module, x)
    except ValueError as error:
        print(error)
"""

OFFERED = """\
import copy
import pickle

import Block
import Scaled
import original
import torch

for file, x in ((Scaled, torch.randn(5, 12)), (Block, torch.randn(4, 8, 6, 6))):
    name, size = file.__name__, x.shape[1]
    assert name not in vars(file), "it is created on first use"
    kernels, expected = getattr(file, name), getattr(original, name)(size)
    for tensor in expected.parameters():
        torch.nn.init.normal_(tensor)
    module = kernels(size)
    assert list(module.state_dict()) == list(expected.state_dict())
    module.load_state_dict(expected.state_dict())
    gradient = torch.randn_like(x)
    copies = [copy.deepcopy(module), pickle.loads(pickle.dumps(module)), module.to("cpu")]
    result = expected(x)
    result.backward(gradient)
    for each in copies:
        assert type(each) is kernels is getattr(file, name)
        ours = each(x)
        ours.backward(gradient)
        torch.testing.assert_close(ours, result)
        torch.testing.assert_close([p.grad for p in each.parameters()], [p.grad for p in expected.parameters()])
        torch.testing.assert_close(each.state_dict(), expected.state_dict())
    print(name, "has the same state, results and gradients")

x = torch.randn(5, 12)
torch.testing.assert_close(Scaled.Scaled(12).eval()(x), original.Scaled(12)(x))
for call in (lambda: Block.Block(8).eval()(torch.randn(4, 8, 6, 6)), lambda: Block.Other):
    try:
        call()
    except (ValueError, AttributeError) as error:
        print(error)
"""
SCRIPTS = {"calls": CALLS, "offered": OFFERED}


@pytest.mark.parametrize("name", NAMES)
def test_values_are_right(name: str, said: dict[str, str]) -> None:
    assert "wrong" not in said[name]
    assert said[name].endswith("exit 0\n")


def test_parts_have_to_be_set_as_they_were(files: dict[str, str], said: dict[str, str]) -> None:
    table = re.findall(r"^SETTINGS = (\{.*?\})\n", files["Block"], re.M | re.S)[0]
    assert ast.literal_eval(table) == snapshot(
        {
            "bn.training": True,
            "rest.0.training": True,
            "bn.eps": 1e-05,
            "bn.momentum": 0.1,
            "bn.track_running_stats": True,
            "rest.0.inplace": False,
            "rest.0.p": 0.0,
            "rest.1.eps": 1e-05,
            "rest.1.num_groups": 4,
        }
    )
    assert said["calls"] == snapshot("""\
self.bn.training is True in these kernels, not False
self.bn.eps is 1e-05 in these kernels, not 0.5
self.rest.1.num_groups is 4 in these kernels, not 2
self.rest.0.training is True in these kernels, not False
""")


def test_a_file_offers_the_module_with_kernels(files: dict[str, str], said: dict[str, str]) -> None:
    assert said["offered"] == snapshot("""\
Scaled has the same state, results and gradients
Block has the same state, results and gradients
self.training is True in these kernels, not False
module 'Block' has no attribute 'Other'
""")
    assert "The class `Scaled` of this file uses them" in files["Scaled"]
    assert "__getattr__" not in files["first_two"]


def test_what_backward_needs_of_a_buffer_is_kept(files: dict[str, str]) -> None:
    assert re.findall(r"save_for_backward\((.*)\)", files["Observed"]) == snapshot(["mean.clone(), x"])


def test_kernels_and_operators_have_names_in_ascii(files: dict[str, str]) -> None:
    operators = re.findall(r"^@as_operator\(\"(.*)\"\)\ndef (\w+)\(([^)]*)", files["größe"], re.M)
    assert [(name, called, " ".join(parameters.split())) for name, called, parameters in operators] == snapshot(
        [
            ("grose_triton::forward", "grose_forward", "alpha: Tensor, cafe: Tensor"),
            (
                "grose_triton::backward",
                "grose_backward",
                "alpha: Tensor, cafe: Tensor, grad_out: Tensor",
            ),
        ]
    )
    assert "def größe(α, café):" in files["größe"]


CONSTRUCTED = """\
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Sizes:
    wide: int = 12
    deep: tuple[int, ...] = (8, 4)


# fx: init(dims=(12, 8, 4), names=["a", "b"], options={"scale": [2.0], "it's": "a \\"b\\""}), x=f32[5, 12]
class Chain(nn.Module):
    def __init__(self, dims, names, options):
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(a, b) for a, b in zip(dims, dims[1:]))
        self.scale = options["scale"][0]

    def forward(self, x):
        for part in self.parts:
            x = part(x).relu() * self.scale
        return x


class Configured(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.part = nn.Linear(sizes.wide, sizes.deep[0])

    def forward(self, x):
        return self.part(x).tanh()


# fx: init(start=f32[12]), x=f32[5, 12]
class Started(nn.Module):
    def __init__(self, start):
        super().__init__()
        self.weight = nn.Parameter(start)

    def forward(self, x):
        return x * self.weight
"""

SPREAD = """\
import torch
from torch import nn


class Spread(nn.Module):
    def __init__(self, first, *dims, bias=True):
        super().__init__()
        self.part = nn.Linear(first, dims[-1], bias)

    def forward(self, x):
        return self.part(x).relu()


def get_init_inputs():
    return [12, 8, 4]


def get_inputs():
    return [torch.randn(5, 12)]
"""


def constructed(text: str) -> list[str]:
    """The arguments with which a file constructs the original module."""
    tables = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Dict)]
    calls = [v for t in tables for k, v in zip(t.keys, t.values, strict=True) if k and ast.unparse(k) == "'module'"]
    return [ast.unparse(call).partition("(")[2].removesuffix(")") for call in calls]


def test_the_original_is_made_with_what_it_was_traced_with(tmp_path: Path, warm_torch: None) -> None:
    """Sequences, dictionaries and objects stand in the file as they are; a tensor does not."""
    files = {
        **generated(tmp_path / "constructed.py", CONSTRUCTED, ["Chain", "Configured", "Started"]),
        **generated(tmp_path / "spread.py", SPREAD, ["Spread"]),
    }
    assert {n: constructed(text) for n, text in files.items()} == snapshot(
        {
            "Chain": ["dims=(12, 8, 4), names=['a', 'b'], options={'scale': [2.0], \"it's\": 'a \"b\"'}"],
            "Configured": ["sizes=Sizes()"],
            "Started": [],
            "Spread": ["12, 8, 4"],
        }
    )
    assert "It is not compared with the original: it is constructed with a tensor, f32[12]." in files["Started"]
    for name, output in outputs(tmp_path, files).items():
        assert "wrong" not in output, name
        assert ("right" in output) == (name != "Started"), name


MADE_BY_A_PROGRAM = """\
import torch
from torch import nn


class Norm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Spread(nn.Module):
    def __init__(self, first, *dims, bias=True):
        super().__init__()
        self.part = nn.Linear(first, dims[-1], bias)

    def forward(self, x):
        return self.part(x).relu()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = Norm(12)
        self.spread = Spread(12, 8, 4, bias=False)

    def forward(self, x):
        return self.spread(self.norm(x))


if __name__ == "__main__":
    print(Block()(torch.randn(5, 12)).shape)
"""


def test_the_original_is_made_as_its_program_makes_it(tmp_path: Path, warm_torch: None) -> None:
    files = generated(tmp_path / "program.py", MADE_BY_A_PROGRAM, ["Norm", "Spread"])
    calls = {n: constructed(text) for n, text in files.items()}
    assert calls == {"Norm": ["dim=12"], "Spread": ["12, 8, 4, bias=False"]}
    for name, output in outputs(tmp_path, files).items():
        assert "right" in output and "wrong" not in output, name


RECURRENT = """\
from torch import nn


# fx: x=f32[7, 2, 16]
class Long(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.LSTM(16, 32)

    def forward(self, x):
        return self.layer(x)[0].tanh()


# fx: x=f32[7, 2, 16]
class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.GRU(16, 32, batch_first=True)

    def forward(self, x):
        return self.layer(x)[0].mean(1)
"""


def test_recurrent_layers_are_calls_with_gradients_of_all_weights(tmp_path: Path, warm_torch: None) -> None:
    """The library lays out their weights itself, and says how much memory it reserves for backward."""
    files = generated(tmp_path / "recurrent.py", RECURRENT, ["Long", "Gated"])
    for text in files.values():
        calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
        call = next(c for c in calls if ast.unparse(c.func).endswith("_cudnn_rnn.default"))
        assert ast.unparse(call.args[3]) == "None"
        reserve, weights = (f"cudnn_rnn[{n}]" for n in (3, 4))
        assert f"{reserve}, {weights}" in text
        gradients = [f"cudnn_rnn_backward[{place}]" for place in ("3][0", "3][1", "3][2", "3][3", "0")]
        assert all(re.search(rf"{re.escape(gradient)}\s+if needs_", text) for gradient in gradients)
    said = {name: output.splitlines()[0] for name, output in outputs(tmp_path, files).items()}
    assert set(said.values()) == {"not compared with the original: aten._cudnn_rnn only runs on a GPU"}
