"""Represent launches of the user's Triton kernels as nodes: the kernel, its arguments, its reads and writes."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch._higher_order_ops import triton_kernel_wrap

from fx_lsp.tracer.compat import tensors_of_launch

_OPERATIONS = (triton_kernel_wrap.triton_kernel_wrapper_mutation, triton_kernel_wrap.triton_kernel_wrapper_functional)


@dataclass(frozen=True)
class TritonLaunch:
    """Hold a kernel's name, its grid, the values of its parameters, and which of them it reads and writes."""

    kernel: str
    grid: tuple[Any, ...]
    arguments: Mapping[str, Any]
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    @property
    def comment(self) -> str:
        """Return the kernel's reads and writes of its parameters as text."""
        both = (("reads", self.reads), ("writes", self.writes))
        return "; ".join(f"{verb} {', '.join(names)}" for verb, names in both if names)


def launch_of(node: torch.fx.Node) -> TritonLaunch | None:
    """Return the launch of a node; None for any other node."""
    if node.op != "call_function" or node.target not in _OPERATIONS:
        return None
    options: dict[str, Any] = dict(node.kwargs)
    table = triton_kernel_wrap.kernel_side_table
    kernel: Any = table.get_kernel(options["kernel_idx"])
    arguments = {**options["kwargs"], **table.get_constant_args(options["constant_args_idx"])}
    names: list[str] = [name for name in kernel.arg_names if name in arguments]
    values = {name: _value_of(value) for name, value in arguments.items()}
    reads, writes = tensors_of_launch(kernel, values, options["tma_descriptor_metadata"])
    if "tensors_to_clone" in options:
        writes = tuple(options["tensors_to_clone"])
    return TritonLaunch(
        kernel=str(getattr(getattr(kernel, "fn", kernel), "__name__", "kernel")),
        grid=tuple(options["grid"][0]),
        arguments={name: arguments[name] for name in names},
        reads=tuple(name for name in names if name in reads),
        writes=tuple(name for name in names if name in writes),
    )


def name_of(node: torch.fx.Node) -> str | None:
    """Return the name of the kernel that a node launches, or of the parameter whose new content it is."""
    source = node.args[0] if node.target is operator.getitem else None
    if isinstance(source, torch.fx.Node) and source.target in _OPERATIONS:
        return str(node.args[1])
    launch = None
    with suppress(Exception):
        launch = launch_of(node)
    return launch.kernel if launch is not None else None


def _value_of(argument: Any) -> Any:
    return argument.meta.get("val", argument) if isinstance(argument, torch.fx.Node) else argument
