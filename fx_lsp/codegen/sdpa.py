"""`scaled_dot_product_attention` as people write it out: `attention.py` finds it then, and makes kernels of it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


@contextmanager
def attention_written_out() -> Generator[None, None, None]:
    """Inside, PyTorch's attention is the operations that it consists of, in the dtype of its arguments.

    What PyTorch has for this itself multiplies in float32, with half of the scale on each side.
    """
    with torch.library._scoped_library("aten", "IMPL") as library:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there is another implementation
            library.impl("scaled_dot_product_attention", written_out, "CompositeImplicitAutograd")
        yield


def written_out(
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
    """`[…, m, d]`, `[…, n, d]` and `[…, n, e]` to `[…, m, e]`; rows that a mask hides as a whole become 0."""
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
