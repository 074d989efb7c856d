"""Observe calls of a target in the code around it: run a caller on its own inputs, and watch the target's frame."""

from __future__ import annotations

import ast
import dis
import gc
import inspect
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import torch
from torch import nn

from fx_lsp.model import CallContext, Caller, Failure, TraceRequest, plain_work
from fx_lsp.tracer.inputs.evidence.body import find_function
from fx_lsp.tracer.inputs.plan.offer import Offer
from fx_lsp.tracer.inputs.plan.plans import Plan, ValuePlan, plan_of_made, value
from fx_lsp.tracer.inputs.plan.signatures import signature_of
from fx_lsp.tracer.program.load import find
from fx_lsp.tracer.run.call import children
from fx_lsp.tracer.run.callables import innermost
from fx_lsp.tracer.run.context import context_here
from fx_lsp.tracer.run.state import variables_around


@dataclass(frozen=True)
class Observed:
    """Hold the target as a caller showed it: its function (None for classes), and its call, if any.

    `guessed` names the arguments of the caller that were guessed.
    """

    function: Callable[..., Any] | None
    offer: Offer | None
    guessed: frozenset[str] = frozenset()


@dataclass
class Seen:
    """Hold the target's first call: its arguments, its receiver (`self`, None for functions) and the function that ran.

    `mode` is the receiver's `training` if it is a module in evaluation mode.
    """

    args: dict[str, Plan]
    receiver: Any
    function: Callable[..., Any] | None
    mode: ValuePlan | None
    context: CallContext


@dataclass
class Instance:
    """Hold an instance of the target's class with its constructor's arguments, created by the program or by a search.

    It is `is_whole` once every constructor that runs on it has ended, including those of subclasses.
    """

    receiver: Any
    args: dict[str, Plan]
    by_program: bool
    is_whole: bool = False


class Reached(BaseException):
    """Unwinds the stack once the target was entered: there is nothing more to observe. No `except Exception`
    stops it.
    """


@dataclass
class Watcher:
    """Watch every Python call for that of the target.

    `code` is the target's if it is known beforehand; `constructed` are instances of its `owner` by their ids. `site` is
    the file whose line is reported if that is not the target's `file`, and `shown` its displayed path; with `stop`,
    Reached is raised instead of running the target.
    """

    file: str
    matches: Callable[[FrameType], bool]
    code: CodeType | None = None
    owner: type | None = None
    seen: Seen | None = None
    constructed: dict[int, Instance] = field(default_factory=dict[int, "Instance"])
    site: str = ""
    shown: str = ""
    stop: bool = False
    is_nested: Callable[[CodeType], bool] | None = None

    @contextmanager
    def watching(self) -> Generator[None, None, None]:
        """Watch the calls inside."""
        before = sys.getprofile()
        sys.setprofile(self._event)
        try:
            yield
        finally:
            sys.setprofile(before)

    def look_inside(self, function: Callable[..., Any]) -> None:
        """Take the code of a nested target from that of its enclosing function, as it really ran."""
        if self.is_nested is not None:
            self.code = _inner_code(code_of(function), self.is_nested) or self.code

    def _event(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "return" and self.constructed and frame.f_code.co_name == "__init__":
            self._leave(frame)
        if event != "call" or frame.f_code.co_filename != self.file:
            return
        if self.owner is not None and frame.f_code is code_of(self.owner.__init__):
            receiver, args = arguments_of(frame, self._detail(frame), method=True)
            if isinstance(receiver, self.owner) and not has_symbols(frame):
                self.constructed[id(receiver)] = Instance(receiver, args, self._caller(frame) is not None)
        elif self.seen is None and self.matches(frame) and not is_symbolic_trace(frame):
            method = frame.f_code.co_varnames[:1] == ("self",)
            receiver, args = arguments_of(frame, self._detail(frame), method)
            evaluates = isinstance(receiver, nn.Module) and not receiver.training
            mode = value(False, "call site", self._detail(frame)) if evaluates else None
            context = context_here(frame, self._detail(frame))
            self.seen = Seen(args, receiver, function_of(frame.f_code, frame.f_locals), mode, context)
            if self.stop:
                raise Reached

    def _leave(self, frame: FrameType) -> None:
        """Record whether a constructor ended or raised."""
        receiver = frame.f_locals.get(next(iter(frame.f_code.co_varnames), ""))
        instance = self.constructed.get(id(receiver))
        if instance is not None and instance.receiver is receiver:
            instance.is_whole = dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith("RETURN")

    @property
    def _constructor(self) -> Callable[..., Any] | None:
        return self.owner.__init__ if self.owner is not None else None

    def _caller(self, frame: FrameType) -> FrameType | None:
        """Return the frame of the program that a call comes from; None for a call that the search makes."""
        caller = frame.f_back
        while caller is not None and caller.f_code.co_filename != (self.site or self.file):
            caller = caller.f_back
        return caller

    def _line(self, frame: FrameType) -> int:
        return (self._caller(frame) or frame).f_lineno

    def _detail(self, frame: FrameType) -> str:
        return f"{self.shown}:{self._line(frame)}" if self.shown else f"line {self._line(frame)}"

    def observed(self, result: Any) -> Observed:
        """Return the observation; `result` is the caller's return value, which may be the target or contain it."""
        if self.seen is None:
            function = function_of(self.code, result=result) if self.code is not None else None
            return Observed(function, self._made())
        receiver, function = self.seen.receiver, self.seen.function
        instance = self.constructed.get(id(receiver))
        init = instance.args if instance is not None and instance.receiver is receiver else None
        if init is not None:
            init = beside_defaults(init, self._constructor)
        args = beside_defaults(self.seen.args, function)
        return Observed(function, Offer(args, init, receiver, mode=self.seen.mode, context=self.seen.context))

    def made(self, failure: Failure) -> Observed | Failure:
        """Return the constructor call of the target's class by a failed caller; the failure if there was none."""
        offer = self._made()
        return failure if offer is None else Observed(None, offer)

    def _made(self) -> Offer | None:
        """Return the last constructor call of the target's class by the program, if no instance was called.

        A module is constructed again with the arguments. Any other object is used as it is.
        """
        for instance in reversed(self.constructed.values()):
            if instance.by_program:
                is_kept = instance.is_whole and not isinstance(instance.receiver, nn.Module)
                init = beside_defaults(instance.args, self._constructor)
                return Offer({}, init, instance.receiver if is_kept else None)
        return None


def beside_defaults(plans: dict[str, Plan], function: Callable[..., Any] | None) -> dict[str, Plan]:
    """Return the same plans; those equal to the parameter's default get that source."""
    signature = signature_of(function) if function is not None else None
    plans_by_name = dict(plans)
    for name, parameter in signature.parameters.items() if signature is not None else ():
        plan, default = plans.get(name), parameter.default
        if not isinstance(plan, ValuePlan) or default is inspect.Parameter.empty:
            continue
        if plan.make() is default:
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


def watcher(request: TraceRequest, module: ModuleType, tree: ast.Module) -> Watcher:
    """Return a watcher for the request's target in a module that has run a caller's slice."""
    try:
        target = find(module, request.name)
    except AttributeError:
        return _nested_watcher(request, module, tree)
    if not isinstance(target, type):
        code, bound = code_of(target), _bound(target)
        owner = find(module, request.name.rpartition(".")[0]) if request.kind == "method" else None
        owner = owner if isinstance(owner, type) else None
        return Watcher(request.file, lambda frame: frame.f_code is code and _given(frame, bound), code, owner)
    kind, forward = target, code_of(getattr(target, "forward", None))

    def matches(frame: FrameType) -> bool:
        return frame.f_code is forward and isinstance(frame.f_locals.get("self"), kind)

    return Watcher(request.file, matches, owner=kind)


def _bound(target: Any) -> Mapping[str, Any]:
    """Return the arguments that a `functools.partial` binds, which distinguish its calls from others of the same
    function.
    """
    signature = signature_of(target.func) if isinstance(target, partial) else None
    return signature.bind_partial(*target.args, **target.keywords).arguments if signature is not None else {}


def _given(frame: FrameType, arguments: Mapping[str, Any]) -> bool:
    return all(frame.f_locals.get(name) is value for name, value in arguments.items())


def _nested_watcher(request: TraceRequest, module: ModuleType, tree: ast.Module) -> Watcher:
    """Return a watcher for a function that its enclosing function creates at each run; its code is always the same."""
    node = find_function(tree, request.name)
    lines = {node.lineno, *(d.lineno for d in node.decorator_list)} if node is not None else set[int]()
    name = request.name.rpartition(".")[2]

    def is_it(code: CodeType) -> bool:
        return code.co_name == name and code.co_firstlineno in lines

    outer: Any = module
    for part in request.name.split(".")[:-1]:
        outer = getattr(outer, part, outer)
    code = _inner_code(code_of(outer), is_it)
    return Watcher(request.file, lambda frame: is_it(frame.f_code), code, is_nested=is_it)


def code_of(function: Any) -> CodeType | None:
    """Return the code of the function below its decorators; None without any."""
    return getattr(innermost(function), "__code__", None)


def _inner_code(code: CodeType | None, is_it: Callable[[CodeType], bool]) -> CodeType | None:
    for constant in code.co_consts if code is not None else ():
        if isinstance(constant, CodeType):
            inner = constant if is_it(constant) else _inner_code(constant, is_it)
            if inner is not None:
                return inner
    return None


def caller_request(request: TraceRequest, caller: Caller, seconds: float) -> TraceRequest:
    """Return the request to resolve a caller's own inputs. A nested function keeps its enclosing ones."""
    return replace(
        request,
        name=caller.name,
        kind=caller.kind,
        sliced=caller.sliced,
        given=(),
        previous=(),
        callers=tuple(around for around in request.callers if caller.name.startswith(f"{around.name}.")),
        sites=(),
        seconds=seconds,
        work=plain_work(request.work),
    )


def function_of(code: CodeType, variables: Mapping[str, Any] | None = None, result: Any = None) -> FunctionType | None:
    """Return the function that runs a code object, or None.

    If several runs of the enclosing code created several: the one that closes over these `variables`, or the one that
    is `result` or inside of it.
    """
    functions = [f for f in gc.get_referrers(code) if isinstance(f, FunctionType) and f.__code__ is code]
    returned = {id(result), *(id(item) for _, item in children(result))}
    chosen = [f for f in functions if id(f) in returned or (variables is not None and _sees(f, variables))]
    return (chosen or functions or [None])[-1]


def _sees(function: FunctionType, variables: Mapping[str, Any]) -> bool:
    around = variables_around(function).items()
    return all(name in variables and value is variables[name] for name, value in around)
