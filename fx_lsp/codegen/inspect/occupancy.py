"""Compute how many blocks of a kernel one multiprocessor holds at a time. Standard library only.

The limits of NVIDIA chips are from the table "Technical Specifications per Compute Capability" of the CUDA programming
guide. Registers and shared memory are allocated as in `cuda_occupancy.h` of the CUDA toolkit. The limits of AMD chips
are from LLVM's AMDGPU backend; the result equals the "Occupancy" that it prints below a kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

PARTITIONS = 4
"""The number of partitions of a multiprocessor (SIMDs of a compute unit), each with its own registers and warps."""


@dataclass(frozen=True)
class Chip:
    """The limits of one multiprocessor, and of one block on it.

    `registers` counts 32-bit registers of one partition; `register_unit` is their allocation unit for a warp. `shared`
    is memory in bytes and `shared_per_block` the limit of a block. `shared_unit` is its allocation unit, and
    `shared_reserved` the share of the system for each block.
    """

    name: str
    warp_size: int
    warps: int
    blocks: int
    blocks_of_one_warp: int
    registers: int
    register_unit: int
    registers_per_thread: int
    shared: int
    shared_per_block: int
    shared_unit: int
    shared_reserved: int
    threads_per_block: int = 1024


@dataclass(frozen=True)
class Occupancy:
    """The number of `blocks` on a multiprocessor, and the `fraction` of its warps that they fill, 0 to 1.

    `limited_by` is the scarce resource: "registers", "shared memory", "blocks" or "warps".
    """

    blocks: int
    fraction: float
    limited_by: str


def occupancy(chip: Chip, registers: int, shared: int, warps: int) -> Occupancy:
    """Return the occupancy for blocks of `warps` warps and `shared` bytes of memory, with `registers` per thread."""
    per_warp = _round_up(max(registers, 1) * chip.warp_size, chip.register_unit)
    limits = {
        "warps": chip.warps // warps,
        "registers": chip.registers // per_warp * PARTITIONS // warps,
        "shared memory": chip.shared // max(_round_up(shared + chip.shared_reserved, chip.shared_unit), 1),
        "blocks": chip.blocks if warps > 1 else chip.blocks_of_one_warp,
    }
    if shared > chip.shared_per_block:
        limits["shared memory"] = 0
    limited_by = min(limits, key=lambda name: limits[name])
    blocks = limits[limited_by]
    return Occupancy(blocks, blocks * warps / chip.warps, limited_by)


def _round_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def _nvidia(name: str, warps: int, blocks: int, shared_kib: int) -> Chip:
    return Chip(
        name=name,
        warp_size=32,
        warps=warps,
        blocks=blocks,
        blocks_of_one_warp=blocks,
        registers=65536 // PARTITIONS,
        register_unit=256,
        registers_per_thread=255,
        shared=shared_kib << 10,
        shared_per_block=(shared_kib - 1) << 10,
        shared_unit=128,
        shared_reserved=1 << 10,
    )


def _cdna(name: str) -> Chip:
    return Chip(
        name=name,
        warp_size=64,
        warps=8 * PARTITIONS,
        blocks=16,  # those of several warps need a barrier each
        blocks_of_one_warp=8 * PARTITIONS,
        registers=512 * 64,
        register_unit=8 * 64,
        registers_per_thread=512,
        shared=64 << 10,
        shared_per_block=64 << 10,
        shared_unit=512,
        shared_reserved=0,
    )


CHIPS = {
    "cuda:80": _nvidia("A100", warps=64, blocks=32, shared_kib=164),
    "cuda:86": _nvidia("compute capability 8.6", warps=48, blocks=16, shared_kib=100),
    "cuda:89": _nvidia("compute capability 8.9", warps=48, blocks=24, shared_kib=100),
    "cuda:90": _nvidia("H100", warps=64, blocks=32, shared_kib=228),
    "cuda:100": _nvidia("B200", warps=64, blocks=32, shared_kib=228),
    "cuda:120": _nvidia("compute capability 12.0", warps=48, blocks=24, shared_kib=100),
    "hip:gfx90a": _cdna("MI200"),
    "hip:gfx942": _cdna("MI300"),
}
"""The chips by target, in Triton's form `backend:architecture`."""
