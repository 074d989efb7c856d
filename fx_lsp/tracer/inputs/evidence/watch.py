"""Watch a program for the first call of each of many targets."""

from __future__ import annotations

import ast
import gc
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from types import CodeType, FrameType, FunctionType
from typing import Any, TypeAlias

import torch
from torch import nn
from torch._C._functorch import is_functorch_wrapped_tensor

from fx_lsp.model import WatchedFile
from fx_lsp.specs import TensorSpec
from fx_lsp.syntax import FunctionNode
from fx_lsp.tracer.compat import FakeTensor, FakeTensorMode
from fx_lsp.tracer.inputs.evidence.body import find_function
from fx_lsp.tracer.inputs.evidence.program_calls import has_absent
from fx_lsp.tracer.inputs.plan.argument_text import argument_names, arguments_text, context_items, is_evaluating
from fx_lsp.tracer.inputs.plan.offer import Offer
from fx_lsp.tracer.inputs.plan.plans import Plan, ValuePlan, located, plan_of_made, value
from fx_lsp.tracer.inputs.plan.signatures import signature_of
from fx_lsp.tracer.program.rewriting.edit import first_line
from fx_lsp.tracer.run.call import children
from fx_lsp.tracer.run.callables import innermost
from fx_lsp.tracer.run.context import context_here
from fx_lsp.tracer.run.state import names_seen_by, variables_around
from fx_lsp.tracer.run.tensors import make_tensor, spec_of

MAX_LATER, MAX_LATER_LOOKED_AT = 12, 256
"""The most different calls of a target that are noted besides its first one, and the most that are looked at."""
Rank: TypeAlias = "tuple[bool, bool]"
"""Whether a call has all its data, and whether it trains."""
BEST_RANK, NO_RANK = (True, True), (False, False)


@dataclass(frozen=True)
class WatchedTarget:
    """A target that a program may call: of `file`, by its qualified name."""

    file: str
    name: str
    kind: str

    @property
    def owner(self) -> str:
        """Return the qualified name of the class that it is, or is a method of; "" for a function."""
        return {"module": self.name, "method": self.name.rpartition(".")[0]}.get(self.kind, "")


@dataclass(frozen=True)
class ModuleState:
    """A module as it is at a call: its mode, its own parameters and buffers, and whether they require gradients.

    A program may change these on the way out of the call. Of a tensor inside `vmap` or `grad`, it is the spec of one
    part, and it is created again.
    """

    module: nn.Module
    training: bool
    tensors: tuple[tuple[dict[str, Any], str, torch.Tensor | TensorSpec, bool], ...]

    @classmethod
    def of(cls, module: nn.Module) -> ModuleState:
        """Return the present state of a module, without those inside of it."""
        tables = (module._parameters, module._buffers)
        named = [(table, name, tensor) for table in tables for name, tensor in table.items() if tensor is not None]
        tensors = ((table, name, _outside(tensor), tensor.requires_grad) for table, name, tensor in named)
        return cls(module, module.training, tuple(tensors))

    def restore(self, mode: FakeTensorMode) -> None:
        """Bring the module into this state, except for tensors of another `mode`, such as that of an export."""
        self.module.training = self.training
        for table, name, then, needs_gradient in self.tensors:
            if isinstance(then, FakeTensor) and then.fake_mode is not mode:
                continue
            if isinstance(then, TensorSpec):
                tensor = make_tensor(then)
                is_parameter = table is self.module._parameters
                table[name] = nn.Parameter(tensor, needs_gradient) if is_parameter else tensor
                continue
            table[name] = then
            if then.is_leaf and then.requires_grad != needs_gradient:
                then.requires_grad_(needs_gradient)


def _outside(tensor: torch.Tensor) -> torch.Tensor | TensorSpec:
    return replace(spec_of(tensor), strides=None) if is_functorch_wrapped_tensor(tensor) else tensor


def _states(values: Iterable[Any]) -> Iterator[ModuleState]:
    """Yield the states of the modules among values, and of those inside of them."""
    modules = {inner: None for value in values if isinstance(value, nn.Module) for inner in value.modules()}
    return map(ModuleState.of, modules)


def _receiver(frame: FrameType) -> Any:
    """Return the object whose method begins; None for a function."""
    return frame.f_locals.get("self") if frame.f_code.co_varnames[:1] == ("self",) else None


@dataclass(frozen=True)
class FirstCall:
    """A target as a program calls it first, or constructs it: the offer, and the module that the target is in there.

    `place` is where the function begins that was called, if one was. `line` is where the program calls it, and
    `init_line` where it constructs its object, in its own file as far as the call comes from there. Unless the call
    `is_complete`, some argument is a placeholder for missing data. `states` are those of its modules. One that `trains`
    records gradients, and is not of a module in evaluation mode. `function` is what was called, for a target that no
    name of the module leads to: a function in a function, or a step.
    """

    target: WatchedTarget
    offer: Offer
    module: str
    place: tuple[str, int] | None
    line: int
    init_line: int
    is_complete: bool = True
    states: tuple[ModuleState, ...] = ()
    trains: bool = True
    function: FunctionType | None = None

    def located(self, at_call: str, at_constructor: str) -> Offer:
        """Return the offer, which says where the program calls the target, and where it constructs its object."""
        offer = self.offer
        return replace(
            offer,
            args={name: located(plan, at_call) for name, plan in offer.args.items()},
            init=offer.init and {name: located(plan, at_constructor) for name, plan in offer.init.items()},
            mode=replace(offer.mode, detail=at_call) if offer.mode is not None else None,
            context=replace(offer.context, place=at_call) if offer.context is not None else None,
        )

    @property
    def rank(self) -> Rank:
        """Return how much it says about its target; nothing says more than a complete call that trains."""
        return self.is_complete, self.trains


@dataclass
class LaterCalls:
    """The calls of a target on the `receiver` of its first call, besides that: the lines of the program, by the text of
    the arguments as in a `# fx:` comment. Arguments equal to their `defaults` are left out.
    """

    receiver: Any
    defaults: Mapping[str, Any]
    lines: dict[str, int] = field(default_factory=dict[str, int])
    looked_at: int = 0


@dataclass
class Construction:
    """An object of the class of some targets with its constructor's arguments; `by_program` tells who constructs it.

    It `is_whole` once every constructor that runs on it has come to its end.
    """

    receiver: Any
    targets: Sequence[WatchedTarget]
    args: dict[str, Plan]
    line: int
    by_program: bool
    is_whole: bool = False


@dataclass
class CallWatch:
    """Looks at the calls of functions for those of targets; `report` is called with the first of each.

    It is called again with the first call that tells more: one that has its data, or that trains. Those of which no
    call can tell more are `final`, for the others `reported` has the rank of the last one. The program is `file`.
    `on_news` is called for each call with arguments that are new. Calls do not count while it `is_muted`.
    """

    file: str
    files: Sequence[WatchedFile]
    report: Callable[[FirstCall], None]
    on_news: Callable[[], None] = lambda: None
    is_muted: Callable[[], bool] = lambda: False
    final: set[WatchedTarget] = field(default_factory=set[WatchedTarget])
    reported: dict[WatchedTarget, Rank] = field(default_factory=dict[WatchedTarget, Rank])
    constructed: dict[int, Construction] = field(default_factory=dict[int, Construction])
    later: dict[WatchedTarget, LaterCalls] = field(default_factory=dict[WatchedTarget, LaterCalls])
    _steps: set[WatchedTarget] = field(default_factory=set[WatchedTarget])
    _by_line: dict[tuple[str, int], list[WatchedTarget]] = field(
        default_factory=dict[tuple[str, int], list[WatchedTarget]]
    )
    _by_owner: dict[tuple[str, str], list[WatchedTarget]] = field(
        default_factory=dict[tuple[str, str], list[WatchedTarget]]
    )
    _by_code: dict[CodeType, Sequence[WatchedTarget]] = field(default_factory=dict[CodeType, Sequence[WatchedTarget]])
    _by_class: dict[tuple[CodeType, type], Sequence[WatchedTarget]] = field(
        default_factory=dict[tuple[CodeType, type], Sequence[WatchedTarget]]
    )

    def __post_init__(self) -> None:
        for file in self.files:
            tree = ast.parse(file.source, file.file)
            for name, kind in file.targets:
                target = WatchedTarget(file.file, name, kind)
                self._steps |= {target} if kind == "step" else set()
                node = find_function(tree, name) if kind != "module" else None
                if node is not None:
                    self._by_line.setdefault((file.file, first_line(node)), []).append(target)
                if target.owner:
                    self._by_owner.setdefault((file.file, target.owner), []).append(target)

    def forget_calls(self) -> None:
        """Forget the calls so far, but for those of constructors."""
        self.final.clear()
        self.reported.clear()
        self.later.clear()

    def made(self) -> Iterator[FirstCall]:
        """Yield the targets that were not called, with what the program constructed objects of their classes with."""
        pairs = ((each, target) for each in reversed(self.constructed.values()) for target in each.targets)
        for construction, target in pairs:
            if construction.by_program and target not in self.final | self.reported.keys():
                self.final.add(target)
                receiver, owner = construction.receiver, type(construction.receiver)
                is_kept = construction.is_whole and not isinstance(receiver, nn.Module)
                init = beside_defaults(construction.args, owner.__init__)
                offer = Offer({}, init, receiver if is_kept else None)
                line = construction.line
                yield FirstCall(target, offer, self._module_of(owner, target), None, line, line)

    def entered(self, frame: FrameType) -> None:
        """Look at a function that begins."""
        if self.is_muted():
            return
        code = frame.f_code
        targets = self._by_code.get(code)
        if targets is None:
            targets = self._by_code[code] = self._look_up(code)
        for target in targets:
            self._enter_or_note(frame, target)
        if code.co_name in ("forward", "__init__") and code.co_varnames[:1] == ("self",):
            self._enter_method(frame)

    def left(self, frame: FrameType) -> None:
        """Take note that a constructor has come to its end."""
        receiver = frame.f_locals.get("self")
        construction = self.constructed.get(id(receiver))
        if construction is not None and construction.receiver is receiver:
            construction.is_whole = True

    def reached(self, frame: FrameType, name: str, step: FunctionType) -> None:
        """Look at a step, whose loop is about to begin."""
        target = WatchedTarget(frame.f_code.co_filename, name, "step")
        if target not in self.final and target in self._steps:
            self.final.add(target)
            self.on_news()
            module, line = frame.f_globals.get("__name__", ""), (self._caller(frame) or frame).f_lineno
            states = tuple(_states([*names_seen_by(step).values(), *(step.__kwdefaults__ or {}).values()]))
            offer = Offer({}, context=context_here(frame))
            place = (target.file, frame.f_code.co_firstlineno)
            self.report(FirstCall(target, offer, module, place, line, line, states=states, function=step))

    def _look_up(self, code: CodeType) -> Sequence[WatchedTarget]:
        """Return the functions and methods that a code object is, which runs for the first time."""
        place = (code.co_filename, code.co_firstlineno)
        name = code.co_name
        return [t for t in self._by_line.get(place, ()) if t.name.rpartition(".")[2] == name]

    def _enter_method(self, frame: FrameType) -> None:
        """Look at a call of a method that an object of a target's class may inherit from elsewhere."""
        receiver = frame.f_locals.get("self")
        kind: Any = type(receiver)
        key = (frame.f_code, kind)
        if key not in self._by_class:
            self._by_class[key] = [*self._of_class(frame.f_code, kind)]
        targets = self._by_class[key]
        if frame.f_code.co_name == "forward":
            for target in targets:
                self._enter_or_note(frame, target)
        elif targets and not has_symbols(frame):
            _, args = arguments_of(frame, "", method=True)
            caller = self._caller(frame)
            line = (caller or frame).f_lineno
            self.constructed[id(receiver)] = Construction(receiver, targets, args, line, caller is not None)

    def _of_class(self, code: CodeType, kind: type) -> Iterator[WatchedTarget]:
        for cls in kind.__mro__:
            module = sys.modules.get(cls.__module__)
            targets = self._by_owner.get((getattr(module, "__file__", None) or "", cls.__qualname__), ())
            wanted: Any = getattr(cls, code.co_name, None)
            if targets and code_of(wanted) is code:
                yield from (t for t in targets if code.co_name == "__init__" or t.kind == "module")

    def _enter_or_note(self, frame: FrameType, target: WatchedTarget) -> None:
        """Look at a call of a target: in full if it may tell more than earlier ones, else at its arguments."""
        if target not in self.final and not (is_symbolic_trace(frame) or has_symbols(frame)):
            trains = torch.is_grad_enabled() and not is_evaluating(_receiver(frame))
            if (True, trains) > self.reported.get(target, NO_RANK):
                self._enter(frame, target, trains)
                return
        self._note(frame, target)

    def _note(self, frame: FrameType, target: WatchedTarget) -> None:
        calls = self.later.get(target)
        if calls is None or calls.looked_at >= MAX_LATER_LOOKED_AT or len(calls.lines) >= MAX_LATER:
            return
        calls.looked_at += 1
        receiver = _receiver(frame)
        if receiver is not calls.receiver or is_symbolic_trace(frame) or has_symbols(frame):
            return
        passed = {n: v for n, v in frame.f_locals.items() if n not in calls.defaults or v is not calls.defaults[n]}
        text, _ = arguments_text(frame.f_code, argument_names(frame.f_code), passed)
        text = ", ".join((*context_items(receiver), text))
        if text not in calls.lines:
            calls.lines[text] = (self._caller(frame) or frame).f_lineno
            self.on_news()

    def _enter(self, frame: FrameType, target: WatchedTarget, trains: bool) -> None:
        code, is_method = frame.f_code, frame.f_code.co_varnames[:1] == ("self",)
        receiver, args = arguments_of(frame, "", is_method)
        function = function_of(code, frame.f_locals)
        mode = value(False, "call site") if is_evaluating(receiver) else None
        construction = self.constructed.get(id(receiver))
        init, line = None, (self._caller(frame) or frame).f_lineno
        if construction is not None and construction.receiver is receiver:
            init = beside_defaults(construction.args, type(receiver).__init__)
        context = context_here(frame)
        offer = Offer(beside_defaults(args, function), init, receiver, mode=mode, context=context)
        module = self._module_of(type(receiver), target) if target.owner else frame.f_globals.get("__name__", "")
        init_line = construction.line if construction is not None else line
        place = (code.co_filename, code.co_firstlineno)
        is_complete = not any(map(has_absent, (*offer.args.values(), *(offer.init or {}).values())))
        states = tuple(_states(frame.f_locals.values()))
        is_inner = target.kind in ("function", "step") and "." in target.name
        call = FirstCall(
            target, offer, module, place, line, init_line, is_complete, states, trains, function if is_inner else None
        )
        before = self.reported.get(target)
        if before is not None and call.rank <= before:
            return
        self.reported[target] = call.rank
        self.on_news()
        if is_complete and (target not in self.later or self.later[target].receiver is not receiver):
            self.later[target] = LaterCalls(receiver, defaults_of(function))
        if call.rank == BEST_RANK:
            self.final.add(target)
        else:
            self._note(frame, target)
        self.report(call)

    @staticmethod
    def _module_of(kind: type, target: WatchedTarget) -> str:
        """Return the module in which the class of a target is, as an object of it or of a subclass has it."""
        for cls in kind.__mro__:
            module = sys.modules.get(cls.__module__)
            if cls.__qualname__ == target.owner and getattr(module, "__file__", None) == target.file:
                return cls.__module__
        return ""

    def _caller(self, frame: FrameType) -> FrameType | None:
        """Return the frame of the program's own file that a call comes from, if it does."""
        caller = frame.f_back
        while caller is not None and caller.f_code.co_filename != self.file:
            caller = caller.f_back
        return caller


def defaults_of(function: Callable[..., Any] | None) -> dict[str, Any]:
    """Return the defaults of a function's parameters by name."""
    signature = signature_of(function) if function is not None else None
    parameters = signature.parameters.values() if signature is not None else ()
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}


def beside_defaults(plans: dict[str, Plan], function: Callable[..., Any] | None) -> dict[str, Plan]:
    """Return the same plans; those equal to the parameter's default get that source."""
    plans_by_name = dict(plans)
    for name, default in defaults_of(function).items():
        plan = plans.get(name)
        if isinstance(plan, ValuePlan) and plan.make() is default:
            plans_by_name[name] = value(default, "default")
    return plans_by_name


def has_symbols(frame: FrameType) -> bool:
    """Return True for a call with symbols, which a search makes to infer sizes."""
    return any(isinstance(value, torch.SymInt) for value in frame.f_locals.values())


def is_symbolic_trace(frame: FrameType) -> bool:
    """Return True for a call with proxies, with which a symbolic trace records calls."""
    return any(isinstance(value, torch.fx.Proxy) for value in frame.f_locals.values())


def arguments_of(frame: FrameType, detail: str, method: bool) -> tuple[Any, dict[str, Plan]]:
    """Return the receiver of a call (None for functions), and plans for its arguments."""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    names = list(code.co_varnames[:count])
    values = frame.f_locals
    receiver = values.get(names.pop(0)) if method and names else None
    plans = {name: plan_of_made(values[name], "call site", detail) for name in names if name in values}
    if code.co_flags & inspect.CO_VARARGS:
        plans[code.co_varnames[count]] = plan_of_made(values[code.co_varnames[count]], "call site", detail)
        count += 1
    if code.co_flags & inspect.CO_VARKEYWORDS:
        rest: dict[str, Any] = values[code.co_varnames[count]]
        plans.update({name: plan_of_made(value, "call site", detail) for name, value in rest.items()})
    return receiver, plans


def code_of(function: Any) -> CodeType | None:
    """Return the code of the function below its decorators; None without any."""
    return getattr(innermost(function), "__code__", None)


def function_of(code: CodeType, variables: Mapping[str, Any]) -> FunctionType | None:
    """Return the function that runs a code object; of several, one that closes over some `variables`; None without."""
    functions = [f for f in gc.get_referrers(code) if isinstance(f, FunctionType) and f.__code__ is code]
    return ([f for f in functions if _sees(f, variables)] or functions or [None])[-1]


def function_in(result: Any, file: str, definition: FunctionNode | None) -> FunctionType | None:
    """Return a function of a file with this definition: the `result` of a call, or one inside of it; else the last that
    there is; None without.
    """
    if definition is None:
        return None
    place_of = attrgetter("co_filename", "co_firstlineno", "co_name")
    place = (file, first_line(definition), definition.name)
    inside = [result, *(item for _, item in children(result))]
    every = (*inside, *reversed([item for item in gc.get_objects() if type(item) is FunctionType]))
    functions = (f for f in every if isinstance(f, FunctionType))
    return next((f for f in functions if place_of(f.__code__) == place), None)


def _sees(function: FunctionType, variables: Mapping[str, Any]) -> bool:
    around = variables_around(function).items()
    return all(name in variables and value is variables[name] for name, value in around)
