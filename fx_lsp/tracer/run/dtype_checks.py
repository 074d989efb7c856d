"""Check the requirements of kernels on dtypes that fake tensors do not check: masks are not subtracted, indices are
`Long`, sources have the dtype of the tensor that they are copied into.

The kernel itself decides, once for each choice of dtypes and ranks: it runs on real tensors of one element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._pytree import tree_leaves, tree_map_only

from fx_lsp.tracer.compat import FakeTensorMode
from fx_lsp.tracer.pytorch_texts import OF_DTYPES_OF_A_KERNEL

_OF_DEVICE = "not implemented for"
"""The words of a CPU kernel's error that need not apply to other devices."""
_SYMBOLS = torch.SymInt, torch.SymFloat, torch.SymBool
_RANDOM = torch.Tag.nondeterministic_seeded

_refusals: dict[object, Exception | None] = {}


def ask_kernels(mode: FakeTensorMode) -> None:
    """Make a mode reject the dtypes that kernels reject."""
    run: Callable[..., Any] = mode.dispatch

    def dispatch(func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        result = run(func, types, args, kwargs)
        refusal = _refusal(func, args, kwargs or {})
        if refusal is not None:
            raise type(refusal)(*refusal.args)
        return result

    mode.__dict__["dispatch"] = dispatch


def _refusal(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Exception | None:
    """Return the error of a kernel for the dtypes of its operands, or None.

    What autograd calls has the dtypes that it needs, and may have operands that only their own kernel can read.
    """
    node: Any = torch._C._current_autograd_node()  # None outside of a backward pass
    if node is not None or not isinstance(func, OpOverload) or func.namespace != "aten" or _RANDOM in func.tags:
        return None
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    dtypes = {tensor.dtype for tensor in tensors}
    is_of_floats = len(dtypes) == 1 and next(iter(dtypes)).is_floating_point
    if not tensors or (is_of_floats and torch.Tag.pointwise not in func.tags):
        return None
    key = (func, *_described(args), *kwargs, *_described(kwargs))
    try:
        if key not in _refusals:
            _refusals[key] = _asked(func, args, kwargs)
    except TypeError:  # an unhashable argument
        return None
    refusal = _refusals[key]
    is_elsewhere = any(tensor.device.type != "cpu" for tensor in tensors)
    return None if is_elsewhere and _OF_DEVICE in str(refusal) else refusal


def _described(arguments: Any) -> Iterator[object]:
    for leaf in tree_leaves(arguments):
        if isinstance(leaf, torch.Tensor):
            yield leaf.dtype, leaf.dim()
        else:
            yield type(leaf) if isinstance(leaf, (int, float, *_SYMBOLS)) else leaf


def _asked(func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Exception | None:
    def single(tensor: torch.Tensor) -> torch.Tensor:
        return torch.zeros((1,) * tensor.dim(), dtype=tensor.dtype)

    with unset_fake_temporarily(), torch.no_grad():
        arguments = tree_map_only(torch.Tensor, single, (tuple(args), kwargs))
        arguments = tree_map_only(torch.device, lambda _: torch.device("cpu"), arguments)
        arguments = tree_map_only(_SYMBOLS, lambda _: 1, arguments)  # a number in its place would be a guard
        try:
            func(*arguments[0], **arguments[1])
        except (RuntimeError, TypeError, IndexError) as error:
            return error if OF_DTYPES_OF_A_KERNEL.search(str(error)) else None
        except Exception:
            return None
    return None
