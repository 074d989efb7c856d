"""Attention over batches and lengths that are known only when it is called, and of parts of one tensor."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from files import names_in, outputs
from parameters import some

pytest_plugins = ["file_fixtures"]

SOURCE = """\
import torch
import torch.nn.functional as F
from torch import nn


# fx: q=f32[B, 3, 64, 32], k=f32[B, 3, 64, 32], v=f32[B, 3, 64, 32]
def any_batch(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


# fx: q=f32[B, H, T, 32], k=f32[B, H, T, 32], v=f32[B, H, T, 32]
def any_length(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


# fx: q=f32[B, 4, S, 32], k=f32[B, 2, L, 32], v=f32[B, 2, L, 32], mask=b8[B, 1, S, L]
def grouped(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)


# fx: q=f32[B, 2, T, 32], k=f32[B, 2, T, 32], v=f32[B, 2, T, 32], bias=f32[2, T, T]
def biased(q, k, v, bias):
    return torch.softmax(q @ k.mT / 5 + bias, -1) @ v


# fx: q=f32[B, 2, T, 32], k=f32[B, 2, T, 32], v=f32[B, 2, T, 32], bias=f32[B, 1, T, T]
def shared(q, k, v, bias):
    return torch.softmax(q @ k.mT / 5 + bias, -1) @ v


# fx: q=f32[B, T, 32], k=f32[B, T, 32], v=f32[B, T, 32]
def window(q, k, v):
    i = torch.arange(q.shape[1])
    near = (i[:, None] >= i[None, :]) & (i[:, None] - i[None, :] < 10)
    return torch.softmax((q @ k.mT / 5).masked_fill(~near, float("-inf")), -1) @ v


# fx: q=f32[rows, 32], k=f32[cols, 32], v=f32[cols, 20]
def named_as_indices(q, k, v):
    return torch.softmax(q @ k.T, -1) @ v


# fx: init(dim=96, heads=3), x=f32[B, T, 96]
class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).reshape(B, T, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(B, T, C))


# fx: init(dim=96, heads=3), x=f32[B, T, 96]
class Chunked(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
"""
NAMES = names_in(SOURCE)


LENGTHS = [(2, 70, 7), (1, 70, 7), (2, 3, 150)]


@pytest.mark.parametrize(("first", "second", "third"), some(LENGTHS, LENGTHS[:1], several=True))
def test_one_file_is_right_for_all_sizes(
    files: dict[str, str], tmp_path: Path, first: int, second: int, third: int
) -> None:
    others = {"16": str(first), "24": str(second), "40": str(third)}

    def resized(found: re.Match[str]) -> str:
        return re.sub(r"=(16|24|40)\b", lambda size: f"={others[size[1]]}", found[0])

    texts = {n: re.sub(r"^def arguments\(.*?\)", resized, t, flags=re.M | re.S) for n, t in files.items()}
    assert all(texts[n] != t for n, t in files.items())
    wrong = {n: said for n, said in outputs(tmp_path, texts).items() if said.splitlines()[-1] != "exit 0"}
    assert wrong == {}


@pytest.mark.parametrize("name", NAMES)
def test_it_is_a_kernel_that_never_holds_all_scores(files: dict[str, str], name: str) -> None:
    assert "running_max" in files[name]
    assert "aten.bmm" not in files[name]


@pytest.mark.parametrize("name", ["SelfAttention", "Chunked"])
def test_queries_keys_and_values_are_read_where_the_projection_put_them(files: dict[str, str], name: str) -> None:
    (forward,) = re.findall(r"^def \w+_forward_kernel\((.*?)\):", files[name], re.M | re.S)
    pointers = re.findall(r"\w+_ptr", forward)
    assert len(pointers) == 4, pointers  # the projection, the result, and two numbers for each row


def test_they_have_the_names_of_the_variables_that_they_are_unpacked_to(files: dict[str, str]) -> None:
    assert re.findall(r"(\w+) = tl\.load\(\s*addmm_ptr", files["SelfAttention"])[:3] == ["q", "k", "v"]
