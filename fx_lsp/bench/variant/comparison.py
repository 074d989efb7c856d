"""Compare the results of two functions: outputs, gradients, and inputs that they change."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from fx_lsp.numerics.rounding import judged

Function: TypeAlias = "Callable[..., Any]"
Arguments: TypeAlias = "tuple[tuple[Any, ...], dict[str, Any]]"
"""Positional and keyword arguments of a call."""
Make: TypeAlias = "Callable[[int], Arguments]"
"""Returns fresh random arguments for a seed."""
Results: TypeAlias = "dict[str, torch.Tensor]"

FAILURES = (AssertionError, LookupError, RuntimeError, TypeError, ValueError)
"""The errors with which a function rejects arguments."""

SEEDS = range(3)
"""The seeds of the arguments that are compared."""


class NotAccepted(Exception):
    """The original rejects random arguments; the message is its error."""


def tensors_in(value: Any, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors in a value, each with the path to it."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, torch.nn.Module):
        for part, tensor in (*value.named_parameters(), *value.named_buffers()):
            yield f"{name}.{part}", tensor
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from tensors_in(item, f"{name}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from tensors_in(item, f"{name}[{number}]")
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        for key, item in vars(value).items():
            yield from tensors_in(item, f"{name}.{key}")


def results_of(function: Function, signature: inspect.Signature, args: Any, kwargs: Any) -> Results:
    """Return the results of a call, the gradients of its inputs, and the inputs that it changes.

    The gradients are computed from random gradients of all results. `signature` names the inputs.
    """
    bound = signature.bind(*args, **kwargs).arguments
    inputs = {n: t for name, value in bound.items() for n, t in tensors_in(value, name)}
    before = {name: tensor.detach().clone() for name, tensor in inputs.items()}
    leaves = {name: tensor for name, tensor in inputs.items() if tensor.requires_grad}
    out = [tensor for _, tensor in tensors_in(function(*args, **kwargs), "out")]
    values = {f"out[{n}]" if len(out) > 1 else "out": t for n, t in enumerate(out)}
    roots = {id(leaf) for leaf in leaves.values()}
    out = [t for t in out if t.requires_grad and (t.grad_fn is not None or id(t) in roots)]
    if out and leaves:
        torch.manual_seed(0)
        gradients = [torch.randn(t.shape, dtype=torch.float64, device="cpu").to(t) for t in out]
        options: Any = {"allow_unused": True, "materialize_grads": True}
        grads = torch.autograd.grad(out, list(leaves.values()), gradients, **options)
        values |= {f"gradient of {name}": grad for name, grad in zip(leaves, grads, strict=True)}
    values |= {f"{n} afterwards": tensor for n, tensor in inputs.items() if not torch.equal(tensor, before[n])}
    return values


def doubled(value: Any) -> Any:
    """Return a floating-point tensor or module in float64, and anything else unchanged."""
    if isinstance(value, torch.nn.Module):
        return value.double()
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.detach().double().requires_grad_(value.requires_grad)
    return value


class Wider(TorchDispatchMode):
    """Create and cast tensors in float64 where the code uses fewer bits."""

    def __enter__(self) -> Wider:
        self.before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        torch.set_default_dtype(self.before)
        super().__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("dtype") in (torch.float16, torch.bfloat16, torch.float32):
            kwargs["dtype"] = torch.float64
        return func(*args, **kwargs)


def exact_results(function: Function, signature: inspect.Signature, args: Any, kwargs: Any) -> Results:
    """Return the results of a call in float64, or an empty dictionary if the function does not support it."""
    args, kwargs = tree_map(doubled, (args, kwargs))
    try:
        with Wider():
            return results_of(function, signature, args, kwargs)
    except FAILURES:
        return {}


def _between(value: Any) -> Any:
    """Map a floating-point tensor to numbers between 0 and 1."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.detach().frac().abs().requires_grad_(value.requires_grad)
    return value


def accepted(reference: Function, signature: inspect.Signature, make: Make) -> Make:
    """Return a function that makes random arguments that the original accepts. Raises NotAccepted, and
    NotImplementedError if they need another device.
    """
    failures: list[str] = []
    for draw in (make, lambda seed: tree_map(_between, make(seed))):
        try:
            for seed in SEEDS:
                results_of(reference, signature, *draw(seed))
            return draw
        except NotImplementedError:  # the arguments say that they need another device
            raise
        except FAILURES as error:
            failures.append(f"{type(error).__name__}: {error}")
    raise NotAccepted(failures[0])


def compare(
    kernels: Function, reference: Function, make: Make, seeds: Sequence[int]
) -> dict[str, tuple[bool, float, float]]:
    """Return the verdict on each result, for the worst of several seeds."""
    worst: dict[str, tuple[bool, float, float]] = {}
    signature = inspect.signature(kernels)
    for seed in seeds:
        values, right = (results_of(function, signature, *make(seed)) for function in (kernels, reference))
        exact = exact_results(reference, signature, *make(seed))
        for name in dict.fromkeys((*right, *values)):
            verdict = judged(values.get(name), right.get(name), exact.get(name))
            worst[name] = max(worst.get(name, verdict), verdict)
    return worst
