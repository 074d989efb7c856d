"""Inputs from how the body handles axes: patterns of named axes, indices and masks in brackets, bounds of slices."""

from inline_snapshot import snapshot

HELPER = """
import re

def regroup(x, pattern, *rest, **lengths):
    '''Says nothing of what it wants.'''
    for tensor, term in zip([x, *[r for r in rest if not isinstance(r, str)]], pattern.split("->")[0].split(",")):
        groups = re.findall(r"\\([^)]*\\)|\\S+", term)
        if "..." not in groups and len(groups) != tensor.dim():
            raise KeyError(0)
        for size, group in zip(reversed(tensor.shape), reversed(groups)):
            factor = 1
            for axis in group.strip("()").split():
                factor *= int(axis) if axis.isdigit() else lengths.get(axis, 1)
            if size % factor or (factor > 1 and " " not in group and size != factor):
                raise KeyError(0)
    return tensor.relu()
"""
SOURCE = """
import torch
from torch import nn, Tensor
from axes import regroup

def heads_apart(x):
    return regroup(x, "b n (h d) -> b h n d", h=12)

def patches(images, size):
    return regroup(images, "b c (h p) (w q) -> b (h w) (p q c)", p=7, q=size)

def last_only(x):
    return regroup(x, "... 3 (h d) -> ... d h", h=7)

def two(q, k):
    return regroup(q, "b i d, b j d -> b i j", k)

def prose(x):
    return regroup(x, "from a to b -> c") if x is None else x.relu()

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.pattern, self.lengths = "b (h d) i j k -> b h d (i j k)", {"h": 12}
    def forward(self, x):
        return regroup(x, self.pattern, **self.lengths)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(Layer(), nn.ReLU())
    def forward(self, x):
        return self.layers(x)

def take(x: Tensor, i):
    return x.relu()[i]

def weights(i):
    return i.float().softmax(-1)

def take_weighted(x: Tensor, i):
    return (x[i] * weights(i).unsqueeze(-1)).sum(0)

def rows_and_columns(x: Tensor, rows, cols):
    return x.relu()[rows, cols]

def chosen(x: Tensor, positions: Tensor):
    return x.relu()[:, positions]

def dropped(x: Tensor, mask):
    y = x.relu()
    y[mask] = 0
    return y

def kept(x: Tensor, keep: Tensor):
    return x.relu()[~keep].sum()

def first(x: Tensor, amount):
    return x.relu()[..., :amount]
"""


def inputs(trace, name):
    return trace(SOURCE, name, files={"axes.py": HELPER}).inputs()


def test_axes_by_name_give_the_rank_and_what_a_size_is_a_multiple_of(trace):
    assert inputs(trace, "heads_apart") == snapshot(["x: f32[4, 8, 72] · search"])


def test_lengths_of_axes_are_numbers(trace):
    assert inputs(trace, "patches") == snapshot(["images: f32[4, 3, 70, 64] · search", "size: 64 · search"])


def test_sizes_counted_from_the_end_of_a_pattern(trace):
    assert inputs(trace, "last_only") == snapshot(["x: f32[3, 70] · search"])


def test_a_pattern_of_two_tensors(trace):
    assert inputs(trace, "two") == snapshot(["q: f32[4, 8, 64] · search", "k: f32[12, 16, 32] · search"])


def test_a_text_with_an_arrow_that_is_no_pattern(trace):
    assert inputs(trace, "prose") == snapshot(["x: f32[4, 64] · search"])


def test_a_pattern_that_a_layer_keeps(trace):
    assert inputs(trace, "Net") == snapshot(["x: f32[4, 24, 12, 16, 64] · search"])


def test_a_single_index_is_a_number(trace):
    assert inputs(trace, "take") == snapshot(["x: f32[4, 64] · search", "i: 0 · search"])


def test_an_index_that_cannot_be_a_number_is_a_tensor(trace):
    assert inputs(trace, "take_weighted") == snapshot(["x: f32[4, 64] · search", "i: i64[8] · search"])


def test_several_indices_are_of_one_size(trace):
    assert inputs(trace, "rows_and_columns") == snapshot(
        ["x: f32[4, 64] · search", "rows: i64[8] · search", "cols: i64[8] · search"]
    )


def test_an_index_that_is_annotated(trace):
    assert inputs(trace, "chosen") == snapshot(["x: f32[4, 64] · search", "positions: i64[8] · search"])


def test_a_mask_that_is_assigned_through(trace):
    assert inputs(trace, "dropped") == snapshot(["x: f32[4, 64] · search", "mask: b8[4] · search"])


def test_a_mask_that_is_inverted(trace):
    assert inputs(trace, "kept") == snapshot(["x: f32[4, 64] · search", "keep: b8[4] · search"])


def test_the_bound_of_a_slice_is_a_number(trace):
    assert inputs(trace, "first") == snapshot(["x: f32[4, 64] · search", "amount: 2 · search"])
