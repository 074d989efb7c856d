"""A call of a generated function computes the gradients of the inputs that require one, and no others."""

from __future__ import annotations

import re
from pathlib import Path

from files import names_in, outputs, script

from fx_lsp.codegen.file.needed import OperatorResult, with_conditions
from fx_lsp.codegen.ir.statement import assign, print_statements

pytest_plugins = ["file_fixtures"]

SOURCE = """\
import torch
import torch.nn.functional as F
from torch import nn


# fx: x=f32[8, 16], weight=f32[32, 16], bias=f32[32]
def linear(x, weight, bias):
    return torch.tanh(F.linear(x, weight, bias))


# fx: x=f32[300, 48], weight=f32[48], bias=f32[48]
def layer_norm(x, weight, bias):
    return F.layer_norm(x, (48,), weight, bias)


# fx: x=f32[6, 5], y=f32[6, 5]
def scaled(x, y):
    return torch.sin(x) * y


# fx: x=f32[8, 16], weight=f32[16, 16], table=f32[10, 16], ids=i64[8]
def embedded(x, weight, table, ids):
    return torch.relu((x + table[ids]) @ weight)


# fx: q=f32[2, 2, 33, 16], k=f32[2, 2, 33, 16], v=f32[2, 2, 33, 16]
def attend(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


# fx: x=f32[2, 3, 8, 8], weight=f32[4, 3, 3, 3], bias=f32[4]
def convolved(x, weight, bias):
    return F.relu(F.conv2d(x, weight, bias))


# fx: x=f32[4, 16], weight=f32[16, 16], h=f32[4, 16]
def recurrent(x, weight, h):
    for _ in range(4):
        h = torch.tanh(h @ weight + x)
    return h


# fx: x=f32[4, 6], weight=f32[6, 8], needs_x=f32[4, 8]
def added(x, weight, needs_x):
    return x @ weight + needs_x * 2


# fx: x=f32[5, 6], w=f32[6, 6], v=f32[6, 5]
def transposed(x, w, v):
    return (x @ w).sigmoid() @ v.t().t()


# fx: init(dim=16), x=f32[8, 16]
class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


# fx: init(depth=20), x=f32[4, 4]
class Deep(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x
"""
NAMES = names_in(SOURCE)
FUNCTIONS = re.findall(r"^def (\w+)", SOURCE, re.M)

SUBSETS = """
import itertools
call = {name}
args, _ = arguments(0, "cpu")
places = [n for n, a in enumerate(args) if a.is_floating_point()]
right = results(original(), args, {{}})[1:]
for chosen in itertools.chain.from_iterable(itertools.combinations(places, n) for n in range(len(places) + 1)):
    some = [a.detach().requires_grad_(n in chosen) for n, a in enumerate(args)]
    out = call(*some)
    assert out.requires_grad == bool(chosen)
    if chosen:
        out.backward(torch.ones_like(out))
    for n, place in enumerate(places):
        assert (some[place].grad is not None) == (place in chosen), (chosen, place)
        if place in chosen:
            torch.testing.assert_close(some[place].grad, right[n], rtol=1e-4, atol=1e-4)
    print(len(chosen))
"""

LAUNCHES = """
launched, unwrapped = [], launch
def launch(kernel, *args, **blocks):
    launched.append(kernel.fn.__name__ if hasattr(kernel, "fn") else kernel.__name__)
    unwrapped(kernel, *args, **blocks)
args = [a.detach() for a in arguments(0, "cpu")[0]]
for place, tensor in enumerate(args):
    tensor.requires_grad_(place not in {frozen})
out = {name}(*args)
launched.clear()
out.sum().backward()
print(*launched)
"""

HALF = """
reference, modules = original()
args, _ = arguments(0, "cpu", **modules)
for parameter in list(args[0].parameters())[::2]:
    parameter.requires_grad_(False)
found = [results(function, args, {{}}) for function in ({name}, reference)]
torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)
out = torch.compile({name}, backend="aot_eager", fullgraph=True)(*args)
out.sum().backward()
print(*(p.grad is None for p in args[0].parameters()))
"""

COMPILED = """
import warnings
warnings.simplefilter("ignore")
args, _ = arguments(0, "cpu")
right = results(original(), args, {{}})[1:]
frozen = args[1].detach()
compiled = torch.compile({name}, backend="aot_eager", fullgraph=True)
out = compiled(args[0], frozen, *args[2:])
out.backward(torch.ones_like(out))
torch.testing.assert_close(args[0].grad, right[0], rtol=1e-4, atol=1e-4)
print(frozen.grad)
"""


def test_they_compute_what_the_originals_do(said: dict[str, str]) -> None:
    assert {name: text for name, text in said.items() if not text.endswith("exit 0\n")} == {}


def test_any_inputs_may_require_grad(files: dict[str, str], tmp_path: Path) -> None:
    said = outputs(tmp_path, {name: script(files[name], SUBSETS.format(name=name)) for name in FUNCTIONS})
    three, two = "0 1 1 1 2 2 2 3", "0 1 1 2"
    assert {name: " ".join(each.split()) for name, each in said.items()} == {
        name: two if name == "scaled" else three for name in FUNCTIONS
    }


def test_any_parameters_may_be_frozen(files: dict[str, str], tmp_path: Path) -> None:
    names = {"Block": "block", "Deep": "deep"}
    said = outputs(tmp_path, {n: script(files[n], HALF.format(name=name)) for n, name in names.items()})
    assert {n: each.split() for n, each in said.items()} == {
        "Block": ["True", "False"] * 3,
        "Deep": ["True", "False"] * 20,
    }
    assert "needs: list[bool]" in files["Deep"]


def test_frozen_inputs_save_the_kernels_of_their_gradients(files: dict[str, str], tmp_path: Path) -> None:
    launched = {
        ("attend", (0,)): ["", "_columns"],
        ("attend", (1, 2)): ["", "_rows"],
        ("layer_norm", (1,)): ["_grad_x", "_grad_weight"],
        ("layer_norm", (1, 2)): ["_grad_x"],
    }
    texts = [script(files[name], LAUNCHES.format(name=name, frozen=frozen)) for name, frozen in launched]
    said = outputs(tmp_path, {f"frozen_{number}": text for number, text in enumerate(texts)})
    assert [text.split() for text in said.values()] == [
        [f"{name}_backward_kernel{suffix}" for suffix in suffixes] for (name, _), suffixes in launched.items()
    ]


def test_a_call_with_a_mask_computes_what_is_needed(files: dict[str, str]) -> None:
    assert "[needs_x, needs_weight, needs_bias]" in files["convolved"]


def test_one_kernel_for_all_gradients_takes_no_flags(files: dict[str, str]) -> None:
    assert [name for name in NAMES if "needs_input_grad" not in files[name]] == ["scaled"]


def test_a_compiled_call_may_have_a_frozen_input(files: dict[str, str], tmp_path: Path) -> None:
    names = ("linear", "convolved", "attend", "recurrent")
    said = outputs(tmp_path, {name: script(files[name], COMPILED.format(name=name)) for name in names})
    assert said == dict.fromkeys(names, "None\n")


def test_a_size_of_a_value_has_a_condition_if_the_value_has_one() -> None:
    a, size = assign("a", "first(grad)"), assign("size", "a.shape[0]")
    w, x, b = assign("w", "second(a)"), assign("x", "third(a, size)"), assign("b", "fourth(grad)")
    results = [OperatorResult(name, (f"needs_{name}",)) for name in ("x", "w", "b")]
    statements, flags = with_conditions([a, size, w, x, b], dict.fromkeys((a, w, x, b), ()), results, "grad[:0]")
    assert flags == ["needs_x", "needs_w", "needs_b"]
    assert [line.text for line in print_statements(statements, "")] == [
        "if needs_x or needs_w:",
        "    a = first(grad)",
        "if needs_x:",
        "    size = a.shape[0]",
        "if needs_w:",
        "    w = second(a)",
        "if needs_x:",
        "    x = third(a, size)",
        "if needs_b:",
        "    b = fourth(grad)",
        "return x if needs_x else grad[:0], w if needs_w else grad[:0], b if needs_b else grad[:0]",
    ]
