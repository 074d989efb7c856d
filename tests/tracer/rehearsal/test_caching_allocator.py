"""What PyTorch's allocator reserves on a GPU for tensors of some sizes, and what it uses again."""

from __future__ import annotations

import pytest

from fx_lsp.tracer.rehearsal.caching_allocator import CachingAllocator

KIB, MIB = 1 << 10, 1 << 20


@pytest.mark.parametrize(
    ("sizes", "reserved"),
    [
        ([1], 2 * MIB),
        ([1 * MIB], 2 * MIB),
        ([1 * MIB, 1 * MIB], 2 * MIB),
        ([1 * MIB, 1 * MIB, 1], 4 * MIB),
        ([1 * MIB + 1], 20 * MIB),
        ([9 * MIB, 9 * MIB], 20 * MIB),
        ([9 * MIB, 9 * MIB, 3 * MIB], 40 * MIB),
        ([10 * MIB], 10 * MIB),
        ([11 * MIB], 12 * MIB),
        ([11 * MIB, 1 * MIB], 14 * MIB),
        ([25 * MIB, 512], 28 * MIB),
    ],
)
def test_segments_of_sizes(sizes: list[int], reserved: int):
    allocator = CachingAllocator()
    for size in sizes:
        allocator.allocate(size)
    assert allocator.reserved == reserved


def test_blocks_that_are_free_are_used_again_and_joined():
    allocator = CachingAllocator()
    blocks = [allocator.allocate(6 * MIB) for _ in range(3)]
    assert allocator.reserved == 20 * MIB
    for block in (blocks[0], blocks[2], blocks[1]):
        allocator.free(block)
    whole = allocator.allocate(20 * MIB)
    assert (allocator.reserved, whole.bytes) == (20 * MIB, 20 * MIB)
    allocator.free(whole)
    allocator.allocate(19 * MIB + 512 * KIB)
    allocator.allocate(2 * MIB)
    assert allocator.reserved == 40 * MIB, "half a MiB is not split off"


def test_the_smallest_block_that_is_large_enough_is_used():
    allocator = CachingAllocator()
    large, small = allocator.allocate(40 * MIB), allocator.allocate(30 * MIB)
    allocator.free(large)
    allocator.free(small)
    allocator.allocate(25 * MIB)
    allocator.allocate(40 * MIB)
    assert allocator.reserved == 70 * MIB
