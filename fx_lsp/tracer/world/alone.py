"""Make a world for one target, without fork or for a compiler: the tracing process first runs the programs."""

from __future__ import annotations

from collections.abc import Sequence

from fx_lsp.model import ProgramFile, TraceRequest, WorldRequest, plain_work
from fx_lsp.tracer.inputs.evidence.watch import BEST_RANK, FirstCall, Rank
from fx_lsp.tracer.world.world import GpuWanted, World


class _Reached(BaseException):
    """Unwinds a program at the call of the target. No `except Exception` stops it."""


def become_world(request: TraceRequest, wanted: WorldRequest) -> None:
    """Make this process the world of one target, in the state that forks of a world are parked in.

    It has then run to the first call of the target by a program. Without such a call, it has run to the end of
    the file's own program; without a program, it has imported the file, or only the modules that the file imports.
    """
    world = World.begin(wanted, bool(plain_work(request.work)))
    watched = world.watched(request.file)
    if watched is not None:
        world.import_needs(watched)
    programs = list(request.programs) if request.is_of_module else []
    is_entered = _gets_to_one(world, programs, request)
    if not is_entered and watched is not None and request.is_of_module:
        own = next((p for p in programs if p.file == request.file and not p.entry and not p.source), None)
        if own is None:
            world.forget()
        elif own is not programs[-1]:
            _gets_to(world, own, request, None)
        is_usable = own is not None or world.import_whole(watched)
        is_entered = is_usable and world.has(request.file, request.bound)
    world.ran |= world.functions_run(request.file)
    world.instrument.restore()
    if is_entered:
        world.enter()
    else:
        world.forget()
        world.leave()


def _gets_to_one(world: World, programs: Sequence[ProgramFile], request: TraceRequest) -> bool:
    """Run programs up to a call of the target; return False if none calls it.

    Each program first runs to its end, which shows its calls. The first call that trains with complete data is chosen;
    without one, the best call of the first program with complete data, or of the first program that calls the target.
    """
    best: dict[ProgramFile, Rank] = {}
    for program in programs:
        ranks = _gets_to(world, program, request, None)
        if ranks:
            best[program] = max(ranks)
            later = world.later_calls().get(request.file, {}).get(request.name, [])
            world.later = world.later or later
        if BEST_RANK in ranks:
            break
    if not best:
        return False
    chosen = max(best, key=lambda program: (best[program] == BEST_RANK, best[program][0]))
    _gets_to(world, chosen, request, best[chosen])
    return world.call is not None


def _gets_to(world: World, program: ProgramFile, request: TraceRequest, least: Rank | None) -> list[Rank]:
    """Run a program to its first call of the target with the rank `least`, or to its end.

    Return the ranks of the reported calls up to there, each better than the one before.
    """
    ranks: list[Rank] = []

    def stop(call: FirstCall) -> None:
        if world.call is not None or (call.target.file, call.target.name) != (request.file, request.name):
            return
        ranks.append(call.rank)
        if least is not None and call.rank >= least:
            world.call = call
            raise _Reached

    for _ in ("without a GPU", "with one"):
        world.forget()
        try:
            world.follow(program, stop)
        except GpuWanted:
            world.with_gpu()
            continue
        except BaseException:  # the program stopped at the call, or failed: the calls before count
            pass
        break
    return ranks
