"""Choices for generated kernels: options of the command line, and of the work that generates the kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Literal, get_args, get_type_hints

TRITON = "triton"
"""The work that generates kernels, and the stage that is their file."""

REWRITES = "rewrites"
"""The work that shows the graphs after each rewrite on their way to kernels."""

Engine = Literal["fx-lsp", "inductor", "max-autotune", "eager", "compile", "compile-max-autotune"]
Fuse = Literal["yes", "no"]
Matmul = Literal["epilogue", "always", "never"]
Backward = Literal["recompute", "balance", "save"]
Precision = Literal["ieee", "tf32", "tf32x3"]
Tma = Literal["yes", "no"]
Deterministic = Literal["no", "yes"]
Sizes = Literal["auto", "any", "traced"]

REGION_SUFFIX = "_compiled"
"""The end of the name of a function that Inductor compiles, after the name of the first kernel that it replaces."""

AUTO, NO_KERNELS, ALL_KERNELS, EACH_KERNEL = "auto", "none", "all", "each"
"""Choices of `inductor` besides a list of kernels."""


@dataclass(frozen=True)
class Choices:
    """Hold the choices, each with a sentence that explains it. The first of the allowed values is the default."""

    engine: Engine = field(
        default="fx-lsp",
        metadata={
            "help": "who generates the kernels: fx-lsp, Inductor, or Inductor in its mode max-autotune; or the file "
            "calls the original: as it is, under torch.compile, or in its mode max-autotune"
        },
    )
    fuse: Fuse = field(default="yes", metadata={"help": "whether operations are fused into shared kernels"})
    matmul: Matmul = field(
        default="epilogue",
        metadata={"help": "which matrix products get kernels: those that save memory traffic, all, or none"},
    )
    backward: Backward = field(
        default="recompute",
        metadata={"help": "what backward recomputes: cheap values, what PyTorch recomputes, or nothing"},
    )
    precision: Precision = field(default="ieee", metadata={"help": "the precision of float32 matrix products"})
    tma: Tma = field(
        default="yes",
        metadata={"help": "whether half-precision matmuls read whole tiles with TMA (Hopper and later)"},
    )
    deterministic: Deterministic = field(
        default="no",
        metadata={"help": "whether scatter-adds stay PyTorch calls, which add in the same order in every run"},
    )
    sizes: Sizes = field(
        default="auto",
        metadata={
            "help": "which sizes kernels take: any batch and length for which indices stay plain, any that the code "
            "allows, or the traced ones"
        },
    )
    inductor: str = field(
        default=AUTO,
        metadata={
            "help": "kernels that Inductor replaces: those that an estimate says are slow (auto), none, all, each "
            "by itself, or a list of names with commas between"
        },
    )

    def parts(self) -> dict[str, str]:
        """Return these choices as parts of work, without those at their default."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}


def allowed() -> dict[str, tuple[str, ...]]:
    """Return the allowed values of each choice, an empty tuple if there are any number of them."""
    return {name: get_args(kind) for name, kind in get_type_hints(Choices).items()}


def defaults() -> dict[str, str]:
    """Return the default of each choice."""
    return asdict(Choices())


def explained() -> dict[str, str]:
    """Return the help sentence of each choice."""
    return {f.name: f.metadata["help"] for f in fields(Choices)}


def read_choices(options: Mapping[str, str]) -> Choices:
    """Return the choices among options of work. Raises ValueError for an unknown value."""
    values_by_name = allowed()
    chosen = {name: value for name, value in options.items() if name in values_by_name}
    for name, value in chosen.items():
        if values_by_name[name] and value not in values_by_name[name]:
            raise ValueError(f"there is no {name}={value}: choose one of {', '.join(values_by_name[name])}")
    return Choices(**chosen)  # pyright: ignore[reportArgumentType]
