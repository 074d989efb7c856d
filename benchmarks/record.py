"""How much slower a training step is while it is recorded. A program: `record.py [ROUNDS]`.

Recorded and other steps take turns in one process, so that both meet the same machine; medians are printed.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))

from targets import training

from fx_lsp.tracer.record import recorder

STEPS = 5
"""Steps of one kind in a row."""


def step_of(model: Any) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        training.loss_of(model(model.example)).backward()
        optimizer.step()

    return step


def switches() -> tuple[Callable[[], None], Callable[[], None]]:
    """Turn the recorder that has been started on and off."""
    if sys.version_info >= (3, 12):
        monitoring = sys.monitoring
        tool = next(number for number in range(6) if monitoring.get_tool(number) == recorder.TOOL)
        started = monitoring.events.PY_START
        return lambda: monitoring.set_events(tool, started), lambda: monitoring.set_events(tool, 0)
    trace, profile = sys.gettrace(), sys.getprofile()

    def turn(on: bool) -> None:
        sys.settrace(trace if on else None)
        sys.setprofile(profile if on else None)

    return lambda: turn(True), lambda: turn(False)


def measure(step: Callable[[], None], rounds: int) -> tuple[float, float]:
    """Median seconds of a step: without recording, with it."""
    on, off = switches()
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(rounds):
        for recording in (False, True):
            (on if recording else off)()
            for _ in range(STEPS):
                begun = time.perf_counter()
                step()
                seconds[recording].append(time.perf_counter() - begun)
    off()
    return statistics.median(seconds[False]), statistics.median(seconds[True])


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    torch.manual_seed(0)
    torch.set_num_threads(1)
    python = ".".join(map(str, sys.version_info[:2]))
    with tempfile.TemporaryDirectory() as store:
        settings = {"root": str(Path(__file__).parent), "store": store, "run": "benchmark", "command": "benchmark"}
        recorder.start(json.dumps(settings), str(Path.cwd()))
        print(f"one training step, Python {python}, torch {torch.__version__}, one thread")
        for model in (training.Transformer(), training.ResNet()):
            plain, recorded = measure(step_of(model), rounds)
            name = type(model).__name__
            print(f"{name:12} {plain * 1e3:7.2f} ms   recorded {recorded * 1e3:7.2f} ms   {recorded / plain:.2f} ×")
        lines = sum(len(file.read_text().splitlines()) - 1 for file in Path(store).iterdir())
        print(f"{lines} calls recorded")


if __name__ == "__main__":
    main()
