"""A world for one target, without fork or for a compiler: the process that traces it runs programs before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from fx_lsp.model import ProgramFile, TraceRequest, WorldRequest, plain_work, variant_of
from fx_lsp.tracer.inputs.evidence.watch import BEST_RANK, FirstCall, Rank
from fx_lsp.tracer.world.world import GpuWanted, LaterCall, World


class _Reached(BaseException):
    """Unwinds a program at the call of the target. No `except Exception` stops it."""


def become_world(request: TraceRequest, wanted: WorldRequest) -> None:
    """Make this process the world of one target, in the state that forks of a world are parked in.

    It is at the first call of the target by a program; else at the end of the file's own program; else it has imported
    the file; else it has imported only modules that the file imports.
    """
    world = World.begin(wanted, bool(plain_work(request.work)))
    watched = world.watched(request.file)
    if watched is not None:
        world.import_needs(watched)
    programs = list(request.programs) if request.is_of_module else []
    later = _calls(world, programs, request) if variant_of(request.work) else []
    is_entered = _gets_to_one(world, programs, request)
    world.later = later
    if not is_entered and watched is not None and request.is_of_module:
        own = next((p for p in programs if p.file == request.file and not p.entry and not p.source), None)
        if own is None:
            world.forget()
        elif own is not programs[-1]:
            _gets_to(world, own, request, BEST_RANK)
        is_usable = own is not None or world.import_whole(watched)
        is_entered = is_usable and world.has(request.file, request.bound)
    world.ran |= world.functions_run(request.file)
    world.instrument.restore()
    if is_entered:
        world.enter()
    else:
        world.forget()
        world.leave()


def _calls(world: World, programs: Iterable[ProgramFile], request: TraceRequest) -> list[LaterCall]:
    """Return the calls of the target besides its first one by the first of the programs that makes any."""
    for program in programs:
        with suppress(BaseException):  # whatever ends a program, it has called what it has called
            world.follow(program, lambda call: None)
        calls = world.later_calls().get(request.file, {}).get(request.name, [])
        world.forget()
        if calls:
            return calls
    return []


def _gets_to_one(world: World, programs: Sequence[ProgramFile], request: TraceRequest) -> bool:
    """Run programs; return True if one calls the target, at whose first call the process then is.

    It is the first call that trains with all its data, else of the first program with such data the best, else the
    best of the first.
    """
    ranks: dict[ProgramFile, Rank] = {}
    for program in programs:
        lacking = _gets_to(world, program, request, BEST_RANK)
        if world.call is not None:
            return True
        if lacking:
            ranks[program] = max(lacking)
    chosen = next((program for program, (is_complete, _) in ranks.items() if is_complete), next(iter(ranks), None))
    if chosen is not None:
        _gets_to(world, chosen, request, ranks[chosen])
    return world.call is not None


def _gets_to(world: World, program: ProgramFile, request: TraceRequest, least: Rank) -> list[Rank]:
    """Run a program to its first call of the target with the rank `least`; return the ranks of those before."""
    lacking: list[Rank] = []

    def stop(call: FirstCall) -> None:
        if world.call is None and (call.target.file, call.target.name) == (request.file, request.name):
            if call.rank < least:
                lacking.append(call.rank)
                return
            world.call = call
            raise _Reached

    for _ in ("without a GPU", "with one"):
        world.forget()
        try:
            world.follow(program, stop)
        except _Reached:
            return lacking
        except GpuWanted:
            world.with_gpu()
            continue
        except BaseException:  # whatever ends a program, it has not called the target
            pass
        break
    world.call = None
    return lacking
