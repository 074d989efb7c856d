"""What a target costs, by submodule and by source line."""

from __future__ import annotations

from conftest import Traced, TraceFixture
from inline_snapshot import snapshot

from fx_lsp.features.costs.summary import (
    Both,
    folded,
    render_summary,
    stages_of_summary,
    summary_of,
    summary_to_json,
)
from fx_lsp.model import Span

SOURCE = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        hidden = self.up(self.norm(x))
        return x + self.down(hidden.relu())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 16)
        self.blocks = nn.ModuleList(Block(16) for _ in range(4))
        self.unused = nn.Linear(16, 16)
        self.head = nn.Linear(16, 100, bias=False)
        self.head.weight = self.embed.weight

    # fx: tokens=i64[2, 8]
    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


# fx: x=f32[4, 8]
def f(x):
    return x.exp().sum()
"""


def shown(traced: Traced, full: bool = False) -> str:
    """The summary of a trace, without the version of torch."""
    trace, lines = traced.trace, traced.source.splitlines()

    def source_line(span: Span) -> str:
        return lines[span.line - 1]

    stages = [traced.stage(name) for name in stages_of_summary(trace)]
    return "\n".join(line for line in render_summary(trace, stages, source_line, full).text.splitlines()[3:])


def test_modules_with_equal_layers_once_and_lines(trace: TraceFixture) -> None:
    assert shown(trace(SOURCE, "Net")) == snapshot("""\

# parameters  10,512, 41.1 KiB
# peak        56.5 KiB of activations: in backward, at grad_embed_weight, user.py:28
#
# module             class       parameters  ops  backward    FLOP  backward      moved   backward     saved      peak
# the whole          Net             10,512   49       123   313 K     627 K  147.1 KiB  291.9 KiB  25.5 KiB  56.5 KiB
# embed              Embedding        1,600    1         3                      7.4 KiB   29.1 KiB     1 KiB  56.5 KiB
# blocks             ModuleList       8,640   44       111   262 K     524 K  126.2 KiB  235.8 KiB  23.5 KiB  53.8 KiB
#   blocks.0 … 2     3 × Block        2,160   11        28  65.5 K     131 K   31.6 KiB   59.7 KiB   6.1 KiB  53.8 KiB
#     blocks.0.norm  LayerNorm           32    1         1                      2.2 KiB    3.4 KiB     128 B  47.1 KiB
#     blocks.0.up    Linear           1,088    4        11  32.8 K    65.5 K    9.2 KiB   22.2 KiB     1 KiB  50.8 KiB
#     blocks.0.down  Linear           1,040    4        13  32.8 K    65.5 K    9.1 KiB   22.1 KiB            49.8 KiB
#   blocks.3         Block            2,160   11        27  65.5 K     131 K   31.6 KiB   56.7 KiB   5.1 KiB  43.8 KiB
#     blocks.3.norm  LayerNorm           32    1         1                      2.2 KiB    3.4 KiB     128 B  37.2 KiB
#     blocks.3.up    Linear           1,088    4        11  32.8 K    65.5 K    9.2 KiB   22.2 KiB     1 KiB  40.8 KiB
#     blocks.3.down  Linear           1,040    4        12  32.8 K    65.5 K    9.1 KiB   19.1 KiB            39.8 KiB
# unused             Linear             272
# head               Linear               0    4         9  51.2 K     102 K   13.5 KiB     27 KiB     1 KiB  31.8 KiB
#
# line  ops  backward    FLOP  backward     moved   backward    saved      peak
# 13     20        48   131 K     262 K    46 KiB  102.5 KiB  4.5 KiB  50.8 KiB  hidden = self.up(self.norm(x))
# 14     24        63   131 K     262 K  80.2 KiB  133.2 KiB   19 KiB  53.8 KiB  return x + self.down(hidden.relu())
# 28      1         3                     7.4 KiB   29.1 KiB    1 KiB  56.5 KiB  x = self.embed(tokens)
# 31      4         9  51.2 K     102 K  13.5 KiB     27 KiB    1 KiB  31.8 KiB  return self.head(x)\
""")


def test_a_function_has_no_modules(trace: TraceFixture) -> None:
    assert shown(trace(SOURCE)) == snapshot("""\

# peak        256 B of activations, 128 B of them saved for backward: in backward, at grad_x, user.py:36
#
# line  ops  backward  FLOP  backward  moved  backward  saved   peak
# 36      4         2                  388 B     260 B  128 B  256 B  return x.exp().sum()\
""")


def test_sums_are_those_of_the_graphs(trace: TraceFixture) -> None:
    traced = trace(SOURCE, "Net")
    stages = [traced.stage(name) for name in ("forward", "backward")]
    summary = summary_of(traced.trace, stages)
    ops, flops = (
        (traced.trace.ops("forward"), traced.trace.ops("backward")),
        [sum(node.flops for node in stage.nodes) for stage in stages],
    )
    assert (summary.totals.ops.forward, summary.totals.ops.backward) == ops
    assert [summary.totals.flops.forward, summary.totals.flops.backward] == flops
    assert summary.totals.saved_bytes == traced.trace.activation_bytes
    whole, *others = summary.modules
    assert whole.totals == summary.totals
    assert sum((row.totals.ops for row in summary.lines), Both()).forward == ops[0]
    children = [row for row in others if row.depth == 1]
    assert sum(row.parameters for row in children) == whole.parameters == summary.parameters
    module = 100 * 16 + 4 * (32 + 16 * 64 + 64 + 64 * 16 + 16) + 16 * 16 + 16
    assert summary.parameters == module  # what is shared counts once


def test_equal_layers_are_told_once_and_others_are_not(trace: TraceFixture) -> None:
    source = SOURCE.replace("self.embed = nn", "self.other = Block(16)\n        self.embed = nn")
    source = source.replace("x = self.embed(tokens)", "x = self.other(self.embed(tokens))")
    traced = trace(source, "Net")
    summary = summary_of(traced.trace, [traced.stage(name) for name in ("forward", "backward")])
    assert [(row.path, *row.like) for row in folded(summary.modules) if row.kind == "Block"] == snapshot(
        [("other",), ("blocks.0", "blocks.1", "blocks.2"), ("blocks.3",)]
    )


def test_data_for_scripts_has_every_module(trace: TraceFixture) -> None:
    traced = trace(SOURCE, "Net")
    summary = summary_of(traced.trace, [traced.stage(name) for name in ("forward", "backward")])
    data = summary_to_json(summary, lambda span: None)
    assert [module["path"] for module in data["modules"] if module["class"] == "Block"] == [
        f"blocks.{i}" for i in range(4)
    ]
    unused = next(module for module in data["modules"] if module["path"] == "unused")
    assert unused == snapshot(
        {
            "path": "unused",
            "class": "Linear",
            "parameters": 272,
            "parameter_bytes": 1088,
            "ops": {"forward": 0, "backward": 0},
            "flops": {"forward": 0, "backward": 0},
            "moved_bytes": {"forward": 0, "backward": 0},
            "sent_bytes": {"forward": 0, "backward": 0},
            "saved_bytes": 0,
            "peak_bytes": 0,
        }
    )
