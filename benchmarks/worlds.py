"""Compare the cost of checking a folder with the part of it that is unavoidable. Ratios hold on any machine.

    python benchmarks/worlds.py FOLDER…

Prints, for each folder, the seconds of processors that checking it takes once torch is there; and beside them one
import of what its files import, one run of each program that reaches them, and the graphs of each target alone.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from fx_lsp import files
from fx_lsp.model import Failure, ProgramFile, Trace, WorldRequest
from fx_lsp.tracing.analysis import Analysis, Texts, analyse
from fx_lsp.tracing.engine import Engine, EngineSettings
from fx_lsp.tracing.trace_request import world_of

TRIVIAL = "import torch\n\n\ndef double(x: torch.Tensor):\n    return x * 2\n"
HEADINGS = ("folder", "targets", "traced", "check", "imports", "programs", "graphs", "check / unavoidable")


async def checked(paths: Sequence[Path], folder: Path) -> tuple[int, list[Trace]]:
    """Trace every target of some files; return how many there are, and the traces."""
    settings = EngineSettings(interpreter=sys.executable, trace_on_open=False, cache_path=None)
    engine = Engine(settings, lambda file: None, lambda status: None)
    count, traces = 0, list[Trace]()
    for path in paths:
        engine.open(str(path), files.read_python(str(path)), (str(folder),))
    for path in paths:
        targets = await engine.targets(str(path))
        names = [target.name for target in targets] if not isinstance(targets, Failure) else []
        count += len(names)
        outcomes = await asyncio.gather(*(engine.outcome(str(path), name, final=True) for name in names))
        traces += [outcome for outcome in outcomes if isinstance(outcome, Trace)]
    await engine.shutdown()
    return count, traces


def seconds_of(work: Callable[[], object]) -> float:
    """Return the seconds of processors that work takes in a process of its own, with those that it starts."""
    pid = os.fork()
    if pid == 0:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        try:
            work()
        finally:
            os._exit(0)
    _, _, usage = os.wait4(pid, 0)
    return usage.ru_utime + usage.ru_stime


def worlds_of(paths: Sequence[Path], folder: Path) -> Iterator[tuple[WorldRequest, tuple[ProgramFile, ...]]]:
    """Yield what each world of a folder's files knows, and the programs that may call its targets."""
    read = {str(path): analyse(str(path), files.read_python(str(path)), (str(folder),)) for path in paths}
    texts = Texts({}, read)
    waiting: list[Analysis] = [analysis for analysis in read.values() if analysis.failure is None]
    while waiting:
        world = world_of(waiting[0], texts)
        together = [a for a in waiting if a.roots == waiting[0].roots]
        programs = (a.request(name, {}, 5.0).programs for a in together for name in a.targets)
        yield world, tuple(dict.fromkeys(program for each in programs for program in each))
        waiting = [a for a in waiting if a not in together]


def import_all(request: WorldRequest) -> None:
    """Import what the files of a world import."""
    from fx_lsp.tracer.world.world import World

    world = World.begin(request)
    for file in request.files:
        world.import_needs(file)


def unavoidable(paths: Sequence[Path], folder: Path) -> tuple[float, float]:
    """Return the seconds of one import of everything, and of one run of each program."""
    from fx_lsp.tracer.process import warmup
    from fx_lsp.tracer.world.world import World

    warmup.warm()
    imports = programs = 0.0

    def run(request: WorldRequest, program: ProgramFile) -> None:
        world = World.begin(request)
        world.follow(program, files.read_python(program.file), lambda call: None)

    for request, programs_of_world in worlds_of(paths, folder):
        imports += seconds_of(lambda request=request: import_all(request))
        for program in programs_of_world:
            programs += seconds_of(lambda request=request, program=program: run(request, program))
    return imports, programs


def measured(folder: Path) -> tuple[str, ...]:
    """Return a row of the table."""
    paths = sorted(path for path in folder.rglob("*.py") if ".git" not in path.parts)
    with tempfile.TemporaryDirectory() as trivial:
        file = Path(trivial, "trivial.py")
        file.write_text(TRIVIAL)
        start = seconds_of(lambda: asyncio.run(checked([file], Path(trivial))))
    results: list[tuple[int, list[Trace]]] = []
    before = resource.getrusage(resource.RUSAGE_CHILDREN), resource.getrusage(resource.RUSAGE_SELF)
    results.append(asyncio.run(checked(paths, folder)))
    after = resource.getrusage(resource.RUSAGE_CHILDREN), resource.getrusage(resource.RUSAGE_SELF)
    total = sum(b.ru_utime + b.ru_stime - a.ru_utime - a.ru_stime for a, b in zip(before, after, strict=True)) - start
    count, traces = results[0]
    imports, programs = unavoidable(paths, folder)
    graphs = sum(trace.capture_seconds for trace in traces)
    ratio = total / (imports + programs + graphs)
    seconds = (f"{each:.1f} s" for each in (total, imports, programs, graphs))
    return folder.name, str(count), str(len(traces)), *seconds, f"{ratio:.1f} ×"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    rows = [HEADINGS, tuple("---" for _ in HEADINGS)]
    for folder in parser.parse_args().folders:
        rows.append(measured(folder.resolve()))
    for row in rows:
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
