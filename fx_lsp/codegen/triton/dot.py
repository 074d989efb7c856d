"""The text of the kernel of a matmul."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping
from typing import Any

import sympy
import torch
from torch import fx

from fx_lsp.choices import Choices
from fx_lsp.codegen.graph.edit import sort_graph
from fx_lsp.codegen.graph.template_kernel import replace_with_kernel
from fx_lsp.codegen.ir.index import Index, coefficient, count
from fx_lsp.codegen.ir.kernel import Kernel, KernelParameter, Naming, sizes_used
from fx_lsp.codegen.ir.lowerings import operation
from fx_lsp.codegen.ir.node_facts import TemplateWriter
from fx_lsp.codegen.ir.ops import triton_type
from fx_lsp.codegen.ir.statement import CodeComment, For, Statement, assign
from fx_lsp.codegen.ir.text import fill_template, parse_expression
from fx_lsp.codegen.ir.tile import Dim
from fx_lsp.codegen.ir.values import Buffer, Load, Value, values_of
from fx_lsp.codegen.ir.write_target import WriteTarget
from fx_lsp.codegen.lower.matmul import Matmul, MatmulValues, matmul_operands, matmul_values
from fx_lsp.codegen.schedule.matmul_fusion import has_kernel, matmul_with_epilogue
from fx_lsp.codegen.schedule.matmul_tiling import TmaMatrix, tile_matmul
from fx_lsp.codegen.triton.expressions import KernelWriter, Scope
from fx_lsp.codegen.triton.masks import padding_value


def matmul_writer(matmul: Matmul, choices: Choices) -> TemplateWriter:
    """Write the kernel of a matmul."""
    subgraph = matmul.subgraph()
    node = subgraph.of[matmul.node]
    results = [subgraph.of[r] for r in matmul.results]

    def write(
        targets: Mapping[int, WriteTarget], buffers: Mapping[fx.Node, Buffer], naming: Naming, title: str
    ) -> list[Kernel]:
        if not targets:
            return []
        kernel_node: Any = next(iter(targets.values())).node.args[0]
        memory = {copy: buffers[read] for copy, read in zip(subgraph.reads, kernel_node.args, strict=True)}
        result_targets = {results[number]: place for number, place in targets.items()}
        last = naming.name(targets[max(targets)].node)
        return [_MatmulWriter(f"{title}_{last}", matmul_values(node, memory, result_targets), naming, choices).kernel()]

    return write


class _MatmulWriter(KernelWriter):
    """Writes the kernel; which way an axis lies in a tile depends on whose it is: an operand's or the result's."""

    def __init__(self, title: str, values: MatmulValues, naming: Naming, choices: Choices) -> None:
        self.matmul_values, self.precision = values, choices.precision
        tiling = tile_matmul(values, choices)
        self.rows, self.cols, self.depth, self.batch = tiling.rows, tiling.cols, tiling.depth, tiling.batch
        self.dtype, self.tiles, self.matrices = tiling.dtype, tiling.operands, tiling.matrices
        super().__init__(title, tiling.tile, values.stores, values.builder.indirect, naming)
        roots = [*self.tiles, *(s.value for s in values.stores)]
        self.values = list(values_of(roots))
        self.uses = Counter(id(i) for v in self.values for i in v.inputs)
        self.uses.update(id(v) for v in roots)
        self.reserved |= {"acc", "pid_m", "pid_n", "num_m", "num_n", "tile", "within", "M", "N", "K", "GROUP"}
        self.variables = dict(self.names)

    # which way axes lie

    def orient(self, tall: Dim, wide: Dim) -> None:
        """Lay tiles out from here on with a row for each element of `tall` and a column for each of `wide`."""
        self.tile_dims = [tall, wide]
        for dim in (tall, wide):
            place = "[:, None]" if dim is tall else "[None, :]"
            self.names.update({a: self.variables[a] + place for a in dim.axes})

    def _mask(self, dim: Dim) -> str:
        if dim is not self.depth:
            return f"{dim.variable}_mask"
        place = "[:, None]" if dim is self.tile_dims[0] else "[None, :]"
        return f"({dim.variable}{place} < {dim.size_name})"

    def _known_sizes(self, index: Index) -> dict[int, str]:
        """Return the stride along what is not contiguous in a matrix is the size of the other dimension, and that
        between two matrices the product of both."""
        inner = next(
            (
                d
                for d in reversed(self.tile_dims)
                if len(d.axes) == 1 and coefficient(self.tile.index(index), d.axes[0]) == 1
            ),
            None,
        )
        if inner is None or not inner.size.is_Integer or inner.size < 16:
            return {}
        dims, sizes = [inner], {int(inner.size): inner.size_name}
        other = next(d for d in self.tile_dims if d is not inner)
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
        ahead = self._descriptors()
        self._programs()
        self._multiply()
        self.orient(self.rows, self.cols)
        for store in self.stores:
            self._store(store)
        body = tuple(self.outer.statements)
        if self.matrices is not None:
            body = (*ahead, For("tile", self._tiles_of_program(), body))
        sizes = {d.size_name: d.size for d in self.tile.dims if d.size_name in self.used_sizes}
        buffers = (*self.reads.values(), *self.writes.values())
        size_expressions = [
            *self.matmul_values.builder.space.sizes.values(),
            *(e for b in buffers for e in (*b.shape, *b.strides)),
        ]
        sizes |= sizes_used(body, size_expressions)
        parameters = self.pointers()
        parameters += [KernelParameter(s, bool(v.is_Integer) and s in ("N", "K")) for s, v in sizes.items()]
        parameters += [KernelParameter(b, constant=True) for b, _ in self.tile.configs[0].blocks]
        reads, writes = list(self.reads.values()), list(self.writes.values())
        return Kernel(
            self.title,
            tuple(parameters),
            body,
            reads,
            writes,
            sizes,
            self.tile,
            described=tuple(m.buffer.name for m in self.matrices or ()),
        )

    def _descriptors(self) -> list[Statement]:
        """Return what stands before the tiles of a kernel that TMA reads for: descriptors of its matrices."""
        self.described: list[str] = []
        if self.matrices is None:
            return []
        self.used_sizes.update(("M", "N", "K"))
        statements: list[Statement] = [
            assign(("num_m", "num_n"), "tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)"),
            CodeComment("TMA reads whole tiles, with zeros behind the ends"),
        ]
        for matrix in self.matrices:
            self.described.append(self.unique(f"{matrix.buffer.name}_tiles"))
            statements.append(assign(self.described[-1], matrix.descriptor()))
        return statements

    def _tiles_of_program(self) -> ast.expr:
        """Return the numbers of the tiles that a program computes one after the other, so that the operands of the next
        are on their way while it ends one."""
        batches = f"{self._bracketed(self.batch.size)} * " if self.batch in self.tile.dims else ""
        end = f"{batches}num_m * num_n"
        return parse_expression(f"tl.range(tl.program_id(0), {end}, tl.num_programs(0), flatten=True)")

    def _programs(self) -> None:
        """Write which tile a program computes."""
        wide, batched = ".to(tl.int64)" if self._large() else "", self.batch in self.tile.dims
        batch = "tl.program_id(2)"
        if self.matrices is not None and batched:
            self.define("within", "tile % (num_m * num_n)")
            batch = "(tile // (num_m * num_n))" if wide else "tile // (num_m * num_n)"
        self.emit(CodeComment("programs that run at the same time share operands in the L2 cache"))
        if self.matrices is not None:
            number = "within" if batched else "tile"
            swizzled = f"tl.swizzle2d({number} // num_m, {number} % num_m, num_n, num_m, GROUP)"
        else:
            self.define(("pid_m", "pid_n"), "tl.program_id(0), tl.program_id(1)")
            self.define(("num_m", "num_n"), "tl.num_programs(0), tl.num_programs(1)")
            swizzled = "tl.swizzle2d(pid_n, pid_m, num_n, num_m, GROUP)"
        self.define(("pid_n", "pid_m"), swizzled)
        if batched:
            self.define(self.batch.variable, f"{batch}{wide}")
            self._split_axes(self.batch)
        for dim, block, place in ((self.rows, "pid_m", "[:, None]"), (self.cols, "pid_n", "[None, :]")):
            self.define(dim.variable, f"{block}{wide} * {dim.block_name} + tl.arange(0, {dim.block_name})")
            self._split_axes(dim)
            if not self.is_even(dim):
                self.used_sizes.add(dim.size_name)
                self.define(self._mask(dim), f"{dim.variable}{place} < {dim.size_name}")

    def _large(self) -> bool:
        loads = [v.buffer for v in self.values if isinstance(v, Load)]
        sizes = [count(b.shape) for b in (*loads, *(s.buffer for s in self.stores))]
        return any(not s.is_Integer or s >= 2**31 for s in sizes)

    def _multiply(self) -> None:
        """Write the loop over what is summed."""
        node, depth = self.matmul_values.node, self.depth
        self.used_sizes.add(depth.size_name)
        self.define("acc", f"tl.zeros([{self.rows.block_name}, {self.cols.block_name}], tl.float32)", node)
        self.in_loop, before = True, self.comment
        if self.matrices is not None:
            tiles = [self._tile(m, name) for m, name in zip(self.matrices, self.described, strict=True)]
        else:
            steps = f"start + tl.arange(0, {depth.block_name})"
            self.define(depth.variable, f"({steps}).to(tl.int64)" if self._large() else steps)
            self._split_axes(depth)
            left, right = matmul_operands(node)
            tiles = [
                self._operand(self.tiles[0], left, self.rows, depth),
                self._operand(self.tiles[1], right, depth, self.cols),
            ]
        precision = ""
        if self.dtype is torch.float32:
            if self.precision == "ieee":
                self.emit(CodeComment('"tf32" is several times as fast, with a mantissa of 10 bits'))
            precision = f', input_precision="{self.precision}"'
        self.define("acc", f"tl.dot({', '.join(tiles)}, acc{precision})", node)
        self.in_loop, self.comment = False, before
        steps = parse_expression(f"range(0, {depth.size_name}, {depth.block_name})")
        self.outer.statements.append(For("start", steps, tuple(self.inner.statements), node))
        self.inner = Scope()

    def _tile(self, matrix: TmaMatrix, name: str) -> str:
        """Return the name of a tile of an operand that TMA reads."""
        self.reads[matrix.buffer.name] = matrix.buffer
        starts = {"M": "pid_m * BLOCK_M", "N": "pid_n * BLOCK_N", "K": "start"}
        narrow = ".to(tl.int32)" if self._large() else ""
        place = [f"{self.variables[o.axis]}{narrow}" for o in matrix.outer]
        place += [starts[dim.size_name] for dim in (matrix.rows, matrix.columns)]
        variable = self.unique(matrix.buffer.name)
        self.define(variable, matrix.tile(name, place))
        return variable

    def _operand(self, value: Value, node: fx.Node, tall: Dim, wide: Dim) -> str:
        """Return the name of a tile of an operand, in its own dtype, and 0 behind the end of what is summed."""
        self.orient(tall, wide)
        self.inner.expressions.clear()
        ends = lambda axes: self.depth in self.masked_dims(axes)  # noqa: E731
        loads = [v for v in values_of([value]) if isinstance(v, Load) and ends(v.axes)]
        self.padding = {id(v): 0.0 if v.dtype.is_floating_point else 0 for v in loads}
        expr = self.ref(value)
        if value.dtype != self.dtype:
            expr = fill_template(f"a.to({triton_type(self.dtype)})", {"a": expr})
        if any(d not in self.dims_of(value.axes) for d in (tall, wide)):
            shape = parse_expression(f"[{tall.block_name}, {wide.block_name}]")
            expr = fill_template("tl.broadcast_to(a, s)", {"a": expr, "s": shape})
        if not self.is_even(self.depth) and padding_value(value, self.padding, ends) != 0.0:
            expr = fill_template("tl.where(m, a, 0.0)", {"m": parse_expression(self._mask(self.depth)), "a": expr})
        if isinstance(expr, ast.Name):
            return expr.id
        variable = self.unique(self.naming.name(node))
        self.define(variable, expr, node)
        return variable


MATMULS = ("aten.mm.default", "aten.addmm.default", "aten.bmm.default", "aten.baddbmm.default")


def fuse_matmuls(graph: fx.Graph, choices: Choices) -> None:
    """Have template kernels stand for matmuls of a graph, and for what is computed of their operands and results.

    "epilogue" takes those where that saves reading or writing a tensor of the result's size, "always" all that have a
    kernel.
    """
    done: set[fx.Node] = set()
    while node := next((n for n in graph.nodes if operation(n) in MATMULS and n not in done), None):
        done.add(node)
        matmul = matmul_with_epilogue(node, choices) if has_kernel(node) else None
        if matmul is not None:
            replace_with_kernel(graph, matmul.results, matmul.reads, matmul_writer(matmul, choices))
            sort_graph(graph)
