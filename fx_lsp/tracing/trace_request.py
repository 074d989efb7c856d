"""Send one question to a tracer: its data, its answer, and the answer's dependencies."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, replace

from fx_lsp.errors import WorkerStartError
from fx_lsp.model import Failure, InputSpec, TraceReply, TraceRequest, WorldRequest, plain_work
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
    """Hold an answer and the files that it depends on; `repeats` is as in `TracerAnswer`; `seconds` is set if it was
    traced.
    """

    reply: TraceReply
    seconds: float | None
    repeats: bool
    dependencies: tuple[Dependency, ...]


def wants_world(request: TraceRequest, analysis: Analysis) -> bool:
    """Return True if a target should be traced in a world, which imports the project and runs its programs for all
    targets; False for written inputs on a GPU, which mean a machine with one.
    """
    if any("@cuda" in comment.text for comment in request.given):
        return False
    return bool(request.programs) or analysis.imports_project


def world_of(analysis: Analysis, texts: Texts) -> WorldRequest:
    """Return the request to a world for the targets of a file, with those of all open files with the same roots."""
    others = [
        other for other in texts.analyses.values() if other.roots == analysis.roots and other.file != analysis.file
    ]
    together = sorted([analysis, *others], key=lambda each: each.file)
    files = tuple(each.watched() for each in together if each.graph is not None)
    watched = {file.file for file in files}
    overlays = {path: text for path, text in texts.by_path.items() if path not in watched and path.endswith(".py")}
    return WorldRequest(files, analysis.roots, overlays)


@dataclass(frozen=True)
class Inquiry:
    """Hold a question about a target of a file, with all open texts, the inputs of the target's last trace, and the
    seconds to search for others.
    """

    analysis: Analysis
    question: TargetQuestion
    texts: Texts
    previous: tuple[InputSpec, ...]
    search_seconds: float

    def request(self) -> TraceRequest | Failure:
        """Return the request to a tracer."""
        texts, question = self.texts.by_path, self.question
        request = self.analysis.request(question.target, texts, self.search_seconds, self.previous, question.work)
        return with_passes(request, self.analysis.project.passes, texts)


async def ask(interpreter: TracingInterpreter, inquiry: Inquiry, early: EarlyReply | None = None) -> Asked:
    """Return a tracer's answer to a question. A bug of fx-lsp is a `Failure` too. Raises WorkerStartError.

    `early` receives replies that are not final.
    """
    analysis, texts, name = inquiry.analysis, inquiry.texts, inquiry.question.target
    span, started = analysis.plan(name).target.name_span, time.time()
    try:
        request = await asyncio.to_thread(inquiry.request)
        if isinstance(request, Failure):
            return Asked(TraceReply(request), None, False, ())
        world = world_of(analysis, texts) if wants_world(request, analysis) else None
        if world is not None and plain_work(request.work) and not request.compares_calls:
            request, world = replace(request, world=world), None  # a compiler queries devices itself
        traced: TracerAnswer = await interpreter.trace(request, span, early, world)
        dependencies = await asyncio.to_thread(read_dependencies, traced.reply.dependencies, texts, started)
    except WorkerStartError:
        raise
    except Exception as error:
        log.exception("tracing %s failed inside fx-lsp", f"{analysis.file}::{name}")
        return Asked(TraceReply(internal_error(name, error, span)), None, False, ())
    return Asked(traced.reply, traced.seconds, traced.repeats(request), dependencies)
