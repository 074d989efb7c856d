"""The launches of a generated file's wrapper, in the form that the compiler needs."""

from __future__ import annotations

from collections.abc import Mapping

import sympy
import torch
from torch import fx

from fx_lsp.codegen.inspect.compilation import Constant, LaunchSpec
from fx_lsp.codegen.ir.index import size_hint
from fx_lsp.codegen.ir.kernel import KernelLaunch as Step
from fx_lsp.codegen.ir.values import Buffer
from fx_lsp.codegen.triton.program import Program

ALIGNMENT = 16
"""The alignment that Triton specialises on: for pointers in bytes, for sizes as a divisor."""
DEFAULT_STAGES = 3
"""Triton's default number of loop iterations in flight."""


def launch_specs(program: Program, hints: Mapping[str, int]) -> list[LaunchSpec]:
    """Return the different launches of a program in order. `hints` are the values of symbolic sizes."""
    launches = [_launch(step, hints) for step in program.steps if isinstance(step, Step)]
    return [launch for place, launch in enumerate(launches) if launch not in launches[:place]]


def _launch(step: Step, hints: Mapping[str, int]) -> LaunchSpec:
    """Return a launch as Triton specialises it: the first configuration, current sizes, sizes of 1 constant."""
    kernel = step.kernel
    config = kernel.tile.configs[0]
    pointers = dict(zip((_pointer(b) for b in kernel.reads), step.reads, strict=True))
    pointers.update(zip((_pointer(b) for b in kernel.writes), step.writes, strict=True))
    dtypes = {_pointer(b): b.dtype for b in (*kernel.reads, *kernel.writes)}
    sizes = {name: size_hint(sympy.sympify(size), hints) for name, size in step.sizes.items()}
    blocks = {d.block_name: d.block for d in kernel.tile.dims if d.block > 1} | dict(config.blocks)
    signature: dict[str, str] = {}
    constants: dict[str, Constant] = {}
    aligned: list[str] = []
    for name, constant in ((p.name, p.constant) for p in kernel.parameters if p.default is None):
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
        if value % ALIGNMENT == 0:
            aligned.append(name)
    return LaunchSpec(kernel.name, signature, constants, tuple(aligned), config.warps, config.stages or DEFAULT_STAGES)


def _pointer(buffer: Buffer) -> str:
    return f"{buffer.name}_ptr"


def _is_aligned(node: fx.Node) -> bool:
    """Return True if the memory of a tensor is aligned. Allocations are, and views with an aligned offset."""
    value = node.meta["val"]
    offset = value.storage_offset()
    return not isinstance(offset, int) or offset * value.element_size() % ALIGNMENT == 0


def _type_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype in a signature."""
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
