"""Check the backward of a user's `autograd.Function`: it runs, and returns one gradient for each argument of
`forward`.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any
from unittest import mock

import torch
from torch.autograd.function import BackwardCFunction

from fx_lsp.messages.findings import BACKWARD_RAISES, TOO_FEW_OR_MANY_GRADIENTS, WRONG_GRADIENT
from fx_lsp.model import Remark, Span
from fx_lsp.tracer.failures.exceptions import sentence
from fx_lsp.tracer.run.tensors import describe
from fx_lsp.tracer.source.provenance import Sources


class GradientError(RuntimeError):
    """A `backward` raised, or returned gradients that do not fit the arguments; PyTorch raises as well.

    Its `remark` depends on the inputs if other arguments of `forward` may get other gradients.
    """

    def __init__(self, remark: Remark) -> None:
        super().__init__(remark.message)
        self.remark = remark


@contextmanager
def checked_gradients(sources: Sources) -> Generator[None, None, None]:
    """Make a backward pass inside raise GradientError at faulty code of a user's `backward`."""
    original = BackwardCFunction.apply

    def apply(self: Any, *args: Any) -> Any:
        function: Any = type(self)._forward_cls
        try:
            gradients = original(self, *args)
        except GradientError:
            raise
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError, NameError, KeyError) as error:
            chain = sources.traceback_chain(error.__traceback__)
            if not chain or sources.rank(inspect.unwrap(function.backward).__code__.co_filename) == 2:
                raise  # PyTorch created the function itself, as for a custom operator
            if _is_freed(self):
                raise  # the code differentiated before, and keeps no graph
            remark = BACKWARD_RAISES.remark(chain[0], function=function.__name__, error=sentence(error))
            raise GradientError(remark) from error
        _check(self, function, gradients if isinstance(gradients, tuple) else (gradients,))
        return gradients

    with mock.patch.object(BackwardCFunction, "apply", apply):
        yield


def _is_freed(node: Any) -> bool:
    """Return True if an earlier backward pass has freed what a function saved."""
    try:
        return node.saved_tensors is None
    except RuntimeError:
        return True


def _check(node: Any, function: Any, gradients: tuple[Any, ...]) -> None:
    """Raise GradientError unless there is a gradient of the right size for each argument of `forward`."""
    count = len(node.needs_input_grad)
    if len(gradients) < count or any(gradient is not None for gradient in gradients[count:]):
        remark = TOO_FEW_OR_MANY_GRADIENTS.remark(
            _returned(function.backward),
            function=function.__name__,
            gradients=_count(len(gradients), "gradient"),
            arguments=_count(count, "argument"),
        )
        raise GradientError(remark)
    arguments = [number for number, is_needed in enumerate(node.needs_input_grad) if is_needed]
    edges = [edge for edge in node.next_functions if edge[0] is not None]
    for number, (maker, output) in zip(arguments, edges, strict=False):
        wanted, gradient = maker._input_metadata[output].shape, gradients[number]
        if gradient is None or (isinstance(gradient, torch.Tensor) and _is_sum_to(wanted, gradient.shape)):
            continue
        is_tensor = isinstance(gradient, torch.Tensor)
        remark = WRONG_GRADIENT.remark(
            _returned(function.backward, number),
            rests_on="inputs" if is_tensor else "",
            function=function.__name__,
            gradient=describe(gradient.detach()) if is_tensor else f"a {type(gradient).__name__}",
            argument=_argument(function, number),
            shape=[*wanted],
        )
        raise GradientError(remark)


def _is_sum_to(wanted: torch.Size, shape: torch.Size) -> bool:
    """Return True if a gradient of `shape` has the shape `wanted`, or can be summed to it as after a broadcast."""
    pairs = zip(reversed(wanted), reversed(shape), strict=False)
    return len(wanted) <= len(shape) and all(size in (1, other) for size, other in pairs)


def _argument(function: Any, number: int) -> str:
    """Return the name of an argument of `forward`, or its number if it has none."""
    names = [*inspect.signature(function.forward).parameters.values()]
    has_context = function.setup_context is torch.autograd.Function.setup_context
    names = names[1:] if has_context else names
    is_named = number < len(names) and names[number].kind is not inspect.Parameter.VAR_POSITIONAL
    return names[number].name if is_named else f"argument {number}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _returned(function: Callable[..., Any], number: int = -1) -> Span | None:
    """Return the expression of a function's last return, or its part with a number; None without the source."""
    with suppress(OSError, TypeError, SyntaxError):
        function = inspect.unwrap(function)
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
        returned = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return) and node.value is not None]
        indent = len(lines[0]) - len(lines[0].lstrip())
        if returned:
            last, file = max(returned, key=lambda node: node.lineno), inspect.getsourcefile(function) or ""
            parts = last.elts if isinstance(last, ast.Tuple) else []
            is_apart = not any(isinstance(part, ast.Starred) for part in parts[: number + 1])
            node = parts[number] if is_apart and 0 <= number < len(parts) else last
            start, end = first + node.lineno - 1, first + (node.end_lineno or node.lineno) - 1
            return Span(file, start, node.col_offset + indent, end, (node.end_col_offset or 0) + indent)
    return None
