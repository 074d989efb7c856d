"""Sizes that the code has a name for are known by it, where they are the same variable and not only the same number."""

from __future__ import annotations

from conftest import Traced, TraceFixture
from inline_snapshot import snapshot

from fx_lsp.features.wording.dimensions import SizeNames
from fx_lsp.features.wording.text import is_tensor_spec


def shown(traced: Traced) -> list[str]:
    """What each variable and each result holds that is a tensor: `line name: spec`."""
    names, tensors = SizeNames(traced.trace, "names"), [v for v in traced.trace.values if is_tensor_spec(v.spec)]
    return [f"{v.span.line} {v.name}: {names.of_value(v)}" for v in tensors if v.name]


def test_unpacked_shapes_go_through_the_function(trace: TraceFixture) -> None:
    traced = trace("""
        import torch

        def f(x):
            B, T, C = x.shape
            y = x.repeat(1, 1, 3)
            heads = y.view(B, T, 6, C // 2).transpose(1, 2)
            return heads.flatten(2)
    """)
    assert shown(traced) == snapshot(
        ["3 x: f32[B, T, C]", "5 y: f32[B, T, 3*C]", "6 heads: f32[B, 6, T, C//2]", "7 return: f32[B, 6, T*(C//2)]"]
    )


def test_equal_numbers_are_not_the_same_size(trace: TraceFixture) -> None:
    traced = trace("""
        import torch

        # fx: x=f32[8, 8, 4]
        def f(x):
            n, m, d = x.shape
            y = x.transpose(0, 1)
            z = torch.zeros(8, d)
            return y @ z.T
    """)
    assert shown(traced) == snapshot(
        ["4 x: f32[n, m, d]", "6 y: f32[m, n, d]", "7 z: f32[8, d]", "8 return: f32[m, n, 8]"]
    )


def test_a_name_belongs_to_one_run_of_its_function(trace: TraceFixture) -> None:
    traced = trace(
        """
        def rows(t):
            n, d = t.shape
            return t.sum(0)

        # fx: x=f32[8, 4], y=f32[16, 6]
        def f(x, y):
            a = x.size(0)
            s = rows(x)
            return y * a, s
    """
    )
    assert shown(traced) == snapshot(
        [
            "6 x: f32[a, 4]",
            "6 y: f32[16, 6]",
            "1 t: f32[n, d]",
            "3 return: f32[d]",
            "8 s: f32[4]",
            "9 return: (f32[16, 6], f32[4])",
        ]
    )


def test_a_variable_that_changes_names_nothing(trace: TraceFixture) -> None:
    traced = trace("""
        import torch

        def f(x):
            b, n = x.shape
            n = n // 2
            return x[:, :n]
    """)
    assert shown(traced) == snapshot(["3 x: f32[b, 64]", "6 return: f32[b, 32]"])


def test_sizes_that_an_operation_finds_equal_share_a_name(trace: TraceFixture) -> None:
    traced = trace("""
        import torch

        def f(q, k, v):
            B, H, T, D = q.shape
            weights = (q @ k.transpose(-2, -1)).softmax(-1)
            y = weights @ v
            return y.transpose(1, 2)
    """)
    assert shown(traced) == snapshot(
        [
            "3 q: f32[B, H, T, D]",
            "3 k: f32[B, H, 24, D]",
            "3 v: f32[B, H, 24, 96]",
            "5 weights: f32[B, H, T, 24]",
            "6 y: f32[B, H, T, 96]",
            "7 return: f32[B, T, H, 96]",
        ]
    )


def test_numbers_that_a_module_keeps_have_its_names(trace: TraceFixture) -> None:
    traced = trace(
        """
        from torch import nn

        # fx: init(dim=48, heads=6), x=f32[2, 10, 48]
        class Attention(nn.Module):
            def __init__(self, dim, heads):
                super().__init__()
                self.heads = heads
                self.qkv = nn.Linear(dim, 3 * dim)

            def forward(self, x):
                B, N, C = x.shape
                qkv = self.qkv(x).reshape(B, N, 3, self.heads, C // self.heads)
                q, k, v = qkv.permute(2, 0, 3, 1, 4)
                y = (q @ k.mT).softmax(-1) @ v
                return y.transpose(1, 2).reshape(B, N, C)
    """,
        "Attention",
    )
    assert shown(traced) == snapshot(
        [
            "10 x: f32[B, N, C]",
            "12 qkv: f32[B, N, 3, heads, C//heads]",
            "13 q: f32[B, heads, N, C//heads]",
            "13 k: f32[B, heads, N, C//heads]",
            "13 v: f32[B, heads, N, C//heads]",
            "14 y: f32[B, heads, N, C//heads]",
            "15 return: f32[B, N, C]",
        ]
    )
    names = SizeNames(traced.trace, "names")
    specs = [names.of_node(node) for node in traced.stage("forward").nodes if node.op == "call_function"]
    assert "f32[B*heads, N, N]" in specs
    assert names.legend() == snapshot("B = 2, N = 10, C = 48")


def test_shapes_in_comments_annotations_and_patterns(trace: TraceFixture) -> None:
    traced = trace('''
        from typing import Annotated

        import torch


        def f(x: Annotated[torch.Tensor, "b n c"], w, u):
            """Mix.

            Args:
                w: of shape (c, e)
            """
            y = x @ w
            z = torch.einsum("bnd,nm->bmd", y, u)  # (B, M, D)
            return z.sum(1)
    ''')
    assert shown(traced) == snapshot(
        [
            "6 x: f32[b, n, c]",
            "6 w: f32[c, e]",
            "6 u: f32[n, m]",
            "12 y: f32[b, n, d]",
            "13 z: f32[b, m, d]",
            "14 return: f32[b, d]",
        ]
    )


def test_a_comment_on_a_product_says_what_comes_of_it(trace: TraceFixture) -> None:
    traced = trace("""
        import torch

        # fx: q=f32[4, 8, 8], k=f32[4, 8, 8]
        def f(q, k):
            B, T, C = q.shape
            first = q.relu()  # (B, T, hs)
            scores = q @ k.transpose(-2, -1)  # (B, T, hs) @ (B, hs, T) -> (B, T, T)
            wrong = q.transpose(-2, -1) * 2  # (B, hs, C)
            return scores
    """)
    assert shown(traced) == snapshot(
        [
            "4 q: f32[B, T, C]",
            "4 k: f32[B, 8, C]",
            "6 first: f32[B, T, hs]",
            "7 scores: f32[B, T, 8]",
            "8 wrong: f32[B, C, T]",
            "9 return: f32[B, T, 8]",
        ]
    )


def test_a_comment_that_does_not_fit_is_prose(trace: TraceFixture) -> None:
    traced = trace("""
        import torch

        def f(x):
            B, T = x.shape
            y = x * 2  # (T, B)
            z = x + 1  # [B, T, C]
            return y + z  # (B, T)
    """)
    assert shown(traced) == snapshot(["3 x: f32[B, T]", "5 y: f32[B, T]", "6 z: f32[B, T]", "7 return: f32[B, T]"])


def test_what_ran_before_symbols_fail_is_named(trace: TraceFixture) -> None:
    traced = trace("""
        import torch

        def f(x):
            b, n = x.shape
            y = x * 2
            sizes = {6: 1}.get(hash(n), n)
            return y[:, : int(sizes)]
    """)
    assert shown(traced)[:2] == snapshot(["3 x: f32[b, n]", "5 y: f32[b, n]"])


def test_code_without_names_has_none(trace: TraceFixture) -> None:
    traced = trace("""
        import torch

        def f(x):
            return x.relu()
    """)
    assert traced.trace.named == ()


def test_an_operation_with_another_tensor_fixes_a_size(trace: TraceFixture) -> None:
    traced = trace("""
        import torch
        from torch import nn

        class f(nn.Module):
            def __init__(self, dim=16):
                super().__init__()
                self.up = nn.Linear(dim, 32)

            def forward(self, x, y):
                B, T, C = x.shape
                if T == 8:
                    x = x + 1
                return self.up(x) * y
    """)
    inputs = [n for n in traced.trace.named if n.kind == "input"]
    assert [(n.name, n.names, [by and (by.line, by.col) for by in n.fixed]) for n in inputs] == snapshot(
        [("x", ("B", "T", "C"), [None, None, (13, 15)]), ("y", ("B", "T", ""), [None, None, (13, 15)])]
    )
