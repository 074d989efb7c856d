"""Compare the parameters that optimizers have with those that modules have and those that get a gradient."""

from __future__ import annotations

import ast
import linecache
import sys
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from fx_lsp.messages.findings import ADDED_LATE, CUT_OFF, NEVER_ZEROED, REPLACED
from fx_lsp.model import Remark, Span
from fx_lsp.syntax import is_main_guard, parse
from fx_lsp.tracer.run.checks.new_layers import GET_DATA, leaves
from fx_lsp.tracer.run.torch_calls import TorchCall, tensors_among
from fx_lsp.tracer.source.provenance import Chain, Sources

_RESETS = frozenset({"zero_", "fill_", "copy_", "_foreach_zero_", "_foreach_copy_", "__set__"})
"""Calls that may set a gradient to zero in place."""
_SCALES = frozenset({"mul_", "__imul__"})
"""Calls that may set a gradient to zero with a factor of 0."""
_GET_GRAD: Any = vars(torch._C.TensorBase)["grad"].__get__
_BRANCHES = (ast.If, ast.IfExp, ast.Match, ast.Try)


@dataclass
class _Held:
    """Hold an optimizer and what there was when it was constructed: all parameters, and by module and name those of the
    modules of which it has some. `gradients` are those at its last step, with their versions and storages.
    """

    optimizer: Optimizer
    span: Span
    modules: Sequence[tuple[weakref.ref[nn.Module], str, Mapping[str, Tensor]]]
    parameters: dict[int, Tensor]
    gradients: dict[int, tuple[Tensor, int, int]] = field(default_factory=dict[int, "tuple[Tensor, int, int]"])
    has_stepped: bool = False

    @property
    def own(self) -> dict[int, Tensor]:
        """Return the parameters that the optimizer has now, by their ids."""
        return {id(parameter): parameter for group in self.optimizer.param_groups for parameter in group["params"]}


@dataclass(frozen=True)
class _Cut:
    """Hold an expression whose result has no graph, and the `parameters` that it was computed from."""

    chain: Chain
    parameters: tuple[Tensor, ...]


@dataclass
class Training:
    """Follow the modules, optimizers and gradients of one run. Tensors are kept, so that no id has two meanings.

    `newer` are the optimizer, the name and the older one of each parameter that its module got later; `cuts` are those
    that a tensor depends on, and `lost` those that a loss depends on.
    """

    sources: Sources
    stop: CodeType
    modules: list[weakref.ref[nn.Module]] = field(default_factory=list["weakref.ref[nn.Module]"])
    optimizers: list[_Held] = field(default_factory=list[_Held])
    trained: dict[int, Tensor] = field(default_factory=dict[int, Tensor])
    newer: dict[int, tuple[_Held, str, Tensor, Tensor | None]] = field(default_factory=dict)
    read: dict[int, Tensor] = field(default_factory=dict[int, Tensor])
    reset: set[int] = field(default_factory=set[int])
    cuts: dict[int, tuple[Tensor, tuple[_Cut, ...]]] = field(default_factory=dict)
    lost: list[_Cut] = field(default_factory=list[_Cut])
    unzeroed: dict[Span, None] = field(default_factory=dict[Span, None])

    @contextmanager
    def watching(self) -> Generator[None, None, None]:
        """Inside, new modules and optimizers are noted, and each step of an optimizer."""
        initialize: Callable[..., None] = nn.Module.__init__
        construct: Callable[..., None] = Optimizer.__init__

        def initialized(module: nn.Module, *args: Any, **options: Any) -> None:
            self.modules.append(weakref.ref(module))
            initialize(module, *args, **options)

        def constructed(optimizer: Optimizer, *args: Any, **options: Any) -> None:
            construct(optimizer, *args, **options)
            self._note_optimizer(optimizer, sys._getframe(1))

        def stepped(optimizer: Optimizer, *_: Any) -> None:
            with torch._C.DisableTorchFunction():
                for held in (held for held in self.optimizers if held.optimizer is optimizer):
                    self._note_step(held, sys._getframe(1))

        hook = register_optimizer_step_post_hook(stepped)
        try:
            with patch.object(nn.Module, "__init__", initialized), patch.object(Optimizer, "__init__", constructed):
                yield
        finally:
            hook.remove()

    def _note_optimizer(self, optimizer: Optimizer, frame: FrameType | None) -> None:
        chain, names = self.sources.chain(frame, self.stop), dict[int, str]()
        while frame is not None and frame.f_code is not self.stop:
            names = {id(value): f"{name}." for name, value in frame.f_locals.items()} | names
            frame = frame.f_back
        modules = [module for reference in self.modules if (module := reference()) is not None]
        inner = {id(part) for module in modules for part in module.children()}
        outer = [
            (weakref.ref(m), names.get(id(m), ""), dict(m.named_parameters())) for m in modules if id(m) not in inner
        ]
        if chain:
            held = _Held(optimizer, chain[0], [], {id(p): p for _, _, before in outer for p in before.values()})
            held.modules = [item for item in outer if any(id(p) in held.own for p in item[2].values())]
            self.optimizers.append(held)

    def _note_step(self, held: _Held, frame: FrameType) -> None:
        own = held.own
        self.trained.update((key, p) for key, p in own.items() if p.grad is not None)
        gradients = [p.grad for p in own.values() if p.grad is not None and not p.grad.is_sparse]
        chain = self.sources.chain(frame, self.stop)
        if gradients and chain and all(self._is_stale(held, g) for g in gradients) and not _may_zero(frame, self.stop):
            self.unzeroed[chain[0]] = None
        held.gradients = {id(g): (g, g._version, g.untyped_storage()._cdata) for g in gradients}
        held.has_stepped = True
        self._note_newer(held, own)

    def _note_newer(self, held: _Held, own: Mapping[int, Tensor]) -> None:
        """Note the parameters that get a gradient and that their modules got after an optimizer, which has `own`."""
        for reference, variable, before in held.modules:
            module = reference()
            is_whole = all(id(p) in own for p in before.values() if p.requires_grad)
            for name, parameter in module.named_parameters() if module is not None else ():
                older = before.get(name)
                is_newer = is_whole and id(parameter) not in held.parameters if older is None else id(older) in own
                if parameter.grad is not None and parameter is not older and id(parameter) not in own and is_newer:
                    self.newer[id(parameter)] = held, variable + name, parameter, older

    def _is_stale(self, held: _Held, gradient: Tensor) -> bool:
        """Return True if a gradient contains the one of the last step."""
        _, version, storage = held.gradients.get(id(gradient), (gradient, gradient._version, 0))
        is_same = gradient.untyped_storage()._cdata == storage and storage not in self.reset
        return is_same and gradient._version > version

    def __call__(self, call: TorchCall) -> Iterator[Remark]:
        """Note a torch call: what reads or resets a gradient, and what has no graph; the end of the run decides."""
        if self.optimizers:
            with torch._C.DisableTorchFunction():
                self._note_call(call, list(tensors_among(call.args, call.kwargs)))
        return iter(())

    def _note_call(self, call: TorchCall, operands: list[Tensor]) -> None:
        cuts = dict.fromkeys(cut for tensor in operands if id(tensor) in self.cuts for cut in self.cuts[id(tensor)][1])
        if call.name == "backward":
            self.lost += cuts
        elif call.func == _GET_GRAD:
            self.read.update((id(tensor), tensor) for tensor in operands if call.caller == "code")
        elif call.name in _RESETS or (call.name in _SCALES and len(operands) == 1):  # a norm that clips is a tensor
            self.reset.update(tensor.untyped_storage()._cdata for tensor in operands if not tensor.is_sparse)
        else:
            self._note_cuts(call, operands, cuts)

    def _note_cuts(self, call: TorchCall, operands: list[Tensor], cuts: dict[_Cut, None]) -> None:
        """Note the cuts that the result of a call depends on: those of its operands, or the call itself."""
        if call.name == "detach" or call.func == GET_DATA:
            parameters = [*leaves(operands)]
        else:
            parameters = [p for p in operands if p.is_leaf and p.requires_grad and not torch.is_grad_enabled()]
        if parameters:
            cuts[_Cut(call.chain, tuple(parameters))] = None
        results = [t for t in tensors_among((call.result,), {}) if not any(t is operand for operand in operands)]
        self.cuts.update((id(result), (result, tuple(cuts))) for result in results if cuts)

    def remarks(self) -> Iterator[Remark]:
        """Yield the findings of a run at its end."""
        own = {key: parameter for held in self.optimizers for key, parameter in held.own.items()}
        for held, name, parameter, older in self.newer.values():
            is_trained = older is not None and (id(older) in self.trained or older.grad is not None)
            if not {id(parameter)} & (own.keys() | self.read.keys()) and not is_trained:
                yield (ADDED_LATE if older is None else REPLACED).remark(held.span, parameter=name)
        yield from (NEVER_ZEROED.remark(span) for span in self.unzeroed)
        yield from self._of_cuts()

    def _of_cuts(self) -> Iterator[Remark]:
        """Yield a remark on each cut between a loss and a parameter in an optimizer that never gets a gradient."""
        names = {id(p): v + name for held in self.optimizers for _, v, ps in held.modules for name, p in ps.items()}
        stepped = {key for held in self.optimizers if held.has_stepped for key in held.own}
        for cut in self.lost:
            untrained = [p for p in cut.parameters if id(p) in stepped and id(p) not in self.trained and p.grad is None]
            name = next((names[id(p)] for p in untrained if id(p) in names), "")
            if name and cut.chain and not any(map(_is_in_branch, cut.chain)):
                yield CUT_OFF.remark(cut.chain[0], parameter=name)


def _may_zero(frame: FrameType | None, stop: CodeType) -> bool:
    """Return True if a function on the stack calls `zero_grad`, perhaps in another iteration of a loop."""
    while frame is not None and frame.f_code is not stop:
        if "zero_grad" in frame.f_code.co_names:
            return True
        frame = frame.f_back
    return False


def _is_in_branch(span: Span) -> bool:
    """Return True if an expression is in a branch of its file: another iteration of a loop may not take it."""
    try:
        tree = parse("".join(linecache.getlines(span.file)))
    except (SyntaxError, ValueError):
        return True
    branches = (node for node in ast.walk(tree) if isinstance(node, _BRANCHES))
    around = (node for node in branches if node.lineno <= span.line <= (node.end_lineno or 0))
    return not all(isinstance(node, ast.If) and is_main_guard(node) for node in around)
