"""Operations that are given functions: control flow, scans and FlexAttention."""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot

HEAD = """\
import torch
from torch import nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as mapped
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

"""


def higher_order(traced, stage: str) -> list[str]:
    """The higher-order operations of a stage with what they give."""
    nodes = traced.stage(stage).nodes
    return [f"{n.target.rpartition('.')[2]}: {n.spec}" for n in nodes if "higher_order" in n.target]


@pytest.mark.parametrize(
    ("body", "forward", "backward"),
    [
        (
            "torch.cond(x.mean() > 0, lambda t: t @ w, lambda t: t.sin() @ w, (x,))",
            snapshot(["cond: (f32[4, 8],)"]),
            snapshot(["cond: (f32[8, 8], f32[4, 8])"]),
        ),
        (
            "mapped(lambda row: row @ w, x[None])",
            snapshot(["map_impl: (f32[1, 4, 8],)"]),
            snapshot(["map_impl: (f32[1, 4, 8], f32[1, 8, 8])"]),
        ),
        (
            "scan(lambda c, row: (c + row @ w, (c * row).sum()), torch.zeros(8), x)[1]",
            snapshot(["scan: (f32[8], f32[4], f32[4, 8], f32[4, 8, 1], f32[4, 8, 8])"]),
            snapshot(["scan: (f32[8], f32[8, 8], f32[4, 8])"]),
        ),
        (
            "associative_scan(lambda a, b: a * b, x @ w, dim=0, combine_mode='generic')",
            snapshot([]),
            snapshot([]),
        ),
    ],
    ids=["cond", "map", "scan", "associative_scan"],
)
def test_functions_read_what_is_around_them(body: str, forward, backward, trace):
    traced = trace(HEAD + f"# fx: x=f32[4, 8], w=f32[8, 8]\ndef f(x, w):\n    return {body}\n", "f")
    assert not traced.trace.refused
    assert higher_order(traced, "forward") == forward
    assert higher_order(traced, "backward") == backward


def test_a_loop_that_runs_while_a_condition_holds(trace):
    source = """
# fx: x=f32[4, 8]
@torch.no_grad()
def f(x):
    return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x))[1]
"""
    traced = trace(HEAD + source, "f")
    assert higher_order(traced, "inference") == snapshot(["while_loop: (i64[], f32[4, 8])"])


FLEX = """
# fx: init(heads=4), x=f32[2, 128, 64]
class Attention(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(64, 192)
        self.slopes = nn.Parameter(torch.ones(heads))

    def forward(self, x):
        q, k, v = self.qkv(x).view(2, 128, 3, self.heads, 16).permute(2, 0, 3, 1, 4)
        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 128, 128, device=x.device)

        def alibi(score, b, h, i, j):
            return score + self.slopes[h] * (j - i)

        return torch.compile(flex_attention)(q, k, v, score_mod=alibi, block_mask=mask)
"""


def test_flex_attention_with_a_bias_that_is_learned(trace):
    traced = trace(HEAD + FLEX, "Attention")
    assert higher_order(traced, "forward") == snapshot(
        ["flex_attention: (f32[2, 4, 128, 16](8192, 16, 64, 1), f32[2, 4, 128], f32[2, 4, 128])"]
    )
    assert higher_order(traced, "backward")[0].endswith("(f32[4],))")  # the gradient of the bias
    assert "grad_slopes" in [node.name for node in traced.stage("joint").nodes]
    assert traced.trace.notes == snapshot(
        ("FlexAttention has no backward on the CPU: its backward is shown as a GPU runs it",)
    )


def test_flex_attention_on_a_gpu(trace):
    traced = trace(HEAD + FLEX.replace("64]\nclass", "64]@cuda\nclass"), "Attention")
    assert higher_order(traced, "forward") == snapshot(
        ["flex_attention: (f32[2, 4, 128, 16](8192, 16, 64, 1)@cuda, f32[2, 4, 128]@cuda, f32[2, 4, 128]@cuda)"]
    )


def test_what_is_wrong_in_a_branch(trace):
    source = """
# fx: x=f32[4, 8]
def f(x):
    return torch.cond(x.sum() > 0, lambda t: t @ t, lambda t: t, (x,))
"""
    failure = trace(HEAD + source, "f").failure
    assert (failure.kind, failure.severity) == ("shape", "error")
    assert failure.message.startswith("matrices of 4×8 and 4×8 cannot be multiplied: the inner sizes 8 and 4 differ")


def test_attention_is_guessed_as_batches_of_heads(trace):
    source = """
def f(q: torch.Tensor, k, v, slopes):
    return flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: score + slopes[h] * (j - i))
"""
    traced = trace(HEAD + source, "f")
    assert traced.inputs() == snapshot(
        [
            "q: f32[4, 8, 12, 64] · search",
            "k: f32[4, 8, 24, 64] · search",
            "v: f32[4, 8, 24, 96] · search",
            "slopes: f32[44, 160] · search",
        ]
    )
    assert not traced.trace.refused


def test_values_of_another_length_than_their_keys_are_an_error(trace):
    comment = "# fx: q=f32[2, 4, 32, 16], k=f32[2, 4, 64, 16], v=f32[2, 4, 32, 16]"
    source = f"{comment}\ndef f(q, k, v):\n    return flex_attention(q, k, v)\n"
    failure = trace(HEAD + source, "f").failure
    assert (failure.severity, failure.message) == snapshot(
        ("error", "key and value are of different sizes: [2, 4, 64, 16] and [2, 4, 32, 16]")
    )


def test_what_is_compiled_is_traced_as_it_is_written(trace):
    source = """
# fx: x=f32[4, 8]
class Compiled(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self.fc.compile()
        self.compile(dynamic=True)
        self.act = torch.compile(nn.GELU(), mode="max-autotune")

    @torch.compile(fullgraph=True)
    def scaled(self, x):
        return x * 2

    def forward(self, x):
        return self.act(self.fc(self.scaled(x)))
"""
    traced = trace(HEAD + source, "Compiled")
    assert [n.target for n in traced.stage("forward").nodes if n.op == "call_function"] == snapshot(
        ["aten.mul.Tensor", "aten.t.default", "aten.addmm.default", "aten.gelu.default"]
    )
