"""Follow what PyTorch's caching allocator reserves on a GPU: segments that hold the blocks of tensors.

The rules and the constants are those of `CUDACachingAllocator.cpp`, with its default settings and one stream.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

BLOCK_BYTES = 512
"""The unit of sizes: `kMinBlockSize`."""
SMALL_BYTES = 1 << 20
"""The largest size of the pool of small blocks, `kSmallSize`; what remains of a larger block is split off above it."""
SMALL_SEGMENT, LARGE_SEGMENT = 2 << 20, 20 << 20
"""The sizes of segments: `kSmallBuffer` for small blocks, `kLargeBuffer` for those of less than `OWN_BYTES`."""
OWN_BYTES, OWN_UNIT = 10 << 20, 2 << 20
"""A size from which a block has a segment of its own, and the unit of its size: `kMinLargeAlloc`, `kRoundLarge`."""


@dataclass(eq=False)
class MemoryBlock:
    """Hold a part of a segment, and its neighbors there; `number` is the order of the segments and their blocks."""

    bytes: int
    number: int
    is_small: bool
    is_free: bool = True
    before: MemoryBlock | None = None
    after: MemoryBlock | None = None


class CachingAllocator:
    """Holds segments, of `reserved` bytes together. They are kept, as without a lack of memory."""

    def __init__(self) -> None:
        self.reserved = 0
        self._count = 0
        self._free: dict[bool, list[tuple[int, int, MemoryBlock]]] = {True: [], False: []}

    def allocate(self, size: int) -> MemoryBlock:
        """Return the smallest free block of at least so many bytes, split where enough remains; or a new segment."""
        size = max(round_up(size, BLOCK_BYTES), BLOCK_BYTES)
        is_small = size <= SMALL_BYTES
        free = self._free[is_small]
        at = bisect_left(free, size, key=lambda entry: entry[0])
        block = free.pop(at)[2] if at < len(free) else self._segment(size, is_small)
        block.is_free = False
        remaining = block.bytes - size
        if remaining >= BLOCK_BYTES if is_small else remaining > SMALL_BYTES:
            rest = MemoryBlock(remaining, self._next(), is_small, before=block, after=block.after)
            if block.after is not None:
                block.after.before = rest
            block.bytes, block.after = size, rest
            self._keep(rest)
        return block

    def free(self, block: MemoryBlock) -> None:
        """Free a block, and join it with free neighbors."""
        for neighbor in (block.before, block.after):
            if neighbor is not None and neighbor.is_free:
                entries = self._free[block.is_small]
                del entries[bisect_left(entries, (neighbor.bytes, neighbor.number), key=lambda entry: entry[:2])]
                block.bytes += neighbor.bytes
                if neighbor is block.before:
                    block.before = neighbor.before
                    if neighbor.before is not None:
                        neighbor.before.after = block
                else:
                    block.after = neighbor.after
                    if neighbor.after is not None:
                        neighbor.after.before = block
        block.is_free = True
        self._keep(block)

    def _keep(self, block: MemoryBlock) -> None:
        insort(self._free[block.is_small], (block.bytes, block.number, block), key=lambda entry: entry[:2])

    def _segment(self, size: int, is_small: bool) -> MemoryBlock:
        own = round_up(size, OWN_UNIT)
        segment = SMALL_SEGMENT if is_small else LARGE_SEGMENT if size < OWN_BYTES else own
        self.reserved += segment
        return MemoryBlock(segment, self._next(), is_small)

    def _next(self) -> int:
        self._count += 1
        return self._count


def round_up(number: int, unit: int) -> int:
    """Return the smallest multiple of a unit that is not less than a number."""
    return -(-number // unit) * unit
