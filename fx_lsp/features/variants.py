"""Show a target with an argument that its trace lacks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fx_lsp.features.inputs import input_text
from fx_lsp.model import ObservedValue, TargetVariant, Trace


def with_variant(trace: Trace, variant: TargetVariant, values: Iterable[ObservedValue]) -> Trace:
    """Return a trace with the inputs of one of its variants, and these values."""
    return replace(trace, inputs=variant.inputs, values=tuple(values))


def variant_text(variant: TargetVariant) -> str:
    """Return the added argument of a variant: `with targets: ~i64[4, 8]`."""
    items = [item for item in variant.inputs if item.name.partition("[")[0] == variant.name]
    return f"with {', '.join(map(input_text, items)) or variant.name}"
