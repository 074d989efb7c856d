"""Write the kernel of a matmul."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import partial

import sympy
import torch
from torch import fx

from fx_lsp.choices import Choices, Precision
from fx_lsp.codegen.graph.query import matmul_operands
from fx_lsp.codegen.ir.index import Index, coefficient
from fx_lsp.codegen.ir.kernel import Kernel, KernelParameter, Naming, converted, offset_parameters, sizes_used
from fx_lsp.codegen.ir.ops import triton_type
from fx_lsp.codegen.ir.statement import CodeComment, For, Statement, assign
from fx_lsp.codegen.ir.template import MatmulTemplate, TemplateCall
from fx_lsp.codegen.ir.text import fill_template, name, parse_expression
from fx_lsp.codegen.ir.tile import Dim
from fx_lsp.codegen.ir.values import Axes, Load, Value, values_of
from fx_lsp.codegen.lower.matmul import MatmulValues, matmul_values
from fx_lsp.codegen.schedule.matmul_tiling import MatmulTiling, TmaMatrix, tile_matmul
from fx_lsp.codegen.triton.expressions import Computation, KernelWriter, TileStrategy, no_form
from fx_lsp.codegen.triton.masks import padding_value
from fx_lsp.codegen.triton.reductions import ReductionLoop, TileProduct, write_reductions


def write_matmul_template(template: MatmulTemplate, call: TemplateCall) -> Kernel:
    """Return the kernel of a matmul and its epilogue."""
    targets = {template.results[number]: place for number, place in call.targets.items()}
    last = call.naming.name(call.targets[max(call.targets)].node)
    values = matmul_values(template.node, call.memory(template.subgraph), targets)
    return write_matmul(f"{call.title}_{last}", values, call.naming, call.choices)


def write_matmul(title: str, values: MatmulValues, naming: Naming, choices: Choices) -> Kernel:
    """Return the kernel of a matmul with its epilogue."""
    tiling = tile_matmul(values, choices)
    strategy = TileStrategy(no_form, _index, _axis_names, _sizes_in, partial(_masks, tiling.depth))
    computation = Computation(values.stores, values.builder.indirect)
    writer = KernelWriter(title, tiling.tile, computation, naming, strategy)
    writer.take([*tiling.operands, *(s.value for s in values.stores)])
    writer.reserved |= {"acc", "pid_m", "pid_n", "num_m", "num_n", "tile", "within", "M", "N", "K", "GROUP"}
    described, ahead = _descriptors(writer, tiling)
    _write_place(writer, tiling)
    _write_product(writer, tiling, values.node, described, choices.precision)
    writer.tile_dims = [tiling.rows, tiling.cols]
    for store in writer.stores:
        writer.store(store)
    body = tuple(writer.outer.statements)
    if tiling.matrices is not None:
        body = (*ahead, For("tile", _tiles_of_program(writer, tiling), body))
    sizes = {d.size_name: d.size for d in tiling.tile.dims if d.size_name in writer.used_sizes}
    reads, writes = list(writer.reads.values()), list(writer.writes.values())
    strides = [e for b in (*reads, *writes) for e in (*b.shape, *b.strides)]
    sizes |= sizes_used(body, [*values.builder.space.sizes.values(), *strides, *writer.printed_sizes])
    parameters = writer.pointers()
    parameters += [KernelParameter(s, bool(v.is_Integer) and s in ("N", "K")) for s, v in sizes.items()]
    parameters += [KernelParameter(b, constant=True) for b, _ in tiling.tile.configs[0].blocks]
    parameters += offset_parameters(body)
    names = tuple(m.buffer.name for m in tiling.matrices or ())
    return Kernel(title, tuple(parameters), body, reads, writes, sizes, tiling.tile, described=names)


# how axes are oriented: the first of `writer.tile_dims` along the rows of a tile, the other along its columns


def _index(writer: KernelWriter, index: Index) -> Index:
    return writer.tile.index(index)


def _axis_names(writer: KernelWriter, index: Index) -> dict[sympy.Symbol, str]:
    tall, wide = writer.tile_dims
    places = {a: place for dim, place in ((tall, "[:, None]"), (wide, "[None, :]")) for a in dim.axes}
    return {axis: f"{variable}{places.get(axis, '')}" for axis, variable in writer.names.items()}


def _masks(depth: Dim, writer: KernelWriter, axes: Axes) -> list[str]:
    return [_mask(depth, writer, dim) for dim in writer.masked_dims(axes)]


def _mask(depth: Dim, writer: KernelWriter, dim: Dim) -> str:
    if dim is not depth:
        return f"{dim.variable}_mask"
    place = "[:, None]" if dim is writer.tile_dims[0] else "[None, :]"
    return f"({dim.variable}{place} < {dim.size_name})"


def _sizes_in(writer: KernelWriter, index: Index) -> dict[int, str]:
    """Return the names of the strides in an index.

    Between rows of a matrix the stride is the size of the other dimension, between matrices the product of both.
    """
    inner = next(
        (d for d in reversed(writer.tile_dims) if len(d.axes) == 1 and coefficient(index, d.axes[0]) == 1),
        None,
    )
    if inner is None or not inner.size.is_Integer or inner.size < 16:
        return {}
    dims, sizes = [inner], {int(inner.size): inner.size_name}
    other = next(d for d in writer.tile_dims if d is not inner)
    whole = inner.size * other.size
    if whole.is_Integer and other.size > 1 and whole < 2**31 and index.has(whole):
        dims.append(other)
        sizes[int(whole)] = f"({other.size_name} * {inner.size_name})"
    if not any(index.has(sympy.Integer(s)) for s in sizes):
        return {}
    writer.used_sizes.update(d.size_name for d in dims)
    return sizes


# statements


def _descriptors(writer: KernelWriter, tiling: MatmulTiling) -> tuple[list[str], list[Statement]]:
    """Return the names of the TMA descriptors of a kernel's matrices, and the statements that define them."""
    if tiling.matrices is None:
        return [], []
    writer.used_sizes.update(("M", "N", "K"))
    statements: list[Statement] = [
        assign(("num_m", "num_n"), "tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)"),
        CodeComment("TMA reads whole tiles, with zeros out of bounds"),
    ]
    names = [writer.unique(f"{matrix.buffer.name}_tiles") for matrix in tiling.matrices]
    statements += [assign(n, m.descriptor()) for n, m in zip(names, tiling.matrices, strict=True)]
    return names, statements


def _tiles_of_program(writer: KernelWriter, tiling: MatmulTiling) -> ast.expr:
    """Return the range of tiles that a program computes. The operands of the next tile load while one finishes."""
    batches = f"{writer.bracketed(tiling.batch.size)} * " if tiling.batch in tiling.tile.dims else ""
    end = f"{batches}num_m * num_n"
    return parse_expression(f"tl.range(tl.program_id(0), {end}, tl.num_programs(0), flatten=True)")


def _write_place(writer: KernelWriter, tiling: MatmulTiling) -> None:
    """Write which tile a program computes."""
    wide, batched = writer.offset_type, tiling.batch in tiling.tile.dims
    batch = tiling.tile.program(tiling.batch) if batched else ""
    if tiling.matrices is not None and batched:
        writer.define("within", "tile % (num_m * num_n)")
        batch = "(tile // (num_m * num_n))" if wide else "tile // (num_m * num_n)"
    writer.emit(CodeComment("programs that run at the same time share operands in the L2 cache"))
    if tiling.matrices is not None:
        number = "within" if batched else "tile"
        swizzled = f"tl.swizzle2d({number} // num_m, {number} % num_m, num_n, num_m, GROUP)"
    else:
        grid = tiling.tile.grid
        places = [grid.index(dim) for dim in (tiling.rows, tiling.cols)]
        writer.define(("pid_m", "pid_n"), ", ".join(f"tl.program_id({place})" for place in places))
        writer.define(("num_m", "num_n"), ", ".join(f"tl.num_programs({place})" for place in places))
        swizzled = "tl.swizzle2d(pid_n, pid_m, num_n, num_m, GROUP)"
    writer.define(("pid_n", "pid_m"), swizzled)
    if batched:
        writer.define(tiling.batch.variable, converted(batch, wide))
        writer.split_axes(tiling.batch)
    for dim, block, place in ((tiling.rows, "pid_m", "[:, None]"), (tiling.cols, "pid_n", "[None, :]")):
        start = f"{converted(block, wide)} * {dim.block_name}"
        writer.define(dim.variable, f"{start} + tl.arange(0, {dim.block_name})")
        writer.split_axes(dim)
        if not writer.is_even(dim):
            writer.used_sizes.add(dim.size_name)
            writer.define(_mask(tiling.depth, writer, dim), f"{dim.variable}{place} < {dim.size_name}")


def _write_product(
    writer: KernelWriter, tiling: MatmulTiling, node: fx.Node, described: Sequence[str], precision: Precision
) -> None:
    """Write the loop over the summed dimension."""
    depth = tiling.depth
    writer.used_sizes.add(depth.size_name)

    def begin() -> None:
        if tiling.matrices is None:
            steps = f"start + tl.arange(0, {depth.block_name})"
            writer.define(depth.variable, converted(f"({steps})", writer.offset_type))
            writer.split_axes(depth)

    def tiles() -> tuple[ast.expr, ast.expr]:
        if tiling.matrices is not None:
            left, right = (_tile(writer, m, n) for m, n in zip(tiling.matrices, described, strict=True))
        else:
            nodes = matmul_operands(node)
            left = _operand(writer, tiling, tiling.operands[0], nodes[0], (tiling.rows, depth))
            right = _operand(writer, tiling, tiling.operands[1], nodes[1], (depth, tiling.cols))
        if tiling.dtype is torch.float32 and precision == "ieee":
            writer.emit(CodeComment('"tf32" is several times as fast, with a mantissa of 10 bits'))
        return left, right

    product = TileProduct("acc", (tiling.rows.block_name, tiling.cols.block_name), tiling.dtype, precision, node)
    loop = ReductionLoop("start", f"range(0, {depth.size_name}, {depth.block_name})", begin, node=node)
    write_reductions(writer, [product.accumulator(writer, tiles)], loop)


def _tile(writer: KernelWriter, matrix: TmaMatrix, described: str) -> ast.expr:
    """Return a tile of an operand that TMA reads."""
    writer.reads[matrix.buffer.name] = matrix.buffer
    starts = {"M": "pid_m * BLOCK_M", "N": "pid_n * BLOCK_N", "K": "start"}
    narrow = "tl.int32" if writer.offset_type is not None else None
    place = [converted(writer.names[o.axis], narrow) for o in matrix.outer]
    place += [starts[dim.size_name] for dim in (matrix.rows, matrix.columns)]
    variable = writer.unique(matrix.buffer.name)
    writer.define(variable, matrix.tile(described, place))
    return name(variable)


def _operand(
    writer: KernelWriter, tiling: MatmulTiling, value: Value, node: fx.Node, dims: tuple[Dim, Dim]
) -> ast.expr:
    """Return a tile of an operand in its own dtype, padded with 0 at the end of the depth. `dims` are its rows and
    columns.
    """
    writer.tile_dims, depth = list(dims), tiling.depth
    writer.inner.expressions.clear()
    ends = lambda axes: depth in writer.masked_dims(axes)  # noqa: E731
    loads = [v for v in values_of([value]) if isinstance(v, Load) and ends(v.axes)]
    writer.padding = {id(v): 0.0 if v.dtype.is_floating_point else 0 for v in loads}
    expr = writer.ref(value)
    if value.dtype != tiling.dtype:
        expr = fill_template(f"a.to({triton_type(tiling.dtype)})", {"a": expr})
    if any(d not in writer.dims_of(value.axes) for d in dims):
        shape = parse_expression(f"[{', '.join(d.block_name for d in dims)}]")
        expr = fill_template("tl.broadcast_to(a, s)", {"a": expr, "s": shape})
    if not writer.is_even(depth) and padding_value(value, writer.padding, ends) != 0.0:
        mask = parse_expression(_mask(depth, writer, depth))
        expr = fill_template("tl.where(m, a, 0.0)", {"m": mask, "a": expr})
    if isinstance(expr, ast.Name):
        return expr
    variable = writer.unique(writer.naming.name(node))
    writer.define(variable, expr, node)
    return name(variable)
