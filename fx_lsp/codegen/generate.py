"""From the graphs of a target to its file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Any

import torch
from torch import fx
from torch._decomp import get_decompositions
from torch._decomp.decompositions import embedding_dense_backward as embedding_backward

from fx_lsp.choices import Choices
from fx_lsp.codegen.aliases import set_aside
from fx_lsp.codegen.attention import fuse_attention
from fx_lsp.codegen.calls import keep_calls
from fx_lsp.codegen.file import Generated, Subject, file_of
from fx_lsp.codegen.functions import MOST_ARGUMENTS
from fx_lsp.codegen.joined import sum_parts
from fx_lsp.codegen.kernel import Naming
from fx_lsp.codegen.lifted import lift_sums
from fx_lsp.codegen.matmul import fuse_matmuls
from fx_lsp.codegen.program import program
from fx_lsp.codegen.randomness import seed_random
from fx_lsp.codegen.sizes import sizes_of_inputs
from fx_lsp.codegen.slices import join_slices
from fx_lsp.codegen.split import split_reductions
from fx_lsp.codegen.sums import add_to_zeros, keep_sums
from fx_lsp.codegen.views import join_views
from fx_lsp.codegen.written import join_writes


def decompositions() -> dict[Any, Callable[..., Any]]:
    """What graphs are made with before kernels are: the operations that remain are those that Inductor has to lower."""
    from torch._inductor.decomposition import select_decomp_table

    found = {**select_decomp_table(), **get_decompositions(_DECOMPOSED), **_written_out()}
    found |= {op: _in_float32(found[op]) for op in _NORMALIZATIONS}
    return {op: function for op, function in found.items() if not any(name in str(op) for name in _KEPT)}


aten = torch.ops.aten

_KEPT = ("max_pool", "_unsafe_index_put")
"""What Inductor's table makes operations of that it alone has, and what says of its indices that they are in range."""
_DECOMPOSED = (
    *(aten.addcmul, aten.addcdiv, aten.glu, aten.ldexp, aten._unsafe_masked_index),
    *(aten._unsafe_masked_index_put_accumulate, aten._adaptive_avg_pool2d),
)
"""What PyTorch can decompose and Inductor has code of its own for."""
_NORMALIZATIONS = (aten.native_layer_norm.default, aten.native_group_norm.default)
"""What keeps a mean and a deviation for backward: in half precision on a CPU, where graphs are traced; not so here."""


def _written_out() -> dict[Any, Callable[..., Any]]:
    """Decompositions that PyTorch does not have, or not with the accuracy of its own operation."""

    def max_dim(x: torch.Tensor, dim: int, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.amax(x, dim, keepdim), torch.argmax(x, dim, keepdim)

    def min_dim(x: torch.Tensor, dim: int, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.amin(x, dim, keepdim), torch.argmin(x, dim, keepdim)

    def soft_margin_backward(grad: torch.Tensor, x: torch.Tensor, target: torch.Tensor, reduction: int) -> torch.Tensor:
        found = -grad * target * torch.sigmoid(-target * x)
        return found / x.numel() if reduction == 1 else found

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

    return {
        **_PARTS,
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


_PARTS: dict[Any, Callable[..., Any]] = {
    aten.unbind.int: _unbind,
    aten.split.Tensor: _split,
    aten.split_with_sizes.default: _split_with_sizes,
}
"""What gives several views at once, as views: those can be seen through one by one."""


def _in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decomposition in float32, of which only the first result is as precise as its input."""

    def decomposed(x: torch.Tensor, *args: Any) -> tuple[torch.Tensor, ...]:
        if x.dtype not in (torch.float16, torch.bfloat16):
            return function(x, *args)
        first, *others = function(x.float(), *(a.float() if isinstance(a, torch.Tensor) else a for a in args))
        return first.to(x.dtype), *others

    return decomposed


def prepared(graph: fx.Graph, choices: Choices) -> None:
    """Have kernels of ours stand, in a joint graph or one for inference, for what is not to be written op by op."""
    if choices.engine == "fx-lsp":
        sizes_of_inputs(graph)
        join_views(graph)
        seed_random(graph)
        keep_sums(graph)
        keep_calls(graph)
        join_writes(graph)
        join_slices(graph)
        if choices.fuse == "yes":
            sum_parts(graph)
            fuse_attention(graph, choices.precision)


def generate(
    subject: Subject,
    forward: fx.Graph,
    backward: fx.Graph | None,
    naming: Naming,
    hints: Mapping[str, int],
    choices: Choices,
) -> Generated:
    """The file for a function that has these graphs.

    Forward returns the results of the function and then what backward takes under the same names. Raises NotWritten
    where a part of the graphs cannot be written down.
    """
    if backward is None:
        prepared(forward, choices)
    for graph in (forward, backward):
        if graph is not None and choices.engine == "fx-lsp" and choices.deterministic == "no":
            add_to_zeros(graph)
        if graph is not None and choices.engine == "fx-lsp" and choices.fuse == "yes":
            lift_sums(graph)
            split_reductions(graph)
            fuse_matmuls(graph, choices)
    aside = set_aside(forward, subject.outputs, subject.tangents, backward is not None)
    title = f"{subject.stem}_forward_kernel" if backward is not None else f"{subject.stem}_kernel"
    changed = _overwritten(subject, forward) if backward is None and choices.engine == "fx-lsp" else {}
    first, second = program(forward, title, naming, hints, choices, changed), None
    if backward is not None:
        second = program(backward, f"{subject.stem}_backward_kernel", naming, hints, choices)
    return file_of(subject, first, second, naming.name, aside, choices.engine)


def _overwritten(subject: Subject, forward: fx.Graph) -> dict[fx.Node, fx.Node]:
    """The inputs that are to have new values, by those; none where an operator takes its tensors as a list."""
    inputs = [n for n in forward.nodes if n.op == "placeholder" and isinstance(n.meta.get("val"), torch.Tensor)]
    if len(inputs) > MOST_ARGUMENTS:
        return {}
    by_name = dict(zip(subject.inputs, inputs, strict=True))
    output: Any = next(n for n in reversed(forward.nodes) if n.op == "output").args[0]
    pairs = zip(output, (by_name[name] for name, _ in subject.changed), strict=False)
    return {new: old for new, old in pairs if isinstance(new, fx.Node) and new.op == "call_function"}
