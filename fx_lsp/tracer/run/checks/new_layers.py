"""Find layers that a module makes in each call: they get a gradient, and never train."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from fx_lsp.messages.findings import MADE_IN_FORWARD
from fx_lsp.model import Remark, Span
from fx_lsp.tracer.run.in_place import autograd_graph
from fx_lsp.tracer.run.torch_calls import TorchCall, tensors_among
from fx_lsp.tracer.source.provenance import MODULE_CALL, Sources

GET_DATA: Any = vars(torch._C.TensorBase)["data"].__get__
"""The call that reads `tensor.data`."""


@dataclass
class _NewParameter:
    """Hold a `parameter` of a layer that `owner` made while it was called; it is `gone` if the layer does not exist at
    a later `backward`.
    """

    layer: weakref.ref[nn.Module]
    owner: weakref.ref[nn.Module]
    span: Span
    parameter: Tensor
    gone: bool = False

    @property
    def is_forgotten(self) -> bool:
        """Return True if the layer no longer exists, and the module that made it does."""
        return self.layer() is None and self.owner() is not None


@dataclass
class NewLayers:
    """Follow the layers that modules make in their calls, except those with values that the code sets afterwards."""

    sources: Sources
    parameters: list[_NewParameter] = field(default_factory=list[_NewParameter])

    @contextmanager
    def watching(self) -> Generator[None, None, None]:
        """Inside, the parameters of new layers are noted."""
        register: Callable[..., None] = nn.Module.register_parameter

        def registered(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
            register(module, name, parameter)
            if parameter is not None:
                self._note(module, parameter, sys._getframe(1))

        with patch.object(nn.Module, "register_parameter", registered):
            yield

    def _note(self, module: nn.Module, parameter: nn.Parameter, frame: FrameType | None) -> None:
        chain = self.sources.chain(frame, MODULE_CALL)
        while frame is not None and frame.f_code is not MODULE_CALL:
            frame = frame.f_back
        if frame is None or not chain:
            return
        if any(new.layer() is module and new.span != chain[-1] for new in self.parameters):
            self.parameters = [new for new in self.parameters if new.layer() is not module]
        else:
            owner: nn.Module = frame.f_locals["self"]
            self.parameters.append(_NewParameter(weakref.ref(module), weakref.ref(owner), chain[-1], parameter))

    def __call__(self, call: TorchCall) -> Iterator[Remark]:
        """Note a torch call that sets the values of a parameter, or that differentiates."""
        if call.name == "backward":
            for new in self.parameters:
                new.gone |= new.is_forgotten
        elif self.parameters and (call.func == GET_DATA or call.name == "__set__" or call.name.endswith("_")):
            ids = {*map(id, tensors_among(call.args, call.kwargs))}
            places = {new.span for new in self.parameters if id(new.parameter) in ids} - {*call.chain}
            self.parameters = [new for new in self.parameters if new.span not in places]
        return iter(())

    def remarks(self, result: Any) -> Iterator[Remark]:
        """Yield the findings of a run that returned `result`."""
        reached = {*map(id, leaves(tensors_among((result,), {})))} if self.parameters else set[int]()
        for new in self.parameters:
            is_new = id(new.parameter) in reached and new.is_forgotten
            if new.gone if new.parameter.grad is not None else is_new:
                yield MADE_IN_FORWARD.remark(new.span)


def leaves(tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    """Yield the tensors whose gradients the graphs of some tensors accumulate."""
    variables = (getattr(node, "variable", None) for node in autograd_graph(tensor.grad_fn for tensor in tensors))
    return (variable for variable in variables if isinstance(variable, Tensor))
