"""The server for `latency.py --gaps`: `python benchmarks/heartbeat.py FILE`.

It is the real server with one change: a task on its loop wakes up every few milliseconds and writes to FILE, one JSON
object a line, how late it was, and where the loop was at that time. Its tracers run `large_reply`, which returns the
graphs of a large function at once: the time of tracing is no part of the measurement.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fx_lsp.model import (
    InputSpec,
    Node,
    ObservedValue,
    Saved,
    Span,
    Stage,
    StageInfo,
    Trace,
    TraceReply,
    TraceRequest,
)
from fx_lsp.wire import encode_stage

OPERATIONS = 60_000
STATEMENTS = 200
TICK_SECONDS = 0.002
NOTED_SECONDS = 0.01
STAGES = ("forward", "backward", "joint")


def large_reply(request: TraceRequest) -> TraceReply:
    """Return the graphs of a loop of `STATEMENTS` additions, unrolled to `OPERATIONS` operations in each of them."""
    lines = [n for n, text in enumerate(request.source.split("\n"), 1) if "x = x + " in text]
    spans = [Span(request.file, line, 12, line, 21) for line in lines]
    stages = {name: encode_stage(_stage(name, spans)) for name in STAGES}
    trace = Trace(
        target=request.name,
        inputs=(InputSpec("x", "f32[8, 16]", "annotation"),),
        stages=tuple(StageInfo(name, OPERATIONS, OPERATIONS + 2) for name in STAGES),
        saved=tuple(Saved(f"add_{n}", "f32[8, 16]", 512, spans[n % len(spans)]) for n in range(0, OPERATIONS, 2)),
        values=tuple(ObservedValue(span, "x", "f32[8, 16]") for span in spans),
        outputs=("f32[8, 16]",),
        seconds=1.0,
        torch="2.13",
    )
    return TraceReply(trace, stages)


def _stage(name: str, spans: Sequence[Span]) -> Stage:
    names = ["x", *(f"add_{n}" for n in range(OPERATIONS)), "output"]
    operations = [
        Node(
            name=names[n + 1],
            op="call_function",
            target="aten.add.Tensor",
            args=(names[n], "1"),
            inputs=(names[n],),
            users=(names[n + 2],),
            spec="f32[8, 16]",
            spans=(spans[n % len(spans)],),
            flops=128,
            moved_bytes=1024,
        )
        for n in range(OPERATIONS)
    ]
    first = Node("x", "placeholder", "x", users=(names[1],), spec="f32[8, 16]")
    last = Node("output", "output", "output", args=(names[-2],), inputs=(names[-2],))
    return Stage(name, (first, *operations, last))


class Heartbeat:
    """Notes how late the loop is. A thread looks where the loop is when it has not come back in time."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("a", buffering=1)
        self._main = threading.main_thread().ident
        self._awake = time.perf_counter()
        self._where: list[str] = []
        self._collecting = self._collected = 0.0
        gc.callbacks.append(self._note_collection)

    def _note_collection(self, phase: str, info: object) -> None:
        now = time.perf_counter()
        if phase == "start":
            self._collecting = now
        else:
            self._collected += now - self._collecting

    async def beat(self) -> None:
        """Wake up for ever."""
        threading.Thread(target=self._watch, daemon=True).start()
        while True:
            starved, busy = _starved(), time.thread_time()
            self._awake = time.perf_counter()
            await asyncio.sleep(TICK_SECONDS)
            late = time.perf_counter() - self._awake - TICK_SECONDS
            busy = time.thread_time() - busy
            if late > NOTED_SECONDS:
                waited = _starved() - starved
                event = {
                    "at": time.time(),
                    "late": late,
                    "busy": busy,
                    "starved": waited,
                    "collected": self._collected,
                    "where": self._where,
                }
                self._file.write(json.dumps(event) + "\n")
            self._where, self._collected = [], 0.0

    def _watch(self) -> None:
        while True:
            time.sleep(TICK_SECONDS)
            if time.perf_counter() - self._awake > TICK_SECONDS + NOTED_SECONDS and not self._where:
                frames = sys._current_frames()
                self._where = [
                    " < ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in reversed(stack[-6:]))
                    for thread, stack in ((t, traceback.extract_stack(f)) for t, f in frames.items())
                    if thread != threading.get_ident() and (thread == self._main or _works(stack))
                ]


def _works(stack: traceback.StackSummary) -> bool:
    """Return True if a thread is not one that waits for work."""
    return stack[-1].name not in ("_worker", "wait", "read_frames", "readline") and "read" not in stack[-1].name


def _starved() -> float:
    """Return the seconds that the threads of this process have waited for a processor (Linux; elsewhere 0)."""
    waited = 0
    for task in Path("/proc/self/task").glob("*/schedstat"):
        try:
            waited += int(task.read_text().split()[1])
        except (OSError, ValueError, IndexError):
            continue
    return waited / 1e9


def main() -> int:
    """Serve one client."""
    from fx_lsp.server.app import serve
    from fx_lsp.tracing.engine import Engine
    from fx_lsp.tracing.workers.find_python import find_interpreter, probe
    from fx_lsp.tracing.workers.interpreter import Backend
    from fx_lsp.tracing.workers.launch import Launch
    from fx_lsp.tracing.workers.pool import Workers

    heartbeat, tasks = Heartbeat(Path(sys.argv[1])), []
    here = str(Path(__file__).parent)

    def make(settings: Any, on_update: Callable[[str], None], on_status: Callable[[Any], None]) -> Engine:
        def workers(python: str, limits: Any) -> Workers:
            return Workers(Launch(python, job="heartbeat:large_reply", paths=(here,), warm=False, limits=limits))

        tasks.append(asyncio.ensure_future(heartbeat.beat()))
        return Engine(settings, on_update, on_status, Backend(find_interpreter, probe, workers, True))

    return serve(make, trust_always=True)


if __name__ == "__main__":
    sys.exit(main())
