"""An engine with tracers that answer at once, or when the test lets them; and what an outcome says."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fx_lsp.errors import WorkerStartError
from fx_lsp.model import (
    Failure,
    Node,
    ObservedValue,
    Outcome,
    Span,
    Stage,
    StageInfo,
    Trace,
    TraceReply,
    TraceRequest,
    WorldRequest,
)
from fx_lsp.tracing.engine import Engine, EngineSettings, EngineStatus, FileState
from fx_lsp.tracing.workers.channels import EarlyReply
from fx_lsp.tracing.workers.find_python import Interpreter
from fx_lsp.tracing.workers.interpreter import Backend
from fx_lsp.wire import encode_stage


class Tracers:
    """Stands for processes: `answer` decides what each request gives; without `gate` set, requests wait."""

    def __init__(self, answer: "Callable[[TraceRequest], TraceReply] | None" = None) -> None:
        self.answer = answer or traced
        self.started = 0
        self.asked: list[str] = []
        self.ended: list[str] = []
        self.requests: list[TraceRequest] = []
        self.first: Callable[[TraceRequest], TraceReply] | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.pid: int | None = None

    @property
    def ready(self) -> bool:
        return self.pid is not None

    async def start(self) -> None:
        self.started += 1
        await asyncio.sleep(0.02)
        self.pid = self.started

    async def run(
        self,
        request: TraceRequest,
        seconds: float | None = None,
        early: EarlyReply | None = None,
        world: WorldRequest | None = None,
    ) -> TraceReply:
        self.asked.append(request.name)
        self.requests.append(request)
        try:
            if early is not None and self.first is not None:
                early(replace(self.first(request), final=False))
            await self.gate.wait()
            return self.answer(request)
        except asyncio.CancelledError:
            self.ended.append(request.name)
            raise

    resting = False

    def touch(self) -> None: ...

    def preload(self, packages: Sequence[str]) -> None: ...

    async def rehearse(self, graph: bytes, request: TraceRequest) -> None: ...

    async def close(self) -> None:
        self.pid = None


def traced(request: TraceRequest) -> TraceReply:
    line = next(n for n, text in enumerate(request.sliced.split("\n"), 1) if "return" in text)
    span = Span(request.file, line, 11, line, 20)
    stage = Stage("forward", (Node("relu", "call_function", "aten.relu", spans=(span,)),))
    value = ObservedValue(span, "", "f32[2]")
    trace = Trace(request.name, (), (StageInfo("forward", 1, 1),), (), (value,), (), 0.1, "2.13")
    return TraceReply(trace, {"forward": encode_stage(stage)})


class Bench:
    def __init__(self, tmp_path: Path) -> None:
        self.file = str(tmp_path / "m.py")
        self.cache = str(tmp_path / "cache" / "traces.sqlite3")
        self.tracers: Any = Tracers()
        self.updates: list[str] = []
        self.statuses: list[EngineStatus] = []
        self.engines: list[Engine] = []
        self.probe_error: WorkerStartError | None = None

    def engine(self, **settings: object) -> Engine:
        async def probe(python: str) -> Interpreter:
            if self.probe_error:
                raise self.probe_error
            return Interpreter(python, "3.11", "2.13", "identity of python")

        backend = Backend(lambda *_: "python", probe, lambda *_: self.tracers, forks=True)
        chosen = replace(EngineSettings(cache_path=self.cache), **settings)
        engine = Engine(chosen, self.updates.append, self.statuses.append, backend)
        self.engines.append(engine)
        return engine

    def begun(self, text: str, **settings: object) -> Engine:
        """Return an engine that has the file open with this text."""
        engine = self.engine(**settings)
        engine.open(self.file, text, ())
        return engine

    async def opened(self, text: str, **settings: object) -> Engine:
        """Return an engine that has traced the file with this text."""
        engine = self.begun(text, **settings)
        await self.quiet(engine)
        return engine

    async def edit(self, engine: Engine, text: str) -> None:
        """Let the file have this text, and wait until it is traced."""
        engine.open(self.file, text, ())
        await self.quiet(engine)

    def state(self, engine: Engine) -> FileState:
        state = engine.state(self.file)
        assert state is not None
        return state

    async def quiet(self, engine: Engine) -> None:
        while not (self.statuses and self.statuses[-1].quiescent and not engine.busy):
            await asyncio.sleep(0.005)


def inputs(trace: Trace) -> list[str]:
    """Return what the inputs of a trace are, and from where."""
    return [f"{i.name}: {i.spec} ({', '.join(filter(None, (i.source, i.detail)))})" for i in trace.inputs]


def described(outcome: Outcome) -> object:
    """Return what an outcome says, but for where its files are, and how long it took."""
    if isinstance(outcome, Failure):
        return outcome.kind, outcome.message, outcome.span and replace(outcome.span, file="")
    return inputs(outcome), [(s.name, s.ops) for s in outcome.stages], outcome.outputs
