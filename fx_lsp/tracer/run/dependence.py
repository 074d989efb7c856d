"""Carry, through a run, which inputs each tensor was computed from."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Dependence:
    """Hold the inputs, by their paths (`x`, `xs[0]`), that the tensors of a run are and follow from.

    A result follows from all tensors among the operands of its operation, through views and changes of shape as well. A
    tensor that no operation returned, such as `Variable(x)`, follows from what the last one with its storage does.
    """

    _inputs: WeakIdKeyDictionary = field(default_factory=WeakIdKeyDictionary)
    _follows: WeakIdKeyDictionary = field(default_factory=WeakIdKeyDictionary)
    _containers: dict[int, Any] = field(default_factory=dict[int, Any])
    _stored: dict[int, tuple[weakref.ref[Any], frozenset[str]]] = field(
        default_factory=dict[int, tuple[weakref.ref[Any], frozenset[str]]]
    )

    def begin(self, tensor: torch.Tensor, path: str) -> None:
        """Record that a tensor is the input at `path`."""
        self._inputs[tensor] = path
        self._note(tensor, frozenset({path}))

    def follow(self, operands: Iterable[torch.Tensor], result: Any) -> None:
        """Record that the tensors of a result follow from all that the operands follow from."""
        if isinstance(result, tuple | list):
            self._containers[id(result)] = result
        behind = self._behind(operands)
        if behind:
            for tensor in (result,) if isinstance(result, torch.Tensor) else tree_leaves(result):
                if isinstance(tensor, torch.Tensor):
                    self._note(tensor, behind)

    def _note(self, tensor: torch.Tensor, behind: frozenset[str]) -> None:
        self._follows[tensor] = behind
        if (storage := storage_of(tensor)) is not None:
            self._stored[storage._cdata] = weakref.ref(storage), behind

    def input_of(self, value: Any) -> str | None:
        """Return the path of the input that a tensor is, or is a view of; else None."""
        if not isinstance(value, torch.Tensor):
            return None
        path = self._inputs.get(value)
        return path if path is not None or value._base is None else self._inputs.get(value._base)

    def is_input(self, value: Any) -> bool:
        """Return True for an input itself."""
        return isinstance(value, torch.Tensor) and value in self._inputs

    def kind_of(self, value: Any) -> Literal["tensor", "result", "input"]:
        """Return "tensor" for a computed tensor, "result" for the tuple or list that an operation returned, and "input"
        for anything else: it may be an input, or a part of one.
        """
        if isinstance(value, torch.Tensor) and not self.is_input(value):
            return "tensor"
        return "result" if self._containers.get(id(value)) is value else "input"

    def of(self, *values: Any) -> frozenset[str]:
        """Return the paths of the inputs that the tensors among values follow from, also those in containers."""
        return self._behind(leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor))

    def _behind(self, tensors: Iterable[torch.Tensor]) -> frozenset[str]:
        return NOTHING.union(*(self._follows.get(tensor) or self._through_storage(tensor) for tensor in tensors))

    def _through_storage(self, tensor: torch.Tensor) -> frozenset[str]:
        storage = storage_of(tensor)
        reference, behind = (
            self._stored.get(storage._cdata, (None, NOTHING)) if storage is not None else (None, NOTHING)
        )
        return behind if reference is not None and reference() is storage else NOTHING


def storage_of(tensor: torch.Tensor) -> Any:
    """Return the storage of a tensor, None for one without any, such as a sparse one."""
    try:
        with torch._C.DisableTorchFunction():  # it is no call of the code that runs
            return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None
