"""Blocks on a multiprocessor, as NVIDIA's calculator (`cuda_occupancy.h`) and LLVM's AMDGPU backend count them."""

from __future__ import annotations

import pytest

from fx_lsp.codegen.inspect.occupancy import CHIPS, occupancy


@pytest.mark.parametrize(
    ("target", "warps", "registers", "shared", "blocks", "limited_by"),
    [
        ("cuda:80", 4, 32, 0, 16, "warps"),
        ("cuda:80", 1, 32, 0, 32, "blocks"),
        ("cuda:80", 8, 107, 77011, 2, "registers"),
        ("cuda:80", 8, 107, 84012, 1, "shared memory"),
        ("cuda:80", 8, 255, 0, 1, "registers"),
        ("cuda:86", 8, 32, 0, 6, "warps"),
        ("cuda:86", 8, 107, 56008, 1, "shared memory"),
        ("cuda:90", 8, 107, 98014, 2, "registers"),
        ("cuda:90", 16, 146, 0, 0, "registers"),
        ("cuda:90", 4, 64, 228 << 10, 0, "shared memory"),
        ("hip:gfx942", 4, 118, 0, 4, "registers"),
        ("hip:gfx942", 4, 82, 0, 5, "registers"),
        ("hip:gfx942", 1, 24, 0, 32, "warps"),
        ("hip:gfx942", 1, 24, 20000, 3, "shared memory"),
    ],
)
def test_blocks(target: str, warps: int, registers: int, shared: int, blocks: int, limited_by: str) -> None:
    found = occupancy(CHIPS[target], registers, shared, warps)
    assert (found.blocks, found.limited_by) == (blocks, limited_by)
    assert found.fraction == blocks * warps / CHIPS[target].warps
