"""How the wrapper of a generated file launches its kernels, as the compiler has to know it."""

from __future__ import annotations

import ast
from collections.abc import Mapping

import sympy
import torch
from torch import fx

from fx_lsp.codegen.inspect.compilation import Constant, Launch
from fx_lsp.codegen.ir.index import hint
from fx_lsp.codegen.ir.kernel import Kernel
from fx_lsp.codegen.ir.kernel import Launch as Step
from fx_lsp.codegen.ir.values import Buffer
from fx_lsp.codegen.triton.program import Program

DIVISOR = 16
"""What Triton asks of pointers, in bytes, and of sizes: whether this divides them."""
STAGES = 3
"""How many rounds of a loop Triton has in flight where the configuration does not say."""


def launches(program: Program, hints: Mapping[str, int]) -> list[Launch]:
    """The launches of a program in order; `hints` are the sizes that have names."""
    return [_launch(step, hints) for step in program.steps if isinstance(step, Step)]


def _launch(step: Step, hints: Mapping[str, int]) -> Launch:
    """A launch as Triton specialises it: the first configuration, sizes as they are now, 1 known to the compiler."""
    kernel = step.kernel
    config = kernel.tile.configs[0]
    pointers = dict(zip((_pointer(b) for b in kernel.reads), step.reads, strict=True))
    pointers.update(zip((_pointer(b) for b in kernel.writes), step.writes, strict=True))
    dtypes = {_pointer(b): b.dtype for b in (*kernel.reads, *kernel.writes)}
    sizes = {name: hint(sympy.sympify(size), hints) for name, size in kernel.sizes.items()}
    blocks = {d.block_name: d.block for d in kernel.tile.dims if d.block > 1} | dict(config.blocks)
    signature: dict[str, str] = {}
    constants: dict[str, Constant] = {}
    aligned: list[str] = []
    for name, constant in _arguments(kernel):
        if name in pointers:
            signature[name] = f"*{_type_name(dtypes[name])}"
            if _is_aligned(pointers[name]):
                aligned.append(name)
            continue
        value = sizes[name] if name in sizes else blocks[name]
        if constant or value == 1:
            signature[name], constants[name] = "constexpr", value
            continue
        signature[name] = "i32" if abs(value) < 2**31 else "i64"
        if value % DIVISOR == 0:
            aligned.append(name)
    return Launch(kernel.name, signature, constants, tuple(aligned), config.warps, config.stages or STAGES)


def _arguments(kernel: Kernel) -> list[tuple[str, bool]]:
    """The arguments of a kernel, and whether each is a constexpr, as its definition says."""
    definition = ast.parse("\n".join(line.text for line in kernel.lines)).body[0]
    assert isinstance(definition, ast.FunctionDef)
    return [(a.arg, a.annotation is not None) for a in definition.args.args]


def _pointer(buffer: Buffer) -> str:
    return f"{buffer.name}_ptr"


def _is_aligned(node: fx.Node) -> bool:
    """Whether a tensor begins where vectors may: allocations do, and so do views that begin at such an element."""
    value = node.meta["val"]
    offset = value.storage_offset()
    return not isinstance(offset, int) or offset * value.element_size() % DIVISOR == 0


def _type_name(dtype: torch.dtype) -> str:
    """What a signature calls a dtype."""
    return _NAMES.get(dtype, str(dtype).removeprefix("torch.").replace("uint", "u").replace("int", "i"))


_NAMES = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "fp8e4nv",
    torch.float8_e5m2: "fp8e5",
    torch.float8_e4m3fnuz: "fp8e4b8",
    torch.float8_e5m2fnuz: "fp8e5b16",
    torch.bool: "u1",
}
