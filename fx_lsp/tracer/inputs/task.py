"""What every step of resolving inputs needs, and one watched try."""

from __future__ import annotations

import ast
import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from fx_lsp.model import Failure, InputSpec, Severity, TraceRequest
from fx_lsp.tracer.call import RUN_CODE, Call
from fx_lsp.tracer.compat import FakeTensorMode
from fx_lsp.tracer.failures import failure_of
from fx_lsp.tracer.inputs.attempt import Attempt
from fx_lsp.tracer.inputs.plan import Plan, Plans
from fx_lsp.tracer.inputs.propose import Context
from fx_lsp.tracer.inputs.search import Found
from fx_lsp.tracer.observe import Run, Statements, watched_run
from fx_lsp.tracer.provenance import Sources

MIN_SECONDS = 0.2
"""What a step of the search gets even when the budget is used up."""


@dataclass
class Task:
    """One target whose inputs are looked for until `deadline` (`time.process_time`: other programs do not use it up).

    `retried` tells whether code that needs the values of tensors was tried without them.
    """

    request: TraceRequest
    module: ModuleType
    sources: Sources
    lines: list[str]
    tree: ast.Module
    statements: Statements
    deadline: float
    context: Context
    mode: FakeTensorMode
    retried: bool = False

    @property
    def seconds(self) -> float:
        """What is left of the budget, but never nothing."""
        return max(self.deadline - time.process_time(), MIN_SECONDS)

    def evaluate(self, text: str) -> Any:
        """The value of an expression in the user's module."""
        return eval(text, self.module.__dict__)


def attempt(
    task: Task, plans: Plans, alternatives: dict[str, list[Plan]], make: Callable[[], tuple[Call, dict[int, str]]]
) -> Attempt:
    """One watched run; arguments that cannot even be made count as the shortest run of all."""
    try:
        call, paths = make()
    except Exception as error:
        return Attempt(plans, Run(error=error, calls=-1), {}, alternatives, task.sources, task.lines, task.context)
    run = watched_run(task.sources, call.run, RUN_CODE, task.statements)
    created = tuple(call.created)
    return Attempt(plans, run, paths, alternatives, task.sources, task.lines, task.context, created)


HARD = frozenset({"data-dependent", "effect", "unsupported", "exit", "memory", "import"})
"""Kinds of failures that other inputs do not mend."""


def search_failure(task: Task, found: Found, bad: Severity, inputs: tuple[InputSpec, ...]) -> Failure:
    """Why a search found nothing: what ended its closest try."""
    run: Run = found.best.run
    assert run.error is not None
    failure = failure_of(run.error, task.sources, run.failed, task.lines, bad, inputs)
    if bad == "error" or failure.kind in HARD:
        return failure
    message = f"no inputs were found that {task.request.name} runs with; the closest try ended with: {failure.message}"
    return dataclasses.replace(failure, kind="inputs", message=message)
