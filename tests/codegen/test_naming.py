"""What generated files call things, and which tensors they keep: as one who writes them by hand would."""

from __future__ import annotations

import re
from pathlib import Path

from files import names_in, outputs, script
from inline_snapshot import snapshot

pytest_plugins = ["file_fixtures"]

SOURCE = """\
import torch
import torch.nn.functional as F
from torch import nn


# fx: x=f32[8, 16], w1=f32[16, 32], w2=f32[32, 16], b=f32[32]
def gated(x, w1, w2, b):
    h = x @ w1 + b
    g = F.gelu(h)
    y = (g * h) @ w2
    return torch.softmax(y, -1)


# fx: init(dim=24, hidden=40), x=f32[3, 5, 24]
class MLP(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, hidden)
        self.down = nn.Linear(hidden, dim)

    def forward(self, x):
        h = self.norm(x)
        return x + self.down(F.silu(self.up(h)))


# fx: x=f32[40, 100], mask=b8[40, 100]
def masked(x, mask):
    return torch.softmax(x.masked_fill(~mask, float("-inf")), -1)


# fx: x=f32[40, 100]
def named_as_masks(x):
    mask = x > 0.5
    cols_mask = torch.sigmoid(x)
    x_ptr = x * 2
    return torch.where(mask, x_ptr * cols_mask, cols_mask + x_ptr), mask


# fx: x=f32[6, 5, 9], rows_mask=f32[6, 1, 9]
def named_as_row_masks(x, rows_mask):
    outer_mask = rows_mask * x
    return outer_mask.sum((0, 2)) + outer_mask.amax((0, 2))


# fx: x=f32[8, 16], checked=f32[16]
def named_as_the_check(x, checked):
    return torch.relu(x * checked)


# fx: x=f32[8, 16]
def checked(x):
    return torch.relu(x) * 2


# fx: x=f32[8, 16], dim=1
def any(x, dim):
    return torch.tanh(x).sum(dim) * max(x.shape)


# fx: x=f32[8, 16], checked=f32[16]
def tuple(x, checked):
    return torch.relu(x * checked).amax(0)


# fx: x=f32[8, 16], product=f32[8]
def sign(x, product):
    return torch.sign(x) * 2, x.prod(1) * product


# fx: x=f32[8, 16]
class Zip(nn.Module):
    def forward(self, x):
        return torch.stack([a * b for a, b in zip(x, x[1:])])


# fx: x=f32[32, 256], residual=f32[32, 256], weight=f32[256]
def with_residual(x, residual, weight):
    h = residual + torch.tanh(x)
    return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True)) * weight, h


# fx: x=f32[8, 24], w=f32[24, 16]
def part_of_a_product(x, w):
    return (x @ w)[:, :3]


# fx: x=f32[2, 8]
class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.scales = nn.ParameterList(nn.Parameter(torch.randn(8)) for _ in range(66))

    def forward(self, x):
        for scale in self.scales:
            x = torch.tanh(x * scale)
        return x
"""
NAMES = names_in(SOURCE)


def test_they_compute_what_the_originals_do(said: dict[str, str]) -> None:
    assert {name: text for name, text in said.items() if not text.endswith("exit 0\n")} == {}


def body(text: str, head: str) -> str:
    """The definition that begins with `head`."""
    return head + text.partition(f"\n{head}")[2].partition("\n\n\n")[0]


def returned_gradients(text: str) -> list[str]:
    """The names of the gradients that backward returns, in order."""
    last = body(text, "class _").rpartition("return ")[2]
    return re.findall(r"\bgrad_\w+", last)


def test_a_function_named_as_one_of_python_leaves_that_alone(files: dict[str, str]) -> None:
    refusal = body(files["tuple"], "def checked_(")
    assert "{wanted}, not {builtins.tuple(tensor.shape)}" in refusal
    assert "    tensors = checked_(x, checked)\n" in files["tuple"]
    assert "\nimport builtins\n" in files["tuple"] and "builtins" not in files["gated"]


def test_a_helper_makes_way_for_a_function_of_its_name(files: dict[str, str]) -> None:
    assert re.findall(r"^def (sign_?|product)\(", files["sign"], re.M) == ["product", "sign_", "sign"]
    assert "sign_(x)" in body(files["sign"], "def sign_forward_kernel(")
    assert "return torch.sign(x) * 2, x.prod(1)" in files["sign"]  # comments are as the user wrote them


def test_gradients_are_called_after_what_they_are_gradients_of(files: dict[str, str]) -> None:
    made = re.findall(r"^ +(\w+) = torch\.(?:empty|ops)", body(files["gated"], "def gated_backward("), re.M)
    assert made == snapshot(["grad_y", "grad_h", "mul_3", "grad_w2", "grad_b", "grad_w1", "grad_x"])
    assert returned_gradients(files["gated"]) == ["grad_x", "grad_w1", "grad_w2", "grad_b"]


def test_what_a_view_shows_is_saved_in_its_place(files: dict[str, str]) -> None:
    assert re.findall(r"save_for_backward\(([^)]*)\)", files["gated"]) == snapshot(["b, mm, out, w2, x, w1"])
    saved = " ".join(re.findall(r"save_for_backward\(([^)]*)\)", files["MLP"])[0].split())
    assert saved == snapshot("norm_weight, norm_bias, up_weight, down_weight, x, mean, rsqrt, addmm")
    assert ".permute([1, 0]).permute(" not in files["MLP"]


def test_gradients_of_parameters_have_their_names(files: dict[str, str]) -> None:
    assert returned_gradients(files["MLP"]) == [
        "grad_norm_weight",
        "grad_norm_bias",
        "grad_up_weight",
        "grad_up_bias",
        "grad_down_weight",
        "grad_down_bias",
        "grad_x",
    ]


def test_a_gradient_that_is_returned_has_the_name_of_its_input(files: dict[str, str]) -> None:
    returned = re.findall(r"return ([\w, ]+)$", body(files["with_residual"], "class _WithResidual"), re.M)[-1]
    assert returned == "grad_x, grad_residual, grad_weight"


def test_what_is_returned_in_part_has_a_name_of_its_own(files: dict[str, str]) -> None:
    assert "out = torch.ops.aten.mm" not in files["part_of_a_product"]


def test_an_operator_of_many_tensors_takes_a_list(files: dict[str, str]) -> None:
    assert "def deep_forward(tensors: list[Tensor])" in files["Deep"]


def test_tensors_on_the_cpu_are_refused_where_nothing_interprets_kernels(files: dict[str, str], tmp_path: Path) -> None:
    lines = """
del os.environ["TRITON_INTERPRET"]
args, _ = arguments(0, "cpu")
try:
    gated(*args)
except ValueError as error:
    print(error)
"""
    said = outputs(tmp_path, {"cpu": script(files["gated"], lines)})["cpu"]
    assert said == "the tensors are on the CPU: these kernels run on a GPU\n"
