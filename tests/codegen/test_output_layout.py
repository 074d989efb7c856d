"""Attention as modules use it: results and gradients are written where what comes next takes them."""

from __future__ import annotations

import re

import pytest
from files import names_in
from inline_snapshot import snapshot

pytest_plugins = ["file_fixtures"]

SOURCE = """\
import torch
import torch.nn.functional as F
from torch import nn


# fx: init(dim=64, num_heads=4), x=f32[2, 50, 64]
class OneProjection(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, dim // num_heads
        self.scale = self.head_dim**-0.5
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        attn = (q * self.scale) @ k.transpose(-2, -1)
        attn = attn.softmax(dim=-1)
        x = (attn @ v).transpose(1, 2).reshape(B, N, C)
        return self.proj(x)


# fx: init(width=64, heads=4), x=f32[1, 33, 64]
class ThreeProjections(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x):
        q, k, v = (p(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


# fx: x=f32[2, 40, 64], w=f32[192, 64]
def split_in_three(x, w):
    B, T, C = x.shape
    q, k, v = F.linear(x, w).split(C, dim=2)
    q, k, v = (t.view(B, T, 4, 16).transpose(1, 2) for t in (q, k, v))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return y.transpose(1, 2).contiguous().view(B, T, C)


# fx: q=f32[2, 4, 40, 16], k=f32[2, 4, 40, 16], v=f32[2, 4, 40, 16]
def used_twice(q, k, v):
    out = F.scaled_dot_product_attention(q, k, v)
    flat = out.transpose(1, 2).reshape(2, 40, 64)
    return flat.relu(), out.tanh(), flat @ flat.transpose(1, 2)


# fx: q=f32[2, 4, 40, 16], k=f32[2, 4, 40, 16], v=f32[2, 4, 40, 16]
def as_it_is(q, k, v):
    out = F.scaled_dot_product_attention(q, k, v)
    return out.transpose(1, 2), out.sum(-1)


# fx: q=f32[2, 4, 40, 16], k=f32[2, 4, 40, 16], v=f32[2, 4, 40, 16]
def one_after_the_other(q, k, v):
    first = F.scaled_dot_product_attention(q, k, v)
    second = F.scaled_dot_product_attention(first, k, v, is_causal=True)
    return second.transpose(1, 2).reshape(2, 40, 64)


# fx: q=f32[B, 4, T, 16], k=f32[B, 4, T, 16], v=f32[B, 4, T, 16]
def any_size(q, k, v):
    B, H, T, D = q.shape
    out = F.scaled_dot_product_attention(q, k, v)
    return out.transpose(1, 2).reshape(B, T, H * D) * 2, (out * 3).mean(-1)


# fx: q=f32[2, 4, 40, 16], k=f32[2, 4, 40, 16], v=f32[2, 4, 40, 16]
def both_scaled(q, k, v):
    scale = 16**-0.25
    return ((q * scale) @ (k * scale).transpose(-2, -1)).softmax(-1) @ v


# fx: q=f32[2, 4, 40, 16], k=f32[2, 4, 40, 16], v=f32[2, 4, 40, 16]
def scaled_for_more(q, k, v):
    q = q / 4.0
    return (q @ k.transpose(-2, -1)).softmax(-1) @ v, q


# fx: q=f32[2, 4, 40, 16], v=f32[2, 4, 40, 16]
def scaled_twice(q, v):
    q = q / 2.0
    return (q @ q.transpose(-2, -1)).softmax(-1) @ v


# fx: a=f32[64, 32], b=f32[64, 32], c=f32[64, 32], w=f32[32, 32]
def joined(a, b, c, w):
    return torch.cat([F.gelu(a @ w), F.silu(b @ w), c.relu()], 1)


# fx: x=f32[6, 5, 80], cos=f32[5, 40], sin=f32[5, 40]
def rotated(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
"""
NAMES = names_in(SOURCE)


@pytest.mark.parametrize("name", NAMES)
def test_values_are_right(name: str, said: dict[str, str]) -> None:
    assert "wrong" not in said[name]
    assert said[name].endswith("exit 0\n")


def kernels(text: str) -> list[str]:
    return re.findall(r"^@triton.jit\ndef (\w+_kernel\w*)", text, re.M)


def test_nothing_is_copied(files: dict[str, str]) -> None:
    assert kernels(files["OneProjection"]) == snapshot(
        [
            "one_projection_forward_kernel",
            "one_projection_backward_kernel_grad_proj_bias",
            "one_projection_backward_kernel_delta",
            "one_projection_backward_kernel_columns",
            "one_projection_backward_kernel_rows",
            "one_projection_backward_kernel_grad_qkv_bias",
        ]
    )
    assert kernels(files["ThreeProjections"]) == snapshot(
        [
            "three_projections_forward_kernel",
            "three_projections_backward_kernel",
            "three_projections_backward_kernel_columns",
            "three_projections_backward_kernel_rows",
            "three_projections_backward_kernel_grad_x_1",
        ]
    )
    assert kernels(files["split_in_three"]) == snapshot(
        [
            "split_in_three_forward_kernel",
            "split_in_three_backward_kernel",
            "split_in_three_backward_kernel_columns",
            "split_in_three_backward_kernel_rows",
        ]
    )


def test_a_program_computes_an_element_of_each_half(files: dict[str, str]) -> None:
    forward = files["rotated"].partition("def rotated_forward_kernel(")[2].partition("\n\n\n")[0]
    assert (forward.count("tl.load("), forward.count("tl.store("), forward.count("tl.where(")) == (4, 2, 0)


def test_a_scale_is_taken_out_of_the_loops(files: dict[str, str]) -> None:
    assert len(kernels(files["both_scaled"])) == 4
    assert re.findall(r"grad_\w_acc \* [\d.]+", files["OneProjection"]) == snapshot(
        ["grad_k_acc * 0.25", "grad_q_acc * 0.25"]
    )


def test_tensors_are_called_what_they_are(files: dict[str, str]) -> None:
    backward = files["ThreeProjections"].partition("\ndef three_projections_backward(")[2].partition("\n\n\n")[0]
    assert re.findall(r"^ +(\w+) = torch\.(?:empty|ops)", backward, re.M) == snapshot(
        [
            "grad_out_weight",
            "grad_attended",
            "delta",
            "grad_values",
            "grad_mm_1",
            "grad_mm",
            "grad_v_weight",
            "grad_k_weight",
            "mm_9",
            "grad_q_weight",
            "grad_x",
            "grad_x_1",
        ]
    )
