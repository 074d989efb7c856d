"""One question to a tracer: what it needs to know, its answer, and what that depends on."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass

from fx_lsp.errors import WorkerStartError
from fx_lsp.model import Failure, InputSpec, TraceReply, TraceRequest, WorldRequest
from fx_lsp.tracing.analysis import Analysis, Texts
from fx_lsp.tracing.answers.disk import Dependency, read_dependencies
from fx_lsp.tracing.answers.question import TargetQuestion
from fx_lsp.tracing.slicing.passes import with_passes
from fx_lsp.tracing.workers.channels import EarlyReply
from fx_lsp.tracing.workers.failures import internal_error
from fx_lsp.tracing.workers.interpreter import TracerAnswer, TracingInterpreter

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Asked:
    """An answer and the files that it depends on; `repeats` as in `TracerAnswer`; `seconds` if it was traced."""

    reply: TraceReply
    seconds: float | None
    repeats: bool
    dependencies: tuple[Dependency, ...]


def may_share(request: TraceRequest, analysis: Analysis) -> bool:
    """Return True if a target is to be traced where its project is imported and its programs have run for others too.

    A compiler asks devices itself, and what is written down of a GPU means a machine that has one.
    """
    if request.work or any("@cuda" in comment.text for comment in request.given):
        return False
    return bool(request.programs) or analysis.imports_project


def world_of(analysis: Analysis, texts: Texts) -> WorldRequest:
    """Return what a world is to know that has the targets of a file: those of all open files with the same roots."""
    others = [
        other for other in texts.analyses.values() if other.roots == analysis.roots and other.file != analysis.file
    ]
    together = sorted([analysis, *others], key=lambda each: each.file)
    files = tuple(each.watched() for each in together if each.graph is not None)
    watched = {file.file for file in files}
    overlays = {path: text for path, text in texts.by_path.items() if path not in watched and path.endswith(".py")}
    return WorldRequest(files, analysis.roots, overlays)


async def ask(
    interpreter: TracingInterpreter,
    analysis: Analysis,
    question: TargetQuestion,
    texts: Texts,
    previous: tuple[InputSpec, ...],
    search_seconds: float,
    early: EarlyReply | None = None,
) -> Asked:
    """Have a question answered by a tracer. A bug of ours is a `Failure` too. Raises WorkerStartError.

    `early` is given replies that are not final.
    """

    def prepare() -> TraceRequest | Failure:
        request = analysis.request(name, texts.by_path, search_seconds, previous, question.work)
        return with_passes(request, analysis.project.passes, texts.by_path)

    name = question.target
    span, started = analysis.plan(name).target.name_span, time.time()
    try:
        request = await asyncio.to_thread(prepare)
        if isinstance(request, Failure):
            return Asked(TraceReply(request), None, False, ())
        world = world_of(analysis, texts) if may_share(request, analysis) else None
        traced: TracerAnswer = await interpreter.trace(request, span, early, world)
        dependencies = await asyncio.to_thread(read_dependencies, traced.reply.dependencies, texts, started)
    except WorkerStartError:
        raise
    except Exception as error:
        log.exception("tracing %s failed inside fx-lsp", f"{analysis.file}::{name}")
        return Asked(TraceReply(internal_error(name, error, span)), None, False, ())
    return Asked(traced.reply, traced.seconds, traced.repeats(search_seconds), dependencies)
