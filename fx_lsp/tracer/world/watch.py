"""Watch a program for the first call of each of many targets."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from torch import nn

from fx_lsp.model import WatchedFile
from fx_lsp.tracer.inputs.evidence.body import find_function
from fx_lsp.tracer.inputs.evidence.callers import (
    Instance,
    arguments_of,
    beside_defaults,
    code_of,
    function_of,
    has_symbols,
    is_symbolic_trace,
)
from fx_lsp.tracer.inputs.evidence.offers import Offer
from fx_lsp.tracer.inputs.plan.plans import value


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
class FirstCall:
    """A target as a program calls it first, or constructs it: the offer, and the module that the target is in there.

    `entered` are the functions of the watched files that ran before, by file and line.
    """

    target: WatchedTarget
    offer: Offer
    module: str
    entered: frozenset[tuple[str, int]]


@dataclass
class CallWatch:
    """Looks at the Python calls of a program `file` for those of targets; `report` is called with the first of each.

    `roots` are left out of the names of files in what is told of calls.
    """

    file: str
    roots: Sequence[str]
    files: Sequence[WatchedFile]
    report: Callable[[FirstCall], None]
    reached: set[WatchedTarget] = field(default_factory=set[WatchedTarget])
    constructed: dict[int, tuple[Instance, WatchedTarget]] = field(
        default_factory=dict[int, "tuple[Instance, WatchedTarget]"]
    )
    _entered: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
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
                node = find_function(tree, name) if kind in ("function", "method") else None
                if node is not None:
                    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                    self._by_line.setdefault((file.file, first), []).append(target)
                if target.owner:
                    self._by_owner.setdefault((file.file, target.owner), []).append(target)

    def made(self) -> Iterator[FirstCall]:
        """Yield the targets that were not called, with what the program constructed objects of their classes with."""
        for instance, target in reversed(self.constructed.values()):
            if instance.by_program and target not in self.reached:
                self.reached.add(target)
                owner: Any = type(instance.receiver)
                is_kept = instance.is_whole and not isinstance(instance.receiver, nn.Module)
                init = beside_defaults(instance.args, owner.__init__)
                offer = Offer({}, init, instance.receiver if is_kept else None)
                yield FirstCall(target, offer, self._module_of(owner, target), frozenset(self._entered))

    def entered(self) -> None:
        """Look at the function that calls this as its first statement."""
        frame = sys._getframe(1)
        code = frame.f_code
        targets = self._by_code.get(code)
        if targets is None:
            targets = self._by_code[code] = self._look_up(code)
        for target in targets:
            if target not in self.reached:
                self._enter(frame, target)
        if code.co_name in ("forward", "__init__") and code.co_varnames[:1] == ("self",):
            self._enter_method(frame)

    def left(self) -> None:
        """Take note that the constructor which calls this has come to its end."""
        receiver = sys._getframe(1).f_locals.get("self")
        instance, _ = self.constructed.get(id(receiver), (None, None))
        if instance is not None and instance.receiver is receiver:
            instance.is_whole = True

    def _look_up(self, code: CodeType) -> Sequence[WatchedTarget]:
        """Return the functions and methods that a code object is, which runs for the first time."""
        place = (code.co_filename, code.co_firstlineno)
        if any(code.co_filename == file.file for file in self.files):
            self._entered.add(place)
        name = code.co_name
        return [t for t in self._by_line.get(place, ()) if t.name.rpartition(".")[2] == name]

    def _enter_method(self, frame: FrameType) -> None:
        """Look at a call of a method that an object of a target's class may inherit from elsewhere."""
        receiver = frame.f_locals.get("self")
        kind: Any = type(receiver)
        key = (frame.f_code, kind)
        if key not in self._by_class:
            self._by_class[key] = [*self._of_class(frame.f_code, kind)]
        for target in self._by_class[key]:
            if frame.f_code.co_name == "forward":
                if target not in self.reached:
                    self._enter(frame, target)
            elif not has_symbols(frame):
                _, args = arguments_of(frame, self._detail(frame, target), method=True)
                by_program = self._caller(frame) is not None
                self.constructed[id(receiver)] = Instance(receiver, args, by_program), target

    def _of_class(self, code: CodeType, kind: type) -> Iterator[WatchedTarget]:
        for cls in kind.__mro__:
            module = sys.modules.get(cls.__module__)
            targets = self._by_owner.get((getattr(module, "__file__", None) or "", cls.__qualname__), ())
            wanted: Any = getattr(cls, code.co_name, None)
            if targets and code_of(wanted) is code:
                yield from (t for t in targets if code.co_name == "__init__" or t.kind == "module")

    def _enter(self, frame: FrameType, target: WatchedTarget) -> None:
        if is_symbolic_trace(frame) or has_symbols(frame):
            return
        self.reached.add(target)
        is_method = frame.f_code.co_varnames[:1] == ("self",)
        receiver, args = arguments_of(frame, self._detail(frame, target), is_method)
        function = function_of(frame.f_code, frame.f_locals)
        evaluates = isinstance(receiver, nn.Module) and not receiver.training
        mode = value(False, "call site", self._detail(frame, target)) if evaluates else None
        instance, _ = self.constructed.get(id(receiver), (None, None))
        init = None
        if instance is not None and instance.receiver is receiver:
            owner: Any = type(receiver)
            init = beside_defaults(instance.args, owner.__init__)
        offer = Offer(beside_defaults(args, function), init, receiver, mode=mode)
        module = self._module_of(type(receiver), target) if target.owner else frame.f_globals.get("__name__", "")
        self.report(FirstCall(target, offer, module, frozenset(self._entered)))

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

    def _detail(self, frame: FrameType, target: WatchedTarget) -> str:
        """Say where the program calls a target, as people say it."""
        line = (self._caller(frame) or frame).f_lineno
        if self.file == target.file:
            return f"line {line}"
        roots = [root for root in self.roots if self.file.startswith(root + os.sep)]
        shown = os.path.relpath(self.file, min(roots, key=len)) if roots else os.path.basename(self.file)
        return f"{shown}:{line}"
