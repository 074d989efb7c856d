"""Record, inside the user's program under `fx-lsp record`, the arguments of the project's functions.

From Python 3.12 on `sys.monitoring` reports calls, and stops for functions that no longer matter; before, a profile or
trace function sees all. A line of JSON is in the file before the function that it describes runs: no crash loses it.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import threading
import time
import weakref
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import torch
from torch import nn

from fx_lsp.tracer.inputs.plan.argument_text import (
    argument_names,
    arguments_text,
    context_items,
    fingerprint,
    is_evaluating,
)
from fx_lsp.tracer.record.project_code import ProjectFiles, code_of, owner_of, qualified_name
from fx_lsp.tracer.run.context import fingerprint_here

TOOL = "fx-lsp record"
"""The number of this recorder in `sys.monitoring`."""
MAX_SIGNATURES = 8
"""The most distinct texts of one target."""
MAX_TEXT = 4000
"""The most characters of one text."""
WITHOUT_TENSORS = 32
"""The number of calls without a tensor after which a function counts as taking none."""
REPEATS = 16
"""The number of calls without news after which a function is ignored, if recording takes too much time."""
TIME_SHARE = 0.05
"""The share of the program's time that is too much."""
MAX_FINGERPRINTS = 256
"""The most calls of a function that are recognised without computing their texts."""
MAX_INSTANCES = 10_000
"""The most objects whose construction is remembered at a time."""

_SKIPPED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def start(settings: str, directory: str) -> None:
    """Record from now on. `settings` is the JSON of `fx-lsp record`; `directory` is the program's start directory."""
    chosen = json.loads(settings)
    files = ProjectFiles(chosen["root"], directory)
    recorder = Recorder(files, os.path.join(chosen["store"], chosen["run"]), chosen["command"])
    recorder.write({})
    if sys.version_info >= (3, 12):
        _monitor(recorder)
    else:
        _trace_calls(recorder)


def _monitor(recorder: Recorder) -> None:
    if sys.version_info >= (3, 12):
        monitoring = sys.monitoring
        tool = next(number for number in (4, 3, 5, 2, 1) if monitoring.get_tool(number) is None)

        def started(code: CodeType, offset: int) -> Any:
            if not recorder.wants(code):
                return monitoring.DISABLE
            values = sys._getframe(1).f_locals
            try:
                return None if recorder.called(code, values) else monitoring.DISABLE
            finally:
                if sys.version_info < (3, 13):
                    values.clear()  # the frame keeps this snapshot, which would keep the arguments alive

        monitoring.use_tool_id(tool, TOOL)
        monitoring.register_callback(tool, monitoring.events.PY_START, started)
        monitoring.set_events(tool, monitoring.events.PY_START)


def _trace_calls(recorder: Recorder) -> None:
    foreign = recorder.files.foreign

    def entered(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and (code := frame.f_code).co_filename not in foreign and recorder.wants(code):
            recorder.called(code, frame.f_locals)

    if sys.version_info < (3, 11) and sys.gettrace() is None:
        threading.settrace(entered)  # a profile function costs three times as much there
        sys.settrace(entered)
    else:
        threading.setprofile(entered)
        sys.setprofile(entered)


@dataclass(eq=False)
class _Function:
    """Hold a function of the project: its code, and the results of its calls so far.

    It references the code, so that no other has its identity. `owner` is the qualified name of its class; `quiet`
    counts the calls since the last new one; once `done`, calls are ignored.
    """

    code: CodeType
    file: str
    name: str
    owner: str | None
    parameters: tuple[str, ...]
    fingerprints: set[tuple[Any, ...]] = field(default_factory=set[tuple[Any, ...]])
    tensors: bool = False
    quiet: int = 0
    done: bool = False


@dataclass(eq=False)
class _Construction:
    """Hold an object, and the arguments of each `__init__` (by the code's identity) that has run for it."""

    reference: weakref.ref[Any]
    arguments: dict[int, str] = field(default_factory=dict[int, str])


class Recorder:
    """Decide which calls are new and write them to the file.

    Its methods may be called from any thread, and there is no lock, because a process that forks meanwhile would
    inherit it locked. Two threads at once write a line twice at worst.
    """

    def __init__(self, files: ProjectFiles, path: str, command: str) -> None:
        self.files = files
        self._path = path
        self._command = command
        self._functions: dict[int, _Function] = {}
        self._seen: dict[tuple[str, str], set[str]] = {}
        self._constructions: dict[int, _Construction] = {}
        self._busy: set[int] = set()
        self._began = time.perf_counter()
        self._spent = 0.0
        self._off = False

    def wants(self, code: CodeType) -> bool:
        """Return True if calls of `code` may still show something new."""
        file = self.files.relative(code.co_filename)
        if file is None or self._off:
            return False
        function = self._functions.get(id(code))
        if function is None:
            function = self._functions[id(code)] = _look_at(code, file)
        return not function.done

    def called(self, code: CodeType, values: dict[str, Any]) -> bool:
        """Record a call of a wanted `code` with its arguments; return True if the next call is wanted."""
        function, thread = self._functions[id(code)], threading.get_ident()
        if thread in self._busy or torch._C._is_tracing():
            return True
        started = time.perf_counter()
        self._busy.add(thread)
        try:
            if code.co_name == "__init__" and function.owner is not None:
                self._note_construction(function, values)
            else:
                mark = fingerprint(function.parameters, values)
                mark = mark and (*mark, is_evaluating(values.get(function.parameters[0])), fingerprint_here())
                if mark is not None and mark in function.fingerprints:
                    function.quiet += 1
                else:
                    self._note_call(function, values)
                    if mark is not None and len(function.fingerprints) < MAX_FINGERPRINTS:
                        function.fingerprints.add(mark)
        except RecursionError:
            pass  # the program's own error, which it raises a moment later
        except Exception as error:
            self._off = True
            sys.stderr.write(f"fx-lsp record: process {os.getpid()} is no longer recorded: {error!r}\n")
        finally:
            self._busy.discard(thread)
            now = time.perf_counter()
            self._spent += now - started
        if function.quiet >= REPEATS and self._spent > TIME_SHARE * (now - self._began):
            function.done = True
        return not (function.done or self._off)

    def write(self, line: dict[str, str]) -> None:
        """Append one line to the file of this process."""
        data = json.dumps({**line, "command": self._command}) + "\n"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        descriptor = os.open(f"{self._path}-{os.getpid()}.jsonl", flags, 0o600)
        try:
            os.write(descriptor, data.encode())
        finally:
            os.close(descriptor)

    def _note_construction(self, function: _Function, values: dict[str, Any]) -> None:
        instance = values.get(function.parameters[0])
        key = id(instance)
        if not isinstance(instance, nn.Module):
            function.quiet += 1
            function.done = function.quiet >= WITHOUT_TENSORS
        construction = self._constructions.get(key)
        if construction is None or construction.reference() is not instance:
            if len(self._constructions) >= MAX_INSTANCES:
                return
            try:
                construction = _Construction(weakref.ref(instance, lambda gone: self._forget(key, gone)))
            except TypeError:
                return
            self._constructions[key] = construction
        text, _ = arguments_text(function.code, function.parameters[1:], values)
        construction.arguments.setdefault(id(function.code), text)

    def _forget(self, key: int, reference: weakref.ref[Any]) -> None:
        construction = self._constructions.get(key)
        if construction is not None and construction.reference is reference:
            del self._constructions[key]

    def _note_call(self, function: _Function, values: dict[str, Any]) -> None:
        file, name, names, construction = function.file, function.name, function.parameters, None
        first = values.get(names[0])
        owner = owner_of(first, function.owner, function.code.co_name) if function.owner is not None else None
        is_forward = False
        if owner is not None:
            names = names[1:]
            if isinstance(first, nn.Module) and function.code.co_name == "forward":
                is_forward = True
                owner, file = self._called_class(first, owner, function)
                name = _dotted(owner.__qualname__)
            construction = self._construction(first, owner)
        text, tensors = arguments_text(function.code, names, values)
        function.quiet += 1
        if not tensors:
            function.done = not function.tensors and function.quiet >= WITHOUT_TENSORS
            return
        function.tensors = True
        init = [] if construction is None else [f"init({construction})"]
        text = ", ".join((*init, *context_items(first if owner is not None else None), text))
        seen = self._seen.setdefault((file, name), set())
        if len(seen) >= MAX_SIGNATURES:
            function.done = not is_forward  # the forward of a base class may still run for another class
            return
        if text in seen or len(text) > MAX_TEXT:
            return
        seen.add(text)
        function.quiet = 0
        self.write({"file": file, "name": name, "text": text})

    def _called_class(self, module: nn.Module, owner: type, function: _Function) -> tuple[type, str]:
        """Return the class of a running `forward`, and its file: the module's own, unless a subclass called this one
        through `super()`.
        """
        cls = type(module)
        forward = next((vars(k)["forward"] for k in cls.__mro__ if "forward" in vars(k)), None)
        if code_of(forward) is function.code:
            file = self.files.relative(getattr(sys.modules.get(cls.__module__), "__file__", None) or "")
            if file is not None:
                return cls, file
        return owner, function.file

    def _construction(self, instance: Any, owner: type) -> str | None:
        """Return the constructor arguments of an `owner` like `instance`, as text; None if they are unknown."""
        construction = self._constructions.get(id(instance))
        if construction is None or construction.reference() is not instance:
            return None
        constructor = next((vars(k)["__init__"] for k in owner.__mro__ if "__init__" in vars(k)), None)
        return construction.arguments.get(id(code_of(constructor)))


def _look_at(code: CodeType, file: str) -> _Function:
    parameters = argument_names(code)
    name = qualified_name(code)
    owner = name.rpartition(".")[0]
    is_method = bool(owner) and not owner.endswith("<locals>")
    unwanted = not parameters or code.co_name.startswith("<") or bool(code.co_flags & _SKIPPED)
    return _Function(code, file, _dotted(name), owner if is_method else None, parameters, done=unwanted)


def _dotted(qualified: str) -> str:
    return qualified.replace(".<locals>", "")
