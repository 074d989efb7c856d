"""The real server process on an engine that knows its answers: `python fake_engine.py`.

A line `def f(x): return x + 1` is a target whose outcome is made from its own text. A body that says `fail` fails, one
that says `partly` does so after an operation, `guess` finds no inputs, `slow` is never traced, and `bug` raises in the
engine; the graphs of one that says `cold` are decoded when they are asked for. One that
says `fail` and `blames` mentions line 1 in its message. One that says `if y` does not reach what stands before it, and
has a variant that does not either.
"""

import asyncio
import re
import sys
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from fx_lsp.model import (
    Failure,
    InputSpec,
    NamedPlace,
    Node,
    ObservedValue,
    Operand,
    Outcome,
    Pass,
    Remark,
    Span,
    Stage,
    StageInfo,
    Target,
    TargetVariant,
    Trace,
    Unreached,
    known_trace,
)
from fx_lsp.server.app import serve
from fx_lsp.tracing.engine import Engine, EngineSettings, EngineStatus, FileState, TargetState
from fx_lsp.tracing.open_file import TraceProgress

OPENED = re.compile(r"open\(\"(.*?)\"\)")
LINE = re.compile(r"^def (\w+)\(x\): return (.*)$", re.MULTILINE)


class FakeEngine:
    """Answers at once, after one turn of the loop; a body that says `slow` is never traced."""

    def __init__(
        self, settings: EngineSettings, on_update: Callable[[str], None], on_status: Callable[[EngineStatus], None]
    ) -> None:
        self.settings = settings
        self.on_update = on_update
        self.on_status = on_status
        self.states: dict[str, FileState] = {}
        self.opened = 0
        self.cancelled = 0
        self.decoded: set[str] = set()
        self.timer: asyncio.TimerHandle | None = None

    def open(self, file: str, text: str, roots: tuple[str, ...]) -> None:
        self.opened += 1
        print("printed by", "the engine", flush=True)
        before, broken, _ = text.partition("def def")
        line = before.count("\n") + 1
        syntax = Failure("syntax", "invalid syntax", Span(file, line, 0, line, 1)) if broken else None
        self.states[file] = FileState(file, text, tuple(_states(file, text)), syntax)
        if self.timer is not None:
            self.timer.cancel()
        self.timer = asyncio.get_running_loop().call_later(0.05, self._traced, file, roots)

    def _traced(self, file: str, roots: tuple[str, ...]) -> None:
        pending = any(t.pending for t in self.states[file].targets)
        message = f"opened {self.opened} times in {', '.join(roots)}; seconds {self.settings.limits.seconds}"
        self.on_status(EngineStatus("ok", not pending, message))
        self.on_update(file)

    def close(self, file: str) -> None:
        self.states.pop(file, None)

    def all_dependencies(self) -> set[str]:
        """The files that bodies open, by their names in quotes."""
        texts = {file: state.text for file, state in self.states.items()}
        return {f"{Path(file).parent}/{name}" for file, text in texts.items() for name in OPENED.findall(text)}

    def focus(self, file: str, line: int) -> None:
        pass

    def state(self, file: str) -> FileState | None:
        state = self.states.get(file)
        if state is not None and "bug" in state.text:
            raise RuntimeError("a bug in the engine")
        return state

    async def stored(self, file: str, text: str, roots: tuple[str, ...]) -> FileState | None:
        return FileState(file, text, tuple(_states(file, text)), None)

    def _target(self, file: str, name: str) -> TargetState | None:
        state = self.states.get(file)
        return None if state is None else next((t for t in state.targets if t.target.name == name), None)

    async def targets(self, file: str) -> tuple[Target, ...] | Failure:
        known = self.states.get(file)
        if known is None:
            return Failure("inputs", f"{file} is not open")
        return known.syntax or tuple(state.target for state in known.targets)

    async def outcome(self, file: str, name: str, work: str = "", final: bool = False) -> Outcome:
        known = self._target(file, name)
        if (syntax := self.states[file].syntax if file in self.states else None) is not None:
            return syntax
        if known is None:
            return Failure("inputs", f"there is no target {name}")
        try:
            while known.outcome is None:
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            self.cancelled += 1
            self.on_status(EngineStatus("ok", True, f"cancelled waits: {self.cancelled}"))
            raise
        return known.outcome

    async def stage(self, file: str, name: str, stage: str, work: str = "") -> Stage | Failure:
        self.decoded.add(name)
        return self.stage_now(file, name, stage) or Failure("unsupported", f"{name} has no {stage} graph")

    def stage_now(self, file: str, name: str, stage: str, work: str = "") -> Stage | None:
        known = self._target(file, name)
        if known is None or known.outcome is None or ("cold" in (known.key or "") and name not in self.decoded):
            return None
        trace = known_trace(known.outcome)
        return _stage(trace, stage) if trace is not None and trace.info(stage) is not None else None

    def known(self, file: str, name: str, work: str) -> Outcome | None:
        return None

    def passes(self, file: str) -> tuple[Pass, ...]:
        return ()

    def recent(self, file: str) -> list[Target]:
        return [state.target for state in self.states[file].targets] if file in self.states else []

    def plan(self, file: str, name: str) -> None:
        return None

    def remarks(self, file: str) -> list[Remark]:
        return []

    def forget(self, file: str, name: str, work: str) -> None:
        pass

    def saved(self, file: str) -> None:
        pass

    def changed_on_disk(self, files: Collection[str]) -> None:
        pass

    def cancel_all(self) -> None:
        self.on_status(EngineStatus("ok", True, "cancelled"))

    async def restart(self) -> None:
        for state in tuple(self.states.values()):
            self.open(state.file, state.text, ())

    async def configure(self, settings: EngineSettings) -> None:
        self.settings = settings

    async def shutdown(self) -> None:
        print("the engine is down", file=sys.stderr, flush=True)


def _states(file: str, text: str) -> list[TargetState]:
    found: list[TargetState] = []
    for match in LINE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        size = len(match.group().encode())
        name, body = match.groups()
        target = Target(
            file, name, "function", Span(file, line, 4, line, 4 + len(name)), Span(file, line, 0, line, size)
        )
        slow = "slow" in body
        outcome = None if slow else _outcome(target, body, size)
        found.append(TargetState(target, outcome, TraceProgress.TRACING if slow else TraceProgress.TRACED, key=body))
    return found


def _outcome(target: Target, body: str, size: int) -> Outcome:
    place = Span(target.file, target.span.line, size - len(body.encode()), target.span.line, size)
    inputs = (InputSpec("x", "f32[2, 3]", "search", guessed=True),)
    called = (InputSpec("x", "f32[2, 3]", "call site", "line 1"),)
    if "fail" in body:
        ran = ObservedValue(place, "return", "f32[2, 3]")
        partial = Trace(
            target.id,
            inputs,
            (StageInfo("torch", 1, 3, "as written, up to the failure"),),
            (),
            (ran,),
            (),
            0.0,
            "2.13.0",
        )
        known = partial if "partly" in body else None
        if "blames" in body:
            first = Span(target.file, 1, 0, 1, 1)
            message = "sizes do not fit; line 1: made here"
            return Failure("shape", message, place, "", "error", inputs=called, mentions=(NamedPlace("line 1", first),))
        return Failure("shape", "sizes do not fit", place, "write the shapes down", "error", partial=known)
    if "guess" in body:
        return Failure("inputs", "no inputs were found", inputs=(InputSpec("x", "f32[2, 3]", "search", guessed=True),))
    returned = ObservedValue(place, "return", "f32[2, 3]")
    trace = Trace(target.id, inputs, (StageInfo("inference", 1, 3),), (), (returned,), ("f32[2, 3]",), 0.1, "2.13.0")
    if " if y" not in body:
        return trace
    skipped = replace(place, end_col=place.col + body.index(" if y"))
    unreached = Unreached(skipped, "condition", None, False, (Operand("y", "None"),))
    return replace(trace, unreached=(unreached,), variants=(TargetVariant("y"),))


def _stage(trace: Trace, name: str) -> Stage:
    place = (trace.values[0].span,)
    nodes = (
        Node("x", "placeholder", "x", users=("y",), spec="f32[2, 3]"),
        Node(
            "y", "call_function", "aten.add.Tensor", ("x", "1"), ("x",), ("output",), "f32[2, 3]", place, moved_bytes=48
        ),
        Node("output", "output", "output", ("y",), ("y",)),
    )
    return Stage(name, nodes)


def make(settings: EngineSettings, on_update: Callable[[str], None], on_status: Callable[..., Any]) -> Engine:
    return cast("Engine", FakeEngine(settings, on_update, on_status))


if __name__ == "__main__":
    sys.exit(serve(make, trust_always=True))
