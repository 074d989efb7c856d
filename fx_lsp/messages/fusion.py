"""Say why two kernels are not one: a sentence for each reason, with named fields."""

from __future__ import annotations

from fx_lsp.model import WhyNotFused

WHY_NOT_FUSED: dict[WhyNotFused, str] = {
    "call": "`{first}` is a call of a library",
    "template": "`{first}` has a template kernel of its own",
    "sizes": "sizes differ: {first_size} and {second_size}",
    "reductions": "`{first}` runs over {first_dims} of {first_size}, "
    "and `{second}` over {second_dims} of {second_size}",
    "row": "`{first}` and `{second}` run over other dimensions, and the last of these has {first_size} elements: "
    "one program holds at most {second_size}",
    "ends": "the reduction `{first}` over {first_dims} of {first_size} has to end before `{second}` starts",
    "unrelated": "they share no tensor",
    "between": "`{second}` needs `{first}`, which a kernel between them computes",
    "stored": "`{first}` {why}: it has to be in memory before `{second}` starts",
    "order": "`{first}` overwrites elements that have to be read before",
    "inductor": "Inductor's words: {why}",
}
"""Each reason as a sentence; `first` and `second` are the nodes that it is about."""

NO_REASON = "Inductor reports no reason"
"""The words of a compiler that says nothing about two kernels."""


def dimensions_text(dims: tuple[int, ...]) -> str:
    """Return dimensions as words: `dimension 1`, or `dimensions 0 and 1`."""
    return f"dimension{'' if len(dims) == 1 else 's'} {' and '.join(map(str, dims))}"
