"""Text of sums of exponentials that build up below a running maximum."""

from __future__ import annotations

import math

LOG2_E = math.log2(math.e)


def reference(maximum: str) -> str:
    """What exponents are taken from: the maximum, or 0 where there is nothing but -inf."""
    return f'tl.where({maximum} == -float("inf"), 0.0, {maximum})'


def power(exponent: str, base: str) -> str:
    """e to the power of what an exponent, at most `base`, lies below it.

    By powers of 2, which GPUs have an instruction for: `tl.exp` takes further ones, for results so small that they
    count for nothing beside the 1 at the maximum.
    """
    return f"tl.exp2(({exponent} - {base}) * {LOG2_E!r})"


def powers(exponents: str, base: str, moderate: bool) -> str:
    """The same for many exponents that have the base of their row: one multiplication and addition for each, where they
    are `moderate`; the most negative number there is, times 1.44, would be none any more."""
    if not moderate:
        return power(exponents, f"{base}[:, None]")
    return f"tl.exp2({exponents} * {LOG2_E!r} - ({base} * {LOG2_E!r})[:, None])"
