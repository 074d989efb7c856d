"""What operations cost: floating-point operations as PyTorch's own counter has them, and the bytes of their tensors."""

from __future__ import annotations

import pytest
import torch
from conftest import TraceFixture
from torch.utils.flop_counter import FlopCounterMode

from fx_lsp.features.costs.operations import cost_of

PRELUDE = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n\n"

FUNCTIONS = {
    "product": ("x=f32[4, 8], w=f32[8, 6]", "def f(x, w):\n    return x @ w"),
    "batches": ("q=f32[2, 3, 4, 8], k=f32[2, 3, 8, 5]", "def f(q, k):\n    return (q @ k).softmax(-1)"),
    "layer": ("x=f32[4, 8], w=f32[6, 8], b=f32[6]", "def f(x, w, b):\n    return F.linear(x, w, b).relu()"),
    "added": ("x=f32[2, 4, 8], y=f32[2, 8, 6], z=f32[2, 4, 6]", "def f(x, y, z):\n    return torch.baddbmm(z, x, y)"),
    "image": ("x=f32[2, 3, 8, 8], w=f32[5, 3, 3, 3]", "def f(x, w):\n    return F.conv2d(x, w, padding=1)"),
    "strided": ("x=f32[2, 4, 9], w=f32[6, 2, 3]", "def f(x, w):\n    return F.conv1d(x, w, stride=2, groups=2)"),
    "upwards": ("x=f32[2, 3, 5, 5], w=f32[3, 4, 2, 2]", "def f(x, w):\n    return F.conv_transpose2d(x, w, stride=2)"),
    "einsum": ("x=f32[4, 5, 6], w=f32[6, 5, 3]", 'def f(x, w):\n    return torch.einsum("abc,cbd->ad", x, w)'),
    "pointwise": ("x=f32[4, 8]", "def f(x):\n    return F.gelu(x) * torch.tanh(x)"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_operations_are_those_that_pytorch_counts(trace: TraceFixture, name: str) -> None:
    comment, source = FUNCTIONS[name]
    traced = trace(f"{PRELUDE}# fx: {comment}\n{source}\n")
    namespace: dict[str, object] = {}
    exec(PRELUDE + source, namespace)
    shapes = [i.spec.removeprefix("f32") for i in traced.trace.inputs]
    inputs = [torch.randn(eval(shape), requires_grad=True) for shape in shapes]
    with FlopCounterMode(display=False) as forward:
        result = namespace["f"](*inputs)
    with FlopCounterMode(display=False) as backward:
        result.sum().backward()
    counted = [cost_of(traced.stage(stage).nodes).flops for stage in ("forward", "backward")]
    assert counted == [forward.get_total_flops(), backward.get_total_flops()]


def test_bytes_are_those_of_each_tensor_once_and_views_move_nothing(trace: TraceFixture) -> None:
    traced = trace(
        PRELUDE
        + """
# fx: x=f32[4, 8], row=f32[8]
def f(x, row):
    y = x.t().contiguous()
    return (y.t() + row.expand(4, 8)) * x[:, :1]
"""
    )
    moved = {node.target: node.moved_bytes for node in traced.stage("forward").nodes if node.computes}
    assert moved == {
        "aten.t.default": 0,
        "aten.clone.default": 128 + 128,
        "aten.expand.default": 0,
        "aten.add.Tensor": 128 + 32 + 128,
        "aten.slice.Tensor": 0,
        "aten.mul.Tensor": 128 + 16 + 128,
    }


def test_named_sizes_count_as_the_numbers_that_they_are_taken_for(trace: TraceFixture) -> None:
    traced = trace(PRELUDE + "# fx: x=f32[B, 8], w=f32[8, 6]\ndef f(x, w):\n    return x @ w\n")
    (product,) = [node for node in traced.stage("forward").nodes if node.flops]
    size = product.flops // (2 * 8 * 6)
    assert size > 1 and product.moved_bytes == 4 * (size * 8 + 8 * 6 + size * 6)
    assert not [remark for remark in traced.trace.remarks if "only" in remark.message], "counting demands nothing"


def test_attention_counts_on_a_cpu_as_it_does_on_a_gpu(trace: TraceFixture) -> None:
    inputs = ", ".join(f"{name}=f32[2, 4, 16, 8]" for name in "qkv")
    traced = trace(f"{PRELUDE}# fx: {inputs}\ndef f(q, k, v):\n    return F.scaled_dot_product_attention(q, k, v)\n")
    assert cost_of(traced.stage("forward").nodes).flops == 2 * 2 * (2 * 4) * 16 * 16 * 8
