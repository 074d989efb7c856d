"""The text of the kernel of a matmul."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import sympy
import torch
from torch import fx

from fx_lsp.choices import Choices
from fx_lsp.codegen.graph.edit import tidied
from fx_lsp.codegen.graph.template_kernel import Writer, replace_with_kernel
from fx_lsp.codegen.ir.index import Index, coefficient, count
from fx_lsp.codegen.ir.kernel import Kernel, Line, Naming, indented, sizes_in
from fx_lsp.codegen.ir.ops import operation
from fx_lsp.codegen.ir.text import filled, unparsed
from fx_lsp.codegen.ir.tile import Dim
from fx_lsp.codegen.ir.values import Buffer, Load, Value, triton_type, values_of
from fx_lsp.codegen.ir.write_target import Place
from fx_lsp.codegen.lower.matmul import Computed, Matmul, computed, operands
from fx_lsp.codegen.schedule.matmul_fusion import fused_matmul, has_kernel
from fx_lsp.codegen.schedule.matmul_tiling import Matrix, tiling
from fx_lsp.codegen.triton.expressions import Writing
from fx_lsp.codegen.triton.masks import at_end


def writer(matmul: Matmul, choices: Choices) -> Writer:
    """Writes the kernel of a matmul."""
    piece = matmul.piece()
    node = piece.of[matmul.node]
    results = [piece.of[r] for r in matmul.results]

    def write(
        places: Mapping[int, Place], buffers: Mapping[fx.Node, Buffer], naming: Naming, title: str
    ) -> list[Kernel]:
        if not places:
            return []
        made: Any = next(iter(places.values())).node.args[0]
        memory = {copy: buffers[read] for copy, read in zip(piece.reads, made.args, strict=True)}
        targets = {results[number]: place for number, place in places.items()}
        last = naming.name(places[max(places)].node)
        return [_Multiplying(f"{title}_{last}", computed(node, memory, targets), naming, choices).kernel()]

    return write


class _Multiplying(Writing):
    """Writes the kernel; which way an axis lies in a tile depends on whose it is: an operand's or the result's."""

    def __init__(self, title: str, made: Computed, naming: Naming, choices: Choices) -> None:
        self.made, self.precision = made, choices.precision
        found = tiling(made, choices)
        self.rows, self.cols, self.depth, self.batch = found.rows, found.cols, found.depth, found.batch
        self.dtype, self.tiles, self.matrices = found.dtype, found.operands, found.matrices
        super().__init__(title, found.tile, made.stores, made.builder.indirect, naming)
        roots = [*self.tiles, *(s.value for s in made.stores)]
        self.values = list(values_of(roots))
        self.uses = Counter(id(i) for v in self.values for i in v.inputs)
        self.uses.update(id(v) for v in roots)
        self.taken |= {"acc", "pid_m", "pid_n", "num_m", "num_n", "tile", "within", "M", "N", "K", "GROUP"}
        self.variables = dict(self.names)

    # which way axes lie

    def orient(self, tall: Dim, wide: Dim) -> None:
        """From here on, tiles have a row for each element of `tall` and a column for each of `wide`."""
        self.shaped = [tall, wide]
        for dim in (tall, wide):
            place = "[:, None]" if dim is tall else "[None, :]"
            self.names.update({a: self.variables[a] + place for a in dim.axes})

    def _mask(self, dim: Dim) -> str:
        if dim is not self.depth:
            return f"{dim.variable}_mask"
        place = "[:, None]" if dim is self.shaped[0] else "[None, :]"
        return f"({dim.variable}{place} < {dim.size_name})"

    def _known_sizes(self, index: Index) -> dict[int, str]:
        """The stride along what is not contiguous in a matrix is the size of the other dimension, and that between two
        matrices the product of both."""
        inner = next(
            (
                d
                for d in reversed(self.shaped)
                if len(d.axes) == 1 and coefficient(self.tile.index(index), d.axes[0]) == 1
            ),
            None,
        )
        if inner is None or not inner.size.is_Integer or inner.size < 16:
            return {}
        dims, sizes = [inner], {int(inner.size): inner.size_name}
        other = next(d for d in self.shaped if d is not inner)
        whole = inner.size * other.size
        if whole.is_Integer and other.size > 1 and whole < 2**31 and index.has(whole):
            dims.append(other)
            sizes[int(whole)] = f"({other.size_name} * {inner.size_name})"
        if not any(index.has(sympy.Integer(s)) for s in sizes):
            return {}
        self.used_sizes.update(d.size_name for d in dims)
        return sizes

    # the whole

    def kernel(self) -> Kernel:
        ahead = self._descriptors() if self.matrices is not None else []
        self._programs()
        self._multiply()
        self.orient(self.rows, self.cols)
        for store in self.stores:
            self._store(store)
        self.outer.lines[:] = [*ahead, *(indented(self.outer.lines) if ahead else self.outer.lines)]
        sizes = {d.size_name: d.size for d in self.tile.dims if d.size_name in self.used_sizes}
        buffers = (*self.reads.values(), *self.writes.values())
        known = [*self.made.builder.space.sizes.values(), *(e for b in buffers for e in (*b.shape, *b.strides))]
        sizes |= sizes_in(self.outer.lines, known)
        args = [f"{b}_ptr" for b in (*self.reads, *(w for w in self.writes if w not in self.reads))]
        args += [f"{s}: tl.constexpr" if v.is_Integer and s in ("N", "K") else s for s, v in sizes.items()]
        args += [f"{b}: tl.constexpr" for b, _ in self.tile.configs[0].blocks]
        head = Line(f"def {self.title}({', '.join(args)}):")
        reads, writes = list(self.reads.values()), list(self.writes.values())
        return Kernel(
            self.title,
            [head, *self.outer.lines],
            reads,
            writes,
            sizes,
            self.tile,
            list(self.helpers),
            described=tuple(m.buffer.name for m in self.matrices or ()),
        )

    def _descriptors(self) -> list[Line]:
        """The lines around the tiles of a kernel that TMA reads for: a program computes one tile after the other, so
        that the operands of the next are on their way while it ends one."""
        assert self.matrices is not None
        self.used_sizes.update(("M", "N", "K"))
        self.described: list[str] = []
        lines = ["num_m, num_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)"]
        lines.append("# TMA reads whole tiles, with zeros behind the ends")
        for matrix in self.matrices:
            self.described.append(self.unique(f"{matrix.buffer.name}_tiles"))
            lines.append(f"{self.described[-1]} = {matrix.descriptor()}")
        batches = f"{self._bracketed(self.batch.size)} * " if self.batch in self.tile.dims else ""
        tiles = f"{batches}num_m * num_n"
        lines.append(f"for tile in tl.range(tl.program_id(0), {tiles}, tl.num_programs(0), flatten=True):")
        return [Line(f"    {line}") for line in lines]

    def _programs(self) -> None:
        """Which tile a program computes."""
        wide, batched = ".to(tl.int64)" if self._large() else "", self.batch in self.tile.dims
        batch = "tl.program_id(2)"
        if self.matrices is not None and batched:
            self.line("within = tile % (num_m * num_n)")
            batch = "(tile // (num_m * num_n))" if wide else "tile // (num_m * num_n)"
        self.line("# programs that run at the same time share operands in the L2 cache")
        if self.matrices is not None:
            number = "within" if batched else "tile"
            self.line(f"pid_n, pid_m = tl.swizzle2d({number} // num_m, {number} % num_m, num_n, num_m, GROUP)")
        else:
            self.line("pid_m, pid_n = tl.program_id(0), tl.program_id(1)")
            self.line("num_m, num_n = tl.num_programs(0), tl.num_programs(1)")
            self.line("pid_n, pid_m = tl.swizzle2d(pid_n, pid_m, num_n, num_m, GROUP)")
        if batched:
            self.line(f"{self.batch.variable} = {batch}{wide}")
            self._split_axes(self.batch)
        for dim, block, place in ((self.rows, "pid_m", "[:, None]"), (self.cols, "pid_n", "[None, :]")):
            self.line(f"{dim.variable} = {block}{wide} * {dim.block_name} + tl.arange(0, {dim.block_name})")
            self._split_axes(dim)
            if not self.even(dim):
                self.used_sizes.add(dim.size_name)
                self.line(f"{self._mask(dim)} = {dim.variable}{place} < {dim.size_name}")

    def _large(self) -> bool:
        loads = [v.buffer for v in self.values if isinstance(v, Load)]
        sizes = [count(b.shape) for b in (*loads, *(s.buffer for s in self.stores))]
        return any(not s.is_Integer or s >= 2**31 for s in sizes)

    def _multiply(self) -> None:
        """The loop over what is summed."""
        node, depth = self.made.node, self.depth
        self.used_sizes.add(depth.size_name)
        self.line(f"acc = tl.zeros([{self.rows.block_name}, {self.cols.block_name}], tl.float32)", node)
        self.in_loop, before = True, self.comment
        if self.matrices is not None:
            tiles = [self._tile(m, name) for m, name in zip(self.matrices, self.described, strict=True)]
        else:
            steps = f"start + tl.arange(0, {depth.block_name})"
            self.line(f"{depth.variable} = {f'({steps}).to(tl.int64)' if self._large() else steps}")
            self._split_axes(depth)
            left, right = operands(node)
            tiles = [
                self._operand(self.tiles[0], left, self.rows, depth),
                self._operand(self.tiles[1], right, depth, self.cols),
            ]
        precision = ""
        if self.dtype is torch.float32:
            if self.precision == "ieee":
                self.line('# "tf32" is several times as fast, with a mantissa of 10 bits')
            precision = f', input_precision="{self.precision}"'
        self.line(f"acc = tl.dot({', '.join(tiles)}, acc{precision})", node)
        self.in_loop, self.comment = False, before
        self.outer.lines.append(Line(f"    for start in range(0, {depth.size_name}, {depth.block_name}):", node))
        self.outer.lines.extend(self.inner.lines)
        self.inner.lines.clear()
        self.inner.known.clear()

    def _tile(self, matrix: Matrix, name: str) -> str:
        """The name of a tile of an operand that TMA reads."""
        self.reads[matrix.buffer.name] = matrix.buffer
        starts = {"M": "pid_m * BLOCK_M", "N": "pid_n * BLOCK_N", "K": "start"}
        narrow = ".to(tl.int32)" if self._large() else ""
        place = [f"{self.variables[o.axis]}{narrow}" for o in matrix.outer]
        place += [starts[dim.size_name] for dim in (matrix.rows, matrix.columns)]
        variable = self.unique(matrix.buffer.name)
        self.line(f"{variable} = {matrix.tile(name, place)}")
        return variable

    def _operand(self, value: Value, node: fx.Node, tall: Dim, wide: Dim) -> str:
        """The name of a tile of an operand, in its own dtype, and 0 behind the end of what is summed."""
        self.orient(tall, wide)
        self.inner.known.clear()
        ends = lambda axes: self.depth in self.masked_dims(axes)  # noqa: E731
        loads = [v for v in values_of([value]) if isinstance(v, Load) and ends(v.axes)]
        self.others = {id(v): 0.0 if v.dtype.is_floating_point else 0 for v in loads}
        expr = self.ref(value)
        if value.dtype != self.dtype:
            expr = filled(f"a.to({triton_type(self.dtype)})", {"a": expr})
        if any(d not in self.dims_of(value.axes) for d in (tall, wide)):
            shape = filled(f"[{tall.block_name}, {wide.block_name}]", {})
            expr = filled("tl.broadcast_to(a, s)", {"a": expr, "s": shape})
        if not self.even(self.depth) and at_end(value, self.others, ends) != 0.0:
            expr = filled("tl.where(m, a, 0.0)", {"m": filled(self._mask(self.depth), {}), "a": expr})
        text = unparsed(expr)
        if text.isidentifier():
            return text
        variable = self.unique(self.naming.name(node))
        self.line(f"{variable} = {text}", node)
        return variable


MATMULS = ("aten.mm.default", "aten.addmm.default", "aten.bmm.default", "aten.baddbmm.default")


def fuse_matmuls(graph: fx.Graph, choices: Choices) -> None:
    """Have kernels of ours stand for matmuls of a graph, and for what is computed of their operands and results.

    "epilogue" takes those where that saves reading or writing a tensor of the result's size, "always" all that have a
    kernel.
    """
    done: set[fx.Node] = set()
    while choices.matmul != "never":
        node = next((n for n in graph.nodes if operation(n) in MATMULS and n not in done), None)
        if node is None:
            return
        done.add(node)
        found = fused_matmul(node, choices) if has_kernel(node) else None
        if found is not None:
            replace_with_kernel(graph, found.results, found.reads, writer(found, choices))
            tidied(graph)
