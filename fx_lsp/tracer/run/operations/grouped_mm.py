"""Allow grouped matrix products in any dtype: kernels accept them, torch's fake implementation only bfloat16."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch


def register() -> None:
    """Register a fake implementation of `aten._grouped_mm`; does nothing if torch has no such operation, or none to
    replace.
    """
    with suppress(ImportError, AttributeError, RuntimeError, TypeError):
        from torch._meta_registrations import meta_grouped_mm

        def specs(
            mat_a: torch.Tensor,
            mat_b: torch.Tensor,
            offs: torch.Tensor | None = None,
            bias: torch.Tensor | None = None,
            out_dtype: torch.dtype | None = None,
        ) -> Any:
            if mat_a.dtype == mat_b.dtype == torch.bfloat16:
                return meta_grouped_mm(mat_a, mat_b, offs, bias, out_dtype)
            return _specs(mat_a, mat_b, offs, out_dtype)

        torch.library.register_fake("aten::_grouped_mm", specs, allow_override=True)


def _specs(
    mat_a: torch.Tensor, mat_b: torch.Tensor, offs: torch.Tensor | None, out_dtype: torch.dtype | None
) -> torch.Tensor:
    """Return the product: a matrix for each group if both or neither have a dimension for groups, one otherwise."""
    ranks = (mat_a.dim(), mat_b.dim())
    if mat_a.dtype != mat_b.dtype:
        raise RuntimeError(f"expected both operands to have the same dtype, but got {mat_a.dtype} and {mat_b.dtype}")
    if not {2, 3}.issuperset(ranks) or mat_a.size(-1) != mat_b.size(-2):
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({mat_a.shape} and {mat_b.shape})")
    sizes = [mat_a.size(-2), mat_b.size(-1)]
    if ranks == (3, 3):
        sizes = [mat_a.size(0), *sizes]
    elif ranks == (2, 2):
        sizes = [offs.size(0) if offs is not None else 1, *sizes]
    return mat_a.new_empty(sizes, dtype=out_dtype or mat_a.dtype)
