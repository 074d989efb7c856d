"""Simulate remote calls to other processes: each runs here, at once, and its result is available immediately."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

_CONTEXT = 1
"""The number of the only context of distributed autograd."""


class RemoteValue:
    """A value of this process in place of an RRef."""

    def __init__(self, value: Any, type_hint: Any = None) -> None:
        self._value = value

    def to_here(self, timeout: float = -1.0) -> Any:
        """Return the value."""
        return self._value

    local_value = to_here

    def owner(self) -> Any:
        """Return the process of the value: this one."""
        return worker_info()

    def owner_name(self) -> str:
        """Return the name of that process."""
        return self.owner().name

    def is_owner(self) -> bool:
        """Return True: the value is here."""
        return True

    confirmed_by_owner = is_owner

    def rpc_sync(self, timeout: float = -1.0) -> Any:
        """Return an object whose methods are those of the value."""
        return _Methods(self._value, lambda result: result)

    def rpc_async(self, timeout: float = -1.0) -> Any:
        """Return an object whose methods return futures of the results of the value's methods."""
        return _Methods(self._value, _completed)

    def remote(self, timeout: float = -1.0) -> Any:
        """Return an object whose methods return the results of the value's methods as remote values."""
        return _Methods(self._value, RemoteValue)

    def backward(self, context: int = -1, retain_graph: bool = False) -> None:
        """Differentiate the value."""
        self._value.backward(retain_graph=retain_graph)


class _Methods:
    """Provide the methods of a value, with wrapped results."""

    def __init__(self, value: Any, wrap: Callable[[Any], Any]) -> None:
        self._value, self._wrap = value, wrap

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._value, name)
        return lambda *args, **kwargs: self._wrap(_result(method(*args, **kwargs)))


def worker_info(name: str | None = None) -> Any:
    """Return the description of a process: its name and its number."""
    return SimpleNamespace(name=name or "worker0", id=0)


def _completed(result: Any) -> torch.futures.Future[Any]:
    future: torch.futures.Future[Any] = torch.futures.Future()
    future.set_result(result)
    return future


def _result(result: Any) -> Any:
    """Return the result of a function, waiting for a future."""
    return result.wait() if isinstance(result, torch.futures.Future) else result


def _called(to: Any, func: Callable[..., Any], args: Sequence[Any] = (), kwargs: Any = None, timeout: Any = -1) -> Any:
    return _result(func(*(args or ()), **(kwargs or {})))


def _gradients(context: int) -> Mapping[torch.Tensor, torch.Tensor]:
    return {}


def _backward(context: int, roots: Iterable[torch.Tensor], retain_graph: bool = False) -> None:
    torch.autograd.backward(list(roots), retain_graph=retain_graph)


@contextmanager
def remote_calls_here() -> Generator[None, None, None]:
    """Run the functions that programs call in other processes in this one, inside."""
    rpc: Any = importlib.import_module("torch.distributed.rpc") if dist.is_available() else None
    if rpc is None or not rpc.is_available():
        yield
        return
    autograd: Any = importlib.import_module("torch.distributed.autograd")
    answers: dict[str, Any] = {
        "init_rpc": lambda *args, **kwargs: None,
        "shutdown": lambda *args, **kwargs: None,
        "get_worker_info": worker_info,
        "rpc_sync": _called,
        "rpc_async": lambda *args, **kwargs: _completed(_called(*args, **kwargs)),
        "remote": lambda *args, **kwargs: RemoteValue(_called(*args, **kwargs)),
        "RRef": RemoteValue,
    }
    differentiating = {"context": lambda: nullcontext(_CONTEXT), "backward": _backward, "get_gradients": _gradients}
    with ExitStack() as stack:
        for owner, functions in ((rpc, answers), (rpc.api, answers), (autograd, differentiating)):
            for name, function in functions.items():
                if hasattr(owner, name):
                    stack.enter_context(mock.patch.object(owner, name, function))
        yield
