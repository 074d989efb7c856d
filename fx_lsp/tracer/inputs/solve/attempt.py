"""Run plans once, and find the inputs that an error involves."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from types import TracebackType
from typing import Any

from fx_lsp.model import Span
from fx_lsp.tracer.failures.exceptions import expression, kind_of
from fx_lsp.tracer.failures.frames import expression_at, refused_call, tracebacks, value_in
from fx_lsp.tracer.inputs.plan.plans import Plan, Plans
from fx_lsp.tracer.inputs.plan.signatures import bound, signature_of
from fx_lsp.tracer.inputs.plan.values import Context
from fx_lsp.tracer.inputs.solve.operands import Question, is_of_gradients, without_digits
from fx_lsp.tracer.inputs.task import Task
from fx_lsp.tracer.program.processes.environment import is_set_for
from fx_lsp.tracer.run.call import RUN_CODE, Call
from fx_lsp.tracer.run.conditions import Conditions
from fx_lsp.tracer.run.dependence import Dependence
from fx_lsp.tracer.run.observation import Run, watched_run
from fx_lsp.tracer.run.torch_calls import tensors_among
from fx_lsp.tracer.source.provenance import Chain, Sources


@dataclass(frozen=True)
class Attempt:
    """Hold one run of plans, and the source lines for expressions.

    `created` names the parameters that a module only had after the run; `conditions` are those of the run.
    """

    plans: Plans
    run: Run
    alternatives: dict[str, list[Plan]]
    sources: Sources
    lines: list[str]
    context: Context
    created: tuple[str, ...] = ()
    conditions: Conditions = field(default_factory=Conditions)

    @cached_property
    def chain(self) -> Chain:
        """Return the user's expressions that were running at the end, the innermost first."""
        return self.sources.traceback_chain(self.run.error.__traceback__ if self.run.error is not None else None)

    @cached_property
    def stop(self) -> tuple[Chain, str]:
        """Return where it ended, and with what message except for numbers: what two attempts have in common."""
        return self.chain, without_digits(self.run.error)

    def came_past(self, span: Span) -> bool:
        """Return True if the lines of an expression in the target's file ran, and none of them at the end."""
        lines = {*range(span.line, span.end_line + 1)} if span.file == self.sources.file else set[int]()
        running = (range(end.line, end.end_line + 1) for end in self.chain if end.file == self.sources.file)
        return not lines.isdisjoint(self.run.coverage.lines) and all(map(lines.isdisjoint, running))

    @cached_property
    def question(self) -> Question | None:
        """Return the question to the failing torch call, if there is one and its arguments are the cause; else None."""
        failed = self.run.failed or refused_call(self.run.error, self.sources)
        question = Question(failed, self.run.error) if failed is not None and failed.is_repeatable else None
        return question if question is not None and question.refused is not None else None

    @cached_property
    def is_of_gradients(self) -> bool:
        """Return True if it only failed because a tensor requires a gradient: without one, the call runs."""
        error, failed = self.run.error, self.run.failed
        return isinstance(error, RuntimeError) and failed is not None and is_of_gradients(failed, error)


Evaluate = Callable[[Plans], Attempt]
"""Runs plans once."""


def attempt(
    task: Task,
    plans: Plans,
    alternatives: dict[str, list[Plan]],
    make: Callable[[], tuple[Call, Dependence]],
    run: Run | None = None,
) -> Attempt:
    """Observe one run (filled into `run`, if passed); arguments that cannot be created count as the shortest run."""
    try:
        call, dependence = make()
    except Exception as error:
        return Attempt(plans, Run(error=error, calls=-1), alternatives, task.sources, task.lines, task.context)
    run = run or Run()
    run.dependence = dependence
    run = watched_run(task.sources, call.run, RUN_CODE, task.statements, run)
    task.budget.work.spend_run(run.calls)
    if is_set_for(run.error):
        return attempt(task, plans, alternatives, make)
    created = tuple(call.created)
    return Attempt(plans, run, alternatives, task.sources, task.lines, task.context, created)


def involved(attempt: Attempt) -> list[str]:
    """Return the paths of the inputs that the failing torch call received directly, or as views."""
    failed = attempt.run.failed
    if failed is None:
        return []
    paths = map(attempt.run.dependence.input_of, tensors_among(failed.args, failed.kwargs))
    return [path for path in paths if path is not None]


def mentioned_names(attempt: Attempt) -> dict[str, int]:
    """Return the names in the user's running expressions at the error, by the depth of the innermost."""
    error = attempt.run.error
    names: dict[str, int] = {}
    for depth, span in enumerate(attempt.sources.traceback_chain(error.__traceback__ if error else None)):
        if span.file != attempt.sources.file:
            continue
        node = expression(span, attempt.lines)
        line = attempt.lines[span.line - 1] if span.line <= len(attempt.lines) else ""
        variables = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)] if node else []
        for name in [*variables, *re.findall(r"\w+", line)]:
            names.setdefault(name, depth)
    return names


def by_relevance(attempt: Attempt, names: Iterable[str]) -> list[str]:
    """Return names in the order in which those expressions mention them, the innermost first; others after them."""
    mentioned = mentioned_names(attempt)
    return sorted(names, key=lambda n: mentioned.get(n, len(mentioned) + 99))


def is_data_dependent(attempt: Attempt) -> bool:
    """Return True if it ended at code that needs the value of a tensor."""
    error = attempt.run.error
    return error is not None and kind_of(error, attempt.run.failed) == "data-dependent"


def is_of_sizes(attempt: Attempt) -> bool:
    """Return True if it may have ended because sizes do not fit, by an operation or a check."""
    error = attempt.run.error
    if not isinstance(error, (RuntimeError, ValueError, IndexError, AssertionError)):
        return False
    return kind_of(error, attempt.run.failed) not in ("data-dependent", "device", "unsupported")


def place_of(attempt: Attempt) -> Span | None:
    """Return the expression at which an attempt ended, None if it is not in the user's code."""
    return attempt.chain[0] if attempt.chain else None


def innermost(attempt: Attempt) -> TracebackType | None:
    """Return the innermost frame of an error's traceback."""
    traceback = attempt.run.error.__traceback__ if attempt.run.error is not None else None
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback


def unbound_call(attempt: Attempt) -> Callable[..., Any] | None:
    """Return the function or module that was called with other arguments than it has parameters; None if that is not
    why an attempt ended.
    """
    traceback = innermost(attempt)
    if traceback is None or not isinstance(attempt.run.error, TypeError):
        return None
    held, node = traceback.tb_frame.f_locals, expression_at(traceback, attempt.sources)
    if {"self", "forward_call", "args", "kwargs"} <= held.keys():  # in the call by which a module runs its `forward`
        called, function, args, kwargs = (held[name] for name in ("self", "forward_call", "args", "kwargs"))
    elif isinstance(node, ast.Call) and not any(isinstance(argument, ast.Starred) for argument in node.args):
        called = function = value_in(node.func, traceback.tb_frame)
        args, kwargs = node.args, {keyword.arg or "": keyword.value for keyword in node.keywords}
    else:
        return None
    signature = signature_of(function) if callable(function) and "" not in kwargs else None
    return called if signature is not None and bound(signature, args, kwargs) is None else None


def mentioned_tensors(attempt: Attempt) -> list[str]:
    """Return the paths of the tensors that those expressions mention by name."""
    names = mentioned_names(attempt)
    return [p for p, _ in attempt.plans.tensors() if re.split(r"\W", p)[0] in names]


def lacks_state(attempt: Attempt) -> bool:
    """Return True if it ended at an attribute that a method reads of its own object, which lacks it."""
    error = attempt.run.error
    if not isinstance(error, AttributeError) or error.obj is None:
        return False
    frames = (traceback.tb_frame for traceback in tracebacks(error, attempt.sources))
    return any(frame.f_locals.get("self") is error.obj for frame in frames)


@dataclass(frozen=True)
class Missing:
    """Name an attribute that an object of type `kind` lacks, or a key that a dict lacks."""

    name: str
    kind: str = ""


def missing_name(error: BaseException | None) -> Missing | None:
    """Return the attribute or key that an object lacks, if that is why an attempt failed."""
    if isinstance(error, AttributeError) and error.name and error.obj is not None:
        return Missing(error.name, type(error.obj).__name__)
    if isinstance(error, KeyError) and error.args and isinstance(error.args[0], str):
        return Missing(error.args[0])
    return None
