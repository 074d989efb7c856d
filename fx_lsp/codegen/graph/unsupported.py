"""Decide which operations stay PyTorch calls between the kernels: those without a kernel, or faster without."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from fx_lsp.choices import Choices
from fx_lsp.codegen.graph.query import is_empty, is_saved, is_view
from fx_lsp.codegen.graph.scatter import is_accumulation
from fx_lsp.codegen.ir.lowerings import is_random, operation
from fx_lsp.codegen.ir.node_facts import facts_of


@dataclass(frozen=True)
class Unsupported:
    """Describe an operation that falls back to PyTorch: `reason` in a few words, `cure` is the remedy, "" if unknown.

    `chosen` is True for a decision rather than a missing kernel: the library is faster, or the user chose so.
    """

    node: fx.Node
    reason: str
    cure: str = ""
    chosen: bool = False

    @property
    def comment(self) -> str:
        """Return the comment at the call in the file, without choices of the generator."""
        return f"PyTorch computes it: {self.reason}" if self.chosen else f"falls back to PyTorch: {self._advised}"

    @property
    def reminder(self) -> str:
        """Return the comment at further calls with the same reason, "" for none."""
        return "" if self.chosen else f"falls back to PyTorch: {self.reason}"

    @property
    def region_reason(self) -> str:
        """Return why Inductor compiles the operation."""
        return f"{operation_name(self.node)}: {self.reason}"

    @property
    def sentence(self) -> str:
        """Return a sentence with the name of the operation."""
        begin = "is computed by PyTorch" if self.chosen else "falls back to PyTorch"
        return f"{operation_name(self.node)} {begin}: {self._advised}"

    @property
    def _advised(self) -> str:
        return f"{self.reason}; {self.cure}" if self.cure else self.reason


def unsupported_reason(node: fx.Node, choices: Choices, cut: str | None) -> Unsupported | None:
    """Return why a step of a program is a call; None for one that computes nothing, or if all are calls by choice.

    `cut` is an obstacle to a kernel that was found, if any.
    """
    if choices.engine != "fx-lsp" or is_empty(node) or is_view(node) or facts_of(node).template:
        return None
    tensors = [t for n in (node, *node.all_input_nodes) for t in _tensors(n)]
    for rule in (_tensor_reason, _call_reason, _library_reason):
        reason_found = rule(node, tensors, choices)
        if reason_found is not None:
            return reason_found
    if cut is not None and cut != "has no lowering":
        reason, cure = _REMEDIES.get(cut, (f"it {cut}", ""))
        return Unsupported(node, reason, cure)
    return Unsupported(node, "fx-lsp has no kernel for it", "write it with arithmetic, indexing and sums to get one")


def save_library_results(graph: fx.Graph) -> None:
    """Save results of libraries and sorts in a joint graph, instead of recomputing them in backward."""
    for node in filter(_is_of_library, graph.nodes):
        node.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def recomputed_library_results(graph: fx.Graph) -> Iterator[fx.Node]:
    """Yield results of libraries and sorts that backward may recompute."""
    return (n for n in graph.nodes if _is_of_library(n) and not is_saved(n))


def release_weight_buffers(graph: fx.Graph) -> None:
    """Let recurrent layers arrange their weights in memory themselves: a trace has no such tensor."""
    for node in graph.nodes:
        place = _weight_buffer(node)
        if place is not None:
            node.update_arg(place, None)


def weight_buffers(graph: fx.Graph) -> Iterator[fx.Node]:
    """Yield recurrent layers that also receive all of their weights as one tensor."""
    return (n for n in graph.nodes if _weight_buffer(n) is not None)


def _weight_buffer(node: fx.Node) -> int | None:
    """Return the argument of a node that is an optional single tensor of a recurrent layer's weights, or None."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    for place, argument in enumerate(node.target._schema.arguments[: len(node.args)]):
        if argument.name == "weight_buf" and isinstance(argument.type, torch.OptionalType):
            return None if node.args[place] is None else place
    return None


def _is_of_library(node: fx.Node) -> bool:
    return any(re.match(pattern, operation(node)) for pattern in (*_LIBRARIES, _SORTING))


def operation_name(node: fx.Node) -> str:
    """Return the name of an operation without its overload: `aten.sort`."""
    return operation(node).rpartition(".")[0] or str(getattr(node.target, "__name__", node.target))


def _tensors(node: fx.Node) -> list[torch.Tensor]:
    value = node.meta.get("val")
    values = value if isinstance(value, (tuple, list)) else [value]
    return [v for v in values if isinstance(v, torch.Tensor)]


def _tensor_reason(node: fx.Node, tensors: list[torch.Tensor], choices: Choices) -> Unsupported | None:
    """Return a reason in the operands or results, or None."""
    if any(t.dtype.is_complex for t in tensors):
        cure = "split them into real and imaginary parts (torch.view_as_real) to get a kernel"
        return Unsupported(node, "complex numbers", cure)
    layouts = {t.layout for t in tensors} - {torch.strided}
    if layouts:
        return Unsupported(node, "sparse tensors", "compute with their values and indices to get a kernel")
    if any(t.is_quantized for t in tensors):
        return Unsupported(node, "quantized tensors", "use integers and their scale (x.int_repr()) to get a kernel")
    if any(t.dtype.is_floating_point and t.itemsize == 1 for t in tensors) and not _is_product(node):
        return Unsupported(node, "float8 numbers", "convert them before the function to get a kernel")
    if len({t.device.type for t in tensors if t.dim()}) > 1:
        return Unsupported(node, "it moves a tensor to another device", "move it before the function")
    return None


def _call_reason(node: fx.Node, tensors: list[torch.Tensor], choices: Choices) -> Unsupported | None:
    """Return a reason in the kind of the call, or None."""
    op = node.target
    if not isinstance(op, torch._ops.OpOverload):
        return Unsupported(node, "it runs a program of its own", "write it with PyTorch operations")
    if op.namespace in ("_c10d_functional", "c10d_functional", "c10d"):
        return Unsupported(node, "it exchanges tensors with other processes", chosen=True)
    if op.namespace not in ("aten", "prims"):
        return Unsupported(node, f"an operator of {op.namespace}", "write it with PyTorch operations to get a kernel")
    sized = torch.Tag.dynamic_output_shape in op.tags and not _is_put(node)
    if sized or _is_masked(node):
        cure = "keep all elements and select with torch.where to get a kernel"
        why = "the size of its result depends on values" if sized else "where it writes depends on a mask"
        return Unsupported(node, why, cure)
    if "_assert" in op.name():
        return Unsupported(node, "it stops the program when a check of values fails", chosen=True)
    if op._schema.is_mutable:
        return Unsupported(node, "it modifies its argument in place", "compute a new tensor to get a kernel")
    if is_random(node):
        if facts_of(node).seeds:
            return Unsupported(node, "seeds come from the generator that torch.manual_seed sets", chosen=True)
        return Unsupported(
            node, "it uses the random numbers of the library", "write it with torch.rand to get a kernel"
        )
    return None


def _is_put(node: fx.Node) -> bool:
    return "index_put" in operation(node)


def _is_masked(node: fx.Node) -> bool:
    """Return True if the indices are a mask."""
    places: Any = node.args[1] if "index" in operation(node) and len(node.args) > 1 else None
    listed = places if isinstance(places, (tuple, list)) else ()
    return any(t.dtype is torch.bool for i in listed if isinstance(i, fx.Node) for t in _tensors(i))


def _library_reason(node: fx.Node, tensors: list[torch.Tensor], choices: Choices) -> Unsupported | None:
    """Return a reason in the strengths of libraries, or None."""
    name = operation(node)
    if _is_product(node):
        if choices.matmul == "never":
            return Unsupported(node, "matrix products get no kernels (option matmul=never)", chosen=True)
        if choices.matmul == "always":
            return Unsupported(node, "tl.dot does not support the shape or dtype of this matrix product", chosen=True)
        cure = "choose matmul=always to get a kernel"
        return Unsupported(node, "the library is as fast for a matrix product", cure, chosen=True)
    if choices.deterministic == "yes" and is_accumulation(node):
        return Unsupported(
            node, "kernels add in a different order in every run, which the options exclude", chosen=True
        )
    if name in _INDEX_PUTS:
        return Unsupported(node, *_REMEDIES["may write an element more than once"])
    for pattern, what in _LIBRARIES.items():
        if re.match(pattern, name):
            return Unsupported(node, f"the library is faster for {what}", chosen=True)
    if re.match(_SORTING, name):
        return Unsupported(node, "there is no kernel that sorts")
    return None


def _is_product(node: fx.Node) -> bool:
    return bool(re.match(r"aten\.(mm|addmm|bmm|baddbmm|_scaled_mm|_int_mm|mv|addmv|dot|vdot)\.", operation(node)))


_LIBRARIES = {
    r"aten\.\w*convolution": "convolutions",
    r"aten\.\w*(linalg|cholesky|triangular_solve|lu_unpack|ormqr|geqrf)": "linear algebra",
    r"aten\.\w*(fft|stft)": "Fourier transforms",
    r"aten\.\w*(lstm|gru|rnn)": "whole recurrent layers",
    r"aten\.\w*(attention)": "attention",
}
_SORTING = r"aten\.\w*(sort|topk|kthvalue|median|mode|unique|searchsorted|bucketize|histc)"
_INDEX_PUTS = ("aten.index_put.default", "aten._unsafe_index_put.default")

_REMEDIES = {
    "may write an element more than once": (
        "its indices may contain an element twice, and one of the values has to win",
        "adding instead (scatter_add, accumulate=True) gets a kernel",
    ),
    "depends on the memory layout of a tensor": (
        "it depends on the memory layout of a tensor",
        "use slices and reshape to get a kernel",
    ),
}
"""Explanations of obstacles to a kernel, if they need more than their own words."""
