"""A target whose inputs are pinned is traced with the same inputs, and they come from the comment."""

from __future__ import annotations

import re

import pytest

from fx_lsp.features.source.pin import comment_text

SOURCES = {
    "a function": (
        "f",
        """
        import torch

        def f(x, index, mode="mean", scale=2.0):
            y = torch.softmax(x @ x.transpose(-2, -1), -1)[index]
            return y.mean() * scale if mode == "mean" else y
        """,
    ),
    "containers": (
        "f",
        """
        import torch

        # fx: xs=(f32[4], {'a': f32[B]}), scale=Scale.large
        def f(xs, scale, w: torch.Tensor):
            return xs[0] * xs[1]["a"].sum() * scale.value + w.sum()

        class Scale(__import__("enum").Enum):
            large = 3
        """,
    ),
    "a module": (
        "Block",
        """
        import torch
        from torch import nn

        class Block(nn.Module):
            def __init__(self, dim, heads=2):
                super().__init__()
                self.heads, self.project = heads, nn.Linear(dim, 3 * dim)

            def forward(self, x, *, causal: bool = False):
                b, t, d = x.shape
                q, k, v = self.project(x).view(b, t, self.heads, -1).chunk(3, -1)
                return q * k + v
        """,
    ),
}


@pytest.mark.parametrize("case", SOURCES)
def test_pinned_inputs_are_traced_again(case: str, trace):
    name, source = SOURCES[case]
    found = trace(source, name)
    comment = ", ".join(comment_text(found.source, found.trace.inputs))
    definition = re.compile(rf"^(def|class) (?={name}\b)", re.MULTILINE)
    again = trace(definition.sub(rf"# fx: {comment}\n\1 ", found.source.replace("# fx:", "# was:")), name)
    assert [(i.name, i.spec) for i in again.trace.inputs] == [(i.name, i.spec) for i in found.trace.inputs]
    assert {i.source for i in again.trace.inputs} <= {"comment", "default"}
