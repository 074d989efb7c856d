"""Lower random numbers: each is a function of a seed and of the index of its element."""

from __future__ import annotations

import torch
from torch import fx

from fx_lsp.codegen.graph.query import shape_of
from fx_lsp.codegen.ir.index import Coords, contiguous_strides, count, linear
from fx_lsp.codegen.ir.lowerings import args_of, lowering
from fx_lsp.codegen.ir.ops import op
from fx_lsp.codegen.ir.values import Constant, Guard, Value
from fx_lsp.codegen.lower.builder import Builder


@lowering("prims.inductor_random")
def random(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Lower random numbers from the open interval (0, 1), or from a normal distribution."""
    _, seed, kind = args_of(node)
    shape = shape_of(node)
    dtype = torch.int32 if count(shape).is_Integer and count(shape) < 2**31 else torch.int64
    place = b.coordinate(linear(coords, contiguous_strides(shape)), None, dtype)
    if isinstance(place, Constant):
        place = b.compute(op("tl.full([], a, tl.int32)"), (place,), torch.int32, None)
    return b.compute(op(f"tl.{kind}(a, b)"), (b.lower(seed, (), guard), place), torch.float32, node)
