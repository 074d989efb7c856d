"""The number of gradients that `backward` of a user's `autograd.Function` gives: one for each argument of `forward`."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any
from unittest import mock

from torch.autograd.function import BackwardCFunction

from fx_lsp.model import Remark, Span


class GradientCountError(RuntimeError):
    """A `backward` gave fewer gradients than there are arguments, or more; PyTorch raises the same."""

    def __init__(self, remark: Remark) -> None:
        super().__init__(remark.message)
        self.remark = remark


@contextmanager
def counted_gradients() -> Generator[None, None, None]:
    """Inside, a backward pass that gives a wrong number of gradients raises GradientCountError."""
    original = BackwardCFunction.apply

    def apply(self: Any, *args: Any) -> Any:
        result = original(self, *args)
        gradients: tuple[Any, ...] = result if isinstance(result, tuple) else (result,)
        wanted = len(self.needs_input_grad)
        if len(gradients) < wanted or any(gradient is not None for gradient in gradients[wanted:]):
            function: Any = type(self)._forward_cls
            counts = f"{_count(len(gradients), 'gradient')} for {_count(wanted, 'argument')} of `forward`"
            message = f"`{function.__name__}.backward` returns {counts}: one is needed for each, or None"
            raise GradientCountError(Remark(message, _return_of(function.backward), "error"))
        return result

    with mock.patch.object(BackwardCFunction, "apply", apply):
        yield


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _return_of(function: Callable[..., Any]) -> Span | None:
    """Return where a function ends, as far as its text is known."""
    with suppress(OSError, TypeError, SyntaxError):
        function = inspect.unwrap(function)
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
        returned = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return) and node.value is not None]
        indent = len(lines[0]) - len(lines[0].lstrip())
        if returned:
            last, file = max(returned, key=lambda node: node.lineno), inspect.getsourcefile(function) or ""
            start, end = first + last.lineno - 1, first + (last.end_lineno or last.lineno) - 1
            return Span(file, start, last.col_offset + indent, end, (last.end_col_offset or 0) + indent)
    return None
