"""The kernel for the gradient of an attention's bias: scores of backward, summed over the batches that share it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import sympy
from torch import fx

from fx_lsp.choices import Precision
from fx_lsp.codegen.attending import Attending, operand_text
from fx_lsp.codegen.attention import Attention
from fx_lsp.codegen.index import ZERO, contiguous_strides, linear
from fx_lsp.codegen.kernel import Kernel, Line, Naming
from fx_lsp.codegen.own import Piece
from fx_lsp.codegen.places import Place
from fx_lsp.codegen.scores import Shapes, Sum
from fx_lsp.codegen.text import size_text, unparsed
from fx_lsp.codegen.tiles import Dim, Tile
from fx_lsp.codegen.values import Buffer, Value

CONFIGS = ((128, 64, 8, 3), (64, 128, 8, 3), (64, 64, 4, 3), (128, 128, 8, 2), (64, 32, 4, 3))


class SummedScores(Attending):
    """A program keeps rows and columns, and goes through the batches that are summed. Two runs give the same bits."""

    def __init__(
        self,
        title: str,
        found: Attention,
        summed: Sum,
        piece: Piece,
        shapes: Shapes,
        places: Mapping[int, Place],
        buffers: Mapping[fx.Node, Buffer],
        naming: Naming,
        precision: Precision,
    ) -> None:
        super().__init__(title, "m", piece, shapes, places, buffers, naming, precision, CONFIGS)
        self.found, self.summed = found, summed
        self.taken.update(("share", "step"))
        self.ndim = replace(self.ndim, role="grid")
        number = sympy.cancel(shapes.batch / summed.summed)
        self.share = self.space.axis("share", number) if number != 1 else ZERO
        self.others_named = {self.share: "share"} if number != 1 else {}
        share = Dim((sympy.Symbol("share"),), (number,), "grid", 1, "share", "B", "")
        self.tile = Tile((self.mdim, self.ndim, *([share] if number != 1 else [])), {}, self.tile.configs)

    def looped(self, value: Value) -> bool:
        return self.summed.summed != 1 and self.b in value.axes

    def kernel(self) -> Kernel:
        """The kernel."""
        found, summed = self.found, self.summed
        assert found.gradient is not None
        for number, dim in enumerate((self.mdim, self.ndim)):
            start = f"tl.program_id({number}) * {dim.block_name}"
            self.line(f"{dim.variable} = {start} + tl.arange(0, {dim.block_name})")
        if self.share != 0:
            name = "share" if summed.summed != 1 else "batch"
            self.others_named = {self.share: name}
            self.line(f"{name} = tl.program_id(2)" + (".to(tl.int64)" if self.is_large() else ""))
        dtype = found.first.meta["val"].dtype
        operands = [self.sides(product) for product in (found.first, found.gradient)]
        self.bind(found.first, "products")
        self.bind(found.gradient, "grad_weights")
        self.bind_weights(found)
        score = self.score(summed.scores)
        self.prepare([*(o for pair in operands for o in pair), score])

        def body() -> str:
            for (left, right), title, node in zip(
                operands, ("products", "grad_weights"), (found.first, found.gradient), strict=True
            ):
                a, b = operand_text(self, left, dtype), operand_text(self, right, dtype)
                self.line(f"{title} = {self.dot(a, f'{b}.T', dtype)}", node)
            return unparsed(self.ref(score))

        place = self.places[0]
        node = place.node
        if summed.summed != 1:
            self.line("acc = tl.zeros([ROWS, COLS], tl.float32)", node)
            self.in_loop = True
            self.line(f"batch = {self._batch()}")
            self.line(f"acc += {body()}", node)
            self.in_loop = False
            self.outer.lines.append(Line(f"    for step in range({size_text(summed.summed)}):"))
            self.outer.lines.extend(self.inner.lines)
            result = "acc"
        else:
            result = body()
        axes, sizes = (self.share, self.m, self.n), (ZERO, self.shapes.m, self.shapes.n)
        coords = self.space.coordinates(linear(axes, contiguous_strides(sizes)), place.shape)
        self.store(place, coords, result)
        return self.finished([place.buffer])

    def _batch(self) -> str:
        """The batch of a step."""
        if self.share == 0:
            return "step"
        summed, number = (self._bracketed(s) for s in (self.summed.summed, self.space.sizes[self.share]))
        return f"share * {summed} + step" if self.summed.inner else f"step * {number} + share"

    def finished(self, writes: Sequence[Buffer]) -> Kernel:
        return replace(super().finished(writes), tile=self.tile)
