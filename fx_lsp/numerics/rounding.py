"""Decide whether a number differs by more than rounding, from the same computation in float64."""

from __future__ import annotations

import torch

TOLERANCE = {
    torch.float64: 1e-9,
    torch.float32: 2e-5,
    torch.float16: 4e-3,
    torch.bfloat16: 3e-2,
    torch.complex128: 1e-9,
    torch.complex64: 2e-5,
}
"""The largest error of a result, relative to its magnitude and the mean one."""


def differences(value: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the error of numbers, relative to the right ones and their mean magnitude."""
    if right.is_complex():
        value, right = torch.view_as_real(value), torch.view_as_real(right)
    value, right = value.detach().double(), right.detach().double()
    same = (value == right) | (value.isnan() & right.isnan())
    size = right.abs().nan_to_num(nan=0.0, posinf=0.0)
    unit = size + size.sum() / (size > 0).sum().clamp(min=1)
    off = (value - right).abs() / unit
    return off.nan_to_num(nan=torch.inf).masked_fill(same, 0.0)


def judged(
    value: torch.Tensor | None, right: torch.Tensor | None, exact: torch.Tensor | None
) -> tuple[bool, float, float]:
    """Return whether a result is wrong, how far it is off, and how far the original is.

    `right` is the original's result, `exact` the same in float64. If these differ much, because the function jumps or
    is zero except for rounding, a result may be equally far off. Elements where the original overflows are not
    compared.
    """
    if value is None or right is None or value.shape != right.shape or value.dtype != right.dtype:
        return True, torch.inf, torch.inf
    allowed = TOLERANCE.get(value.dtype, 0.0)
    if exact is not None and exact.shape == right.shape and not _finite(right).all():
        comparable = _finite(right) | ~_finite(exact)
        wide = torch.complex128 if right.is_complex() else torch.float64
        value, right, exact = (t.to(wide)[comparable] for t in (value, right, exact))
    if not right.numel():
        return False, 0.0, 0.0
    near = differences(value, right)
    close = bool((near <= 10 * allowed).all())
    if exact is None or exact.shape != right.shape or not allowed:
        return not close, float(near.max()), 0.0
    ours, theirs = differences(value, exact), differences(right, exact)
    off, far = float(ours.max()), float(theirs.max())
    if far < 0.05:
        return off > max(allowed, 10 * far), off, far
    as_many = bool((ours > allowed).sum() <= 4 * (theirs > allowed).sum() + 1)
    return not (close or (off <= 4 * far < torch.inf and as_many)), off, far


def _finite(value: torch.Tensor) -> torch.Tensor:
    """Return which numbers of a tensor are finite, whatever its dtype."""
    return (value if value.is_complex() else value.double()).isfinite()
