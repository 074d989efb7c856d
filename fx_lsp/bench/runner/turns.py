"""Set up the variants of one case, one after the other or in a race together, then measure them in turns."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fx_lsp.bench.runner.children import ChildError, VariantProcess
from fx_lsp.bench.runner.entries import RunningJob, VariantRun
from fx_lsp.measured import EAGER, Clock, KernelTime, LineTime, What

_CLOCKS: tuple[Clock, ...] = ("events", "wall", "graph")
"""The order of clocks: a CUDA graph whose capture fails may spoil a process, so it is last."""
STEPS = 6
"""The progress steps of timing a variant; its setup is one step."""
_TURNS = 3
"""The number of turns of each variant in a measurement, of which there are two."""
_RACE_CLOCKS: tuple[Clock, ...] = ("wall", "graph")
_RACE_SETUP = 0.6
"""The share of a race's time for setting up its variants."""
_MIN_SETUP_SECONDS, _MAX_TURN_SECONDS = 30.0, 120.0
_TURN_SECONDS = 1.0
"""The approximate seconds of a turn besides its samples."""
_OVER = "The job's time limit passed before everything was measured."
_ROOM = 2.0
"""The factor of the last variant's memory that has to be free for another one at the same time."""


@dataclass(frozen=True)
class Measurement:
    """Describe a measurement of all variants in turns: of `what`, by a clock, the first or second `half`.

    `memory` are the bytes that the arguments of one variant may take.
    """

    what: What
    clock: Clock
    half: int
    memory: int


def run_case(bench: RunningJob, entries: Sequence[VariantRun], what: Sequence[What], setups: int) -> list[str]:
    """Fill in the entries of a case; `setups` is the number of setups left in the whole job. Returns warnings."""
    if bench.job.race:
        _set_up_together(bench, entries, what)
        _measure(bench, [entry for entry in entries if entry.child is not None], what)
        return []
    groups, group, begun = 0, list[VariantRun](), bench.done
    waiting = sorted(entries, key=lambda e: "max-autotune" in e.variant)  # it may use the time that others left
    following: VariantProcess | None = None
    for number, entry in enumerate(waiting):
        if bench.left() <= 0:
            entry.error = _OVER
            continue
        child = following or bench.child()
        last = number + 1 == len(waiting)
        following = None if last else bench.child()  # it imports torch meanwhile
        seconds = _setup_seconds(bench, max(1, setups - number), len(waiting) * len(what))
        room = _set_up(bench, entry, child, what, seconds)
        if entry.child is not None:
            group.append(entry)
        if not room and not last:
            _measure(bench, group, what)
            groups, group = groups + 1, []
    if following is not None:
        following.kill()
    _measure(bench, group, what)
    bench.say("measured", begun + (1 + STEPS) * len(entries) - bench.done)
    if groups:
        return ["The GPU's memory was too small for all variants at once: some were not measured in alternation."]
    return []


def _set_up_together(bench: RunningJob, entries: Sequence[VariantRun], what: Sequence[What]) -> None:
    """Set up the entries of a race at the same time. Triton's configurations are timed again later, one by one."""
    seconds = _RACE_SETUP * bench.left()
    children = [bench.child() for _ in entries]
    with ThreadPoolExecutor(len(entries)) as pool:
        for entry, child in zip(entries, children, strict=True):
            pool.submit(_set_up, bench, entry, child, what, seconds)
    for child in (entry.child for entry in entries if entry.child is not None):
        with suppress(ChildError):  # its first measurement reports that
            child.ask({"do": "forget"}, _MIN_SETUP_SECONDS)


def _setup_seconds(bench: RunningJob, setups: int, measured: int) -> float:
    """Return the seconds for one of the setups left, with a reserve to measure so many times by each clock."""
    reserve = min(bench.left() / 2, measured * len(_CLOCKS) * 2 * (bench.job.sampling + _TURN_SECONDS))
    return max(1.0, min(max(_MIN_SETUP_SECONDS, (bench.left() - reserve) / setups), bench.left()))


def _set_up(bench: RunningJob, entry: VariantRun, child: VariantProcess, what: Sequence[What], seconds: float) -> bool:
    """Set an entry up in a process; return True if there is memory for another one."""
    title = bench.title(entry)
    bench.say(f"{title}: start", 0)
    started = time.monotonic()
    try:
        request = bench.setup_request(entry, what)
        answer: dict[str, Any] = child.ask(request, seconds, lambda text: bench.say(f"{title}: {text}"))
    except ChildError as error:
        child.kill()
        answer = {"error": str(error), "crashed": bench.left() > 0}
    entry.setup_seconds = time.monotonic() - max([started, *child.marks[:1]])  # the mark says that torch is imported
    bench.say(f"{title}: {'not run' if 'error' in answer else 'ready'}", 1)
    if "error" in answer:
        entry.error, entry.crashed = answer["error"], answer.get("crashed", False)
        child.kill()
        return True
    entry.right, entry.error, entry.warnings = True, answer["reason"], answer["warnings"]
    entry.clocks, entry.free = answer["clocks"], answer["free"]
    entry.wrong(answer["verdicts"])
    if not entry.clocks:
        child.kill()
        return True
    entry.child = child
    return answer["free"] > _ROOM * answer["peak"]


def _measure(bench: RunningJob, group: Sequence[VariantRun], what: Sequence[What]) -> None:
    """Measure the variants that are set up, in turns, and end them."""
    memory = min((e.free for e in group), default=0) // (2 * max(1, len(group)))
    allowed = _RACE_CLOCKS if bench.job.race else _CLOCKS
    clocks: list[Clock] = [c for c in allowed if any(c in e.clocks for e in group)]
    measurements = [Measurement(of, clock, half, memory) for clock in clocks for of in what for half in (0, 1)]
    begun = bench.done
    for number, measurement in enumerate(measurements):
        steps = begun + STEPS * len(group) * number // len(measurements) - bench.done
        told = f"timing {measurement.what} by {measurement.clock}, measurement {measurement.half + 1} of 2"
        bench.say(told, steps)
        if measurement.half and measurement.what == what[0]:
            bench.look()
        _measure_in_turns(bench, group, measurement)
    for entry in group:
        if entry.child is not None and entry.right:
            _profile(bench, entry, entry.child, what)
        entry.end()


def _measure_in_turns(bench: RunningJob, group: Sequence[VariantRun], measurement: Measurement) -> None:
    turns = 1 if bench.job.race else _TURNS
    for entry in [e for _ in range(turns) for e in group]:
        if entry.child is not None and measurement.clock in entry.clocks and entry.right:
            _turn(bench, entry, entry.child, measurement)


def _turn(bench: RunningJob, entry: VariantRun, child: VariantProcess, measurement: Measurement) -> None:
    what, clock, seconds = measurement.what, measurement.clock, bench.job.sampling / _TURNS
    request = {"do": "measure", "what": what, "clock": clock, "seconds": seconds, "bytes": measurement.memory}
    try:
        if bench.left() <= 0:
            raise ChildError(_OVER)
        answer = child.ask(request, min(_MAX_TURN_SECONDS, max(5.0, bench.left())))
    except ChildError as error:
        entry.end()
        if entry.samples:
            entry.warnings.append(str(error))
        else:
            entry.error, entry.crashed = str(error), bench.left() > 0
        return
    if "error" in answer:
        entry.clocks = [c for c in entry.clocks if c != clock]
        entry.warnings.append(f"{clock}: {answer['error']}")
        entry.error = "" if entry.clocks or entry.samples else answer["error"]
        entry.crashed = bool(entry.error)
        return
    entry.wrong(answer["verdicts"])
    if answer["wrong"] and entry.doubts:
        entry.wrong(answer["wrong"])  # once may be the judge's own error: there are many calls, and it is strict
    entry.doubts += answer["wrong"][:1]
    entry.said += answer["seconds"]
    entry.seen += child.marks[-1] - child.marks[-2]
    entry.samples.setdefault((what, clock), ([], []))[measurement.half].extend(answer["samples"])


def _profile(bench: RunningJob, entry: VariantRun, child: VariantProcess, what: Sequence[What]) -> None:
    """Time the kernels of a variant, and the lines of the original, if the job asks for them."""
    job, label = bench.job, bench.job.cases[entry.case].label
    for of in what if job.profile and entry.variant in (job.profiled or (entry.variant,)) else ():
        answer = _profiled(bench, entry, child, {"do": "profile", "what": of})
        if answer is None:
            break
        entry.kernels += [KernelTime(entry.variant, label, of, **row) for row in answer["kernels"]]
    if job.by_line and entry.variant == EAGER:
        request = {"do": "lines", "what": "both" if {"backward", "both"} & {*what} else "forward"}
        answer = _profiled(bench, entry, child, request) or {"lines": ()}
        entry.lines += [LineTime(label, **row) for row in answer["lines"]]


def _profiled(
    bench: RunningJob, entry: VariantRun, child: VariantProcess, request: dict[str, str]
) -> dict[str, Any] | None:
    """Return the answer to a request for a profile; None without one, which is a warning."""
    bench.say(f"{bench.title(entry)}: profile {request['what'] if request['do'] == 'profile' else 'lines'}")
    try:
        answer: dict[str, Any] = child.ask(request, max(1.0, min(_MAX_TURN_SECONDS, bench.left())))
    except ChildError as error:
        answer = {"error": str(error)}
    if "error" in answer:
        entry.warnings.append(f"{'lines ' * (request['do'] == 'lines')}not profiled: {answer['error']}")
        return None
    return answer
