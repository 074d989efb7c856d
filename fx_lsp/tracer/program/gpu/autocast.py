"""Simulate autocast for tensors on a missing GPU.

The kernels of autocast ask C++ whether a tensor is on the GPU, as autograd does, which must get "no". So Python kernels
replace them. They learn the target dtype from the original kernel, which runs once, without autograd, on tensors whose
device C++ sees.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any

import torch
from torch.library import Library
from torch.utils._pytree import tree_iter, tree_map_only

from fx_lsp.tracer.compat import FakeTensor, unwrapped

_CASTABLE = (torch.float32, torch.float16, torch.bfloat16)


class FakeAutocast:
    """Replace autocast of one type of device; `heard` is a context in which C++ sees fake devices."""

    def __init__(
        self, kind: str, heard: Callable[[], AbstractContextManager[None]], is_fake: Callable[[Any], bool]
    ) -> None:
        self._kind, self._key = kind, f"Autocast{kind.upper()}"
        self._heard, self._is_fake = heard, is_fake
        self._libraries: dict[str, Library] = {}
        self._dtypes: dict[Any, torch.dtype | None] = {}

    def install(self) -> None:
        """Replace autocast's kernels. PyTorch's warning about that is not one about the user's code."""
        if self._libraries:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in torch._C._dispatch_get_registrations_for_dispatch_key(self._key):
                self._register(name)

    def remove(self) -> None:
        """Restore autocast's kernels."""
        for library in self._libraries.values():
            library._destroy()
        self._libraries.clear()

    def _register(self, name: str) -> None:
        namespace, _, rest = name.partition("::")
        base, _, overload = rest.partition(".")
        with suppress(AttributeError, RuntimeError):  # an operator without a schema, or of TorchScript alone
            op = getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")
            library = Library(namespace, "IMPL")
            library.impl(rest, self._kernel(op, name), self._key)
            self._libraries[name] = library

    def _kernel(self, op: Any, name: str) -> Callable[..., Any]:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, self._key))):
                dtype = self._dtype(op, name, args, kwargs)
                if dtype is None:
                    return op(*args, **kwargs)
                position, may_be_given = _dtype_argument(op)
                if dtype is torch.float32 and may_be_given and position >= len(args) and kwargs.get("dtype") is None:
                    return op(*args, **{**kwargs, "dtype": dtype})

                def cast(tensor: torch.Tensor) -> torch.Tensor:
                    return tensor.to(dtype) if tensor.dtype in _CASTABLE and self._is_fake(tensor) else tensor

                args, kwargs = tree_map_only(torch.Tensor, cast, (args, kwargs))
                return op(*args, **kwargs)

        return kernel

    def _dtype(self, op: Any, name: str, args: Any, kwargs: Any) -> torch.dtype | None:
        """Return the dtype to which autocast converts the tensors of a call, None if it does not."""
        tensors = [t for t in tree_iter((args, kwargs)) if isinstance(t, torch.Tensor)]
        dtypes = tuple((t.dtype, t.dim()) for t in tensors)
        key = name, dtypes, torch.get_autocast_dtype(self._kind)
        if key not in self._dtypes:
            self._dtypes[key] = self._learnt(op, name, args, kwargs)
        return self._dtypes[key]

    def _learnt(self, op: Any, name: str, args: Any, kwargs: Any) -> torch.dtype | None:
        args, kwargs = tree_map_only(torch.Tensor, _innermost, (args, kwargs))
        key = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, self._key))
        self._libraries.pop(name)._destroy()
        try:
            with (
                torch.no_grad(),
                self._heard(),
                torch._C._ForceDispatchKeyGuard(
                    torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set() - key
                ),
            ):
                result = op(*args, **kwargs)
        finally:
            self._register(name)
        floating = [t for t in tree_iter(result) if isinstance(t, torch.Tensor) and t.dtype in _CASTABLE]
        return floating[0].dtype if floating else None


def _dtype_argument(op: Any) -> tuple[int, bool]:
    names = [argument.name for argument in op._schema.arguments]
    return (names.index("dtype"), True) if "dtype" in names else (0, False)


def _innermost(tensor: torch.Tensor) -> torch.Tensor:
    while not isinstance(tensor, FakeTensor) and (inner := unwrapped(tensor)) is not None:
        tensor = inner
    return tensor.detach()
