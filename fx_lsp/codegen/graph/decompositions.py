"""Define the decompositions for tracing.

`graph/templates/` match decomposed attention, and `triton/flash_attention.py` generates its kernels.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch._decomp import get_decompositions
from torch._decomp.decompositions import embedding_dense_backward as embedding_backward


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Return the decompositions for tracing: the remaining operations are those that Inductor has to lower."""
    from torch._inductor.decomposition import select_decomp_table

    table = {**select_decomp_table(), **get_decompositions(_DECOMPOSED), **_own_decompositions()}
    table |= {op: _in_float32(table[op]) for op in _NORMALIZATIONS}
    return {op: function for op, function in table.items() if not any(name in str(op) for name in _NOT_DECOMPOSED)}


aten = torch.ops.aten

_NOT_DECOMPOSED = ("max_pool", "_unsafe_index_put")
"""Parts of names that are not decomposed: Inductor's table uses operations of its own for them, or asserts that their
indices are in range.
"""
_DECOMPOSED = (
    *(aten.addcmul, aten.addcdiv, aten.glu, aten.ldexp, aten._unsafe_masked_index),
    *(aten._unsafe_masked_index_put_accumulate, aten._adaptive_avg_pool2d),
)
"""Operations that PyTorch can decompose and that Inductor has special code for."""
_NORMALIZATIONS = (aten.native_layer_norm.default, aten.native_group_norm.default)
"""Normalizations that save a mean and a deviation: on a CPU, where graphs are traced, in half precision, unlike on a
GPU.
"""


def _own_decompositions() -> dict[Any, Callable[..., Any]]:
    """Return decompositions that PyTorch does not have, or not with the accuracy of its own operation."""

    def max_dim(x: torch.Tensor, dim: int, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.amax(x, dim, keepdim), torch.argmax(x, dim, keepdim)

    def min_dim(x: torch.Tensor, dim: int, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.amin(x, dim, keepdim), torch.argmin(x, dim, keepdim)

    def soft_margin_backward(grad: torch.Tensor, x: torch.Tensor, target: torch.Tensor, reduction: int) -> torch.Tensor:
        loss = -grad * target * torch.sigmoid(-target * x)
        return loss / x.numel() if reduction == 1 else loss

    def embedding_dense_backward(
        grad: torch.Tensor, indices: torch.Tensor, rows: int, padding_idx: int, scale_grad_by_freq: bool
    ) -> torch.Tensor:
        if scale_grad_by_freq:
            return embedding_backward(grad, indices, rows, padding_idx, scale_grad_by_freq)
        zeros = grad.new_zeros((rows, grad.shape[-1]), dtype=torch.promote_types(grad.dtype, torch.float32))
        if padding_idx >= 0:
            grad = torch.where((indices != padding_idx)[..., None], grad, 0)
        return aten._unsafe_index_put(zeros, [indices], grad.to(zeros.dtype), True).to(grad.dtype)

    def index_add(
        x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *, alpha: float = 1
    ) -> torch.Tensor:
        if not x.dim():
            return x + source * alpha if alpha != 1 else x + source
        places = [*[None] * (dim % x.dim()), index.reshape(-1)]
        return aten.index_put(x, places, source if alpha == 1 else source * alpha, True)

    def index_put(
        x: torch.Tensor, indices: list[torch.Tensor | None], values: torch.Tensor, accumulate: bool = False
    ) -> Any:
        *before, mask = indices
        if (
            accumulate
            or mask is None
            or mask.dtype is not torch.bool
            or values.numel() != 1
            or any(i is not None for i in before)
        ):
            return NotImplemented
        shape = [1] * len(before) + list(mask.shape) + [1] * (x.dim() - len(before) - mask.dim())
        return torch.where(mask.view(shape), values.reshape(()), x)

    return {
        **_SPLITS,
        aten.index_put.default: index_put,
        aten.index_add.default: index_add,
        aten.embedding_dense_backward.default: embedding_dense_backward,
        aten.max.dim: max_dim,
        aten.min.dim: min_dim,
        aten.max.default: lambda x: torch.amax(x, ()),
        aten.min.default: lambda x: torch.amin(x, ()),
        aten.soft_margin_loss_backward.default: soft_margin_backward,
    }


def _unbind(x: torch.Tensor, dim: int = 0) -> tuple[torch.Tensor, ...]:
    return tuple(x.select(dim, i) for i in range(x.shape[dim]))


def _split(x: torch.Tensor, size: int, dim: int = 0) -> Any:
    if isinstance(x.shape[dim], torch.SymInt) or isinstance(size, torch.SymInt) or not size:
        return NotImplemented
    return tuple(x.narrow(dim, start, min(size, x.shape[dim] - start)) for start in range(0, x.shape[dim], size))


def _split_with_sizes(x: torch.Tensor, sizes: list[int], dim: int = 0) -> tuple[torch.Tensor, ...]:
    return tuple(x.narrow(dim, start, size) for start, size in zip(accumulate(sizes, initial=0), sizes, strict=False))


_SPLITS: dict[Any, Callable[..., Any]] = {
    aten.unbind.int: _unbind,
    aten.split.Tensor: _split,
    aten.split_with_sizes.default: _split_with_sizes,
}
"""Operations that return several views, as separate views, which can be merged one by one."""


def _in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a decomposition in float32, of which only the first result has the precision of its input."""

    def decomposed(x: torch.Tensor, *args: Any) -> tuple[torch.Tensor, ...]:
        if x.dtype not in (torch.float16, torch.bfloat16):
            return function(x, *args)
        first, *others = function(x.float(), *(a.float() if isinstance(a, torch.Tensor) else a for a in args))
        return first.to(x.dtype), *others

    return decomposed


@contextmanager
def composites_decomposed() -> Generator[None, None, None]:
    """Decompose attention and the gradient of `cumprod` inside, which a table of decompositions cannot: PyTorch
    decomposes them before it looks there.

    Its attention multiplies in float32, with half of the scale on each side. Its gradient of `cumprod` is a loop over
    the elements in some versions.
    """
    with torch.library._scoped_library("aten", "IMPL") as library:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a warning about another implementation
            for name, function in _COMPOSITES.items():
                library.impl(name, function, "CompositeImplicitAutograd")
        yield


def decompose_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Return `[…, m, e]` from `[…, m, d]`, `[…, n, d]` and `[…, n, e]`; completely masked rows become 0."""
    factor: Any = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    if enable_gqa:
        key, value = (t.repeat_interleave(query.size(-3) // t.size(-3), -3) for t in (key, value))
    scores = query @ key.transpose(-2, -1) * factor
    if is_causal:
        keep = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
        scores = scores.masked_fill(~keep, -math.inf)
    seen: Tensor | None = None
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        seen = attn_mask.any(-1, keepdim=True)
        scores = scores.masked_fill(~(attn_mask | ~seen), -math.inf)
    elif attn_mask is not None:
        seen = (attn_mask != -math.inf).any(-1, keepdim=True)
        scores = scores + attn_mask.where(seen, 0.0)
    weights = torch.softmax(scores, -1)
    if seen is not None:
        weights = weights * seen
    if dropout_p > 0:
        weights = torch.dropout(weights, dropout_p, True)
    return weights @ value


def decompose_cumprod_backward(grad: Tensor, x: Tensor, dim: int, output: Tensor) -> Tensor:
    """Return the gradient of `cumprod` along a dimension.

    It is a sum over all later results, divided by the element. Elements behind a zero have no gradient. That of the
    first zero is the sum of the products without it, which a second zero ends.
    """
    if not x.dim():
        return grad
    wide = torch.promote_types(x.dtype, torch.float32)
    products, elements = (t.conj().to(wide) for t in (output, x))
    zero = elements == 0
    zeros = zero.cumsum(dim)
    first = zero & (zeros == 1)
    without_first = elements.masked_fill(first, 1).cumprod(dim)
    before = _later_sum(grad * products, dim) / elements
    return torch.where(zeros == 0, before, torch.where(first, _later_sum(grad * without_first, dim), 0)).to(grad.dtype)


def _later_sum(x: Tensor, dim: int) -> Tensor:
    """Return for each element the sum of it and of all behind it."""
    return x.flip(dim).cumsum(dim).flip(dim)


_COMPOSITES: dict[str, Callable[..., Tensor]] = {
    "scaled_dot_product_attention": decompose_attention,
    "cumprod_backward": decompose_cumprod_backward,
}
"""Operations that PyTorch decomposes without a table of decompositions."""
