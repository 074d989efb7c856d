"""From a request to a call that can be traced: the sources of inputs in their order."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from torch import nn

from fx_lsp.model import Failure, InputSpec, Severity, Span, TraceRequest
from fx_lsp.specs import Comment, CommentError, TensorSpec, parse_comment
from fx_lsp.tracer.call import RUN_CODE, Call
from fx_lsp.tracer.failures import failure_of
from fx_lsp.tracer.fakes import construct_fake
from fx_lsp.tracer.inputs.body import Facts, body_facts, find_function
from fx_lsp.tracer.inputs.configs import constructor
from fx_lsp.tracer.inputs.conventions import init_arguments, input_plans, only_module
from fx_lsp.tracer.inputs.layers import add_layer_facts
from fx_lsp.tracer.inputs.plan import (
    LEADING,
    Plan,
    Plans,
    input_specs,
    materialize,
    plan_of,
)
from fx_lsp.tracer.inputs.propose import Context, proposals
from fx_lsp.tracer.inputs.repair import Attempt
from fx_lsp.tracer.inputs.search import Found, search, severity
from fx_lsp.tracer.inputs.signatures import bound_arguments, hints_of, signature_of, takes_any
from fx_lsp.tracer.observe import Run, Statements, watched_run
from fx_lsp.tracer.provenance import Sources

FUNCTION_RANKS = (2, 3, 4, 1)
MODULE_RANKS = (3, 4, 2, 1, 5)
MIN_SECONDS = 0.2
"""What a step of the search gets even when the budget is used up."""


@dataclass
class Prepared:
    """A call with fake arguments that ran once, how they read to the user, and what was seen in that run."""

    call: Call
    inputs: tuple[InputSpec, ...]
    run: Run
    notes: list[str] = field(default_factory=list[str])


@dataclass
class _Job:
    """What all steps need."""

    request: TraceRequest
    module: ModuleType
    sources: Sources
    lines: list[str]
    tree: ast.Module
    statements: Statements
    deadline: float
    context: Context
    comment: Comment

    @property
    def seconds(self) -> float:
        return max(self.deadline - time.monotonic(), MIN_SECONDS)

    def evaluate(self, text: str) -> Any:
        return eval(text, self.module.__dict__)


def prepare(
    request: TraceRequest, module: ModuleType, target: Any, sources: Sources, tree: ast.Module
) -> Prepared | Failure:
    """Resolve the inputs of `target`; call it inside the fake mode."""
    comment = parse_comment(request.fx_comment) if request.fx_comment is not None else Comment()
    if isinstance(comment, CommentError):
        return Failure(
            "comment",
            f"the `# fx:` comment is not understood: {comment.message}",
            _at(request, comment),
            severity="error",
        )
    lines = request.source.splitlines()
    job = _Job(
        request,
        module,
        sources,
        lines,
        tree,
        Statements(tree, request.file),
        time.monotonic() + request.seconds,
        Context(module, FUNCTION_RANKS, constructor(module)),
        comment,
    )
    if request.kind == "module":
        return _prepare_module(job, target)
    if request.kind == "method":
        return _prepare_method(job, target)
    return _prepare_callable(job, target, target, request.name, {}, ())


def _at(request: TraceRequest, error: CommentError) -> Span | None:
    span = request.comment_span
    if span is None or span.line != span.end_line:
        return span
    start = span.end_col - len((request.fx_comment or "").encode())
    return Span(span.file, span.line, start + error.col, span.line, max(start + error.end_col, start + error.col + 1))


def _prepare_method(job: _Job, target: Any) -> Prepared | Failure:
    owner = job.module
    *path, name = job.request.name.split(".")
    for part in path:
        owner = getattr(owner, part)
    raw = inspect.getattr_static(owner, name)
    if isinstance(raw, (staticmethod, classmethod)):
        return _prepare_callable(job, target, target, job.request.name, {}, ())
    if not isinstance(owner, type):
        return _prepare_callable(job, target, target, job.request.name, {}, ())
    made = _construct(job, owner)
    if isinstance(made, Failure):
        return made
    instance, init = made
    modules = {"": instance} if isinstance(instance, nn.Module) else {}
    return _prepare_callable(job, getattr(instance, name), getattr(instance, name), job.request.name, modules, init)


def _prepare_module(job: _Job, target: Any) -> Prepared | Failure:
    if isinstance(target, nn.Module):
        return _prepare_callable(job, target, target.forward, f"{job.request.name}.forward", {"": target}, ())
    if not (isinstance(target, type) and issubclass(target, nn.Module)):
        return Failure("unsupported", f"{job.request.name} is no nn.Module")
    made = _construct(job, target)
    if isinstance(made, Failure):
        return made
    instance, init = made
    return _prepare_callable(job, instance, instance.forward, f"{job.request.name}.forward", {"": instance}, init)


def _construct(job: _Job, cls: type) -> tuple[Any, tuple[InputSpec, ...]] | Failure:
    """An instance of the target's class on fake tensors, and the constructor arguments that were used."""
    offered = init_arguments(job.module) if job.comment == Comment() else None
    if offered is not None:
        arguments, detail = offered
        with suppress(Exception):
            instance = construct_fake(cls, *(((), arguments) if isinstance(arguments, dict) else (arguments, {})))
            named = bound_arguments(inspect.signature(cls), arguments)
            return instance, tuple(InputSpec(f"init.{n}", _short(v), "convention", detail) for n, v in named)
    given = job.comment.init or {}
    signature, hints = signature_of(cls), hints_of(cls.__init__, job.module)
    if signature is None:
        return Failure("construct", f"the constructor of {cls.__name__} has no readable signature")
    facts = body_facts(find_function(job.tree, f"{cls.__name__}.__init__"))
    start, alternatives = _initial(job, signature, hints, facts, given, MODULE_RANKS, constructing=True)

    def make(*args: Any, **kwargs: Any) -> Any:
        return construct_fake(cls, args, kwargs)

    def evaluate(plans: Plans) -> Attempt:
        def call_of() -> tuple[Call, dict[int, str]]:
            made = materialize(plans)
            return Call(make, made.args, made.kwargs), made.paths

        return _attempt(job, plans, alternatives, call_of)

    found = search(start, evaluate, job.seconds / 2)
    if found.best.run.error is not None:
        failure = _failure(job, found, "information", input_specs(found.best.plans, "init."))
        if failure.kind in ("data-dependent", "effect", "exit", "memory", "import"):
            return failure
        message = f"{cls.__name__} cannot be constructed: {failure.message}"
        arguments = ", ".join(f"{n}=…" for n, _ in found.best.plans.items) or "…"
        hint = f"Say how in a comment above the class: `# fx: init({arguments})`."
        return dataclasses.replace(failure, kind="construct", message=message, hint=hint)
    shown = tuple(i for i in input_specs(found.best.plans, "init.") if i.source != "default")
    return found.best.run.result, shown


def _prepare_callable(
    job: _Job,
    function: Callable[..., Any],
    described: Callable[..., Any],
    definition: str,
    modules: dict[str, nn.Module],
    init: tuple[InputSpec, ...],
) -> Prepared | Failure:
    signature = signature_of(described)
    if signature is None:
        return Failure("unsupported", f"{job.request.name} has no readable signature")
    unknown = [n for n in job.comment.args if n not in signature.parameters and not takes_any(signature)]
    if unknown:
        known = ", ".join(signature.parameters)
        message = f"`{unknown[0]}` is no parameter of {job.request.name}; its parameters are {known}"
        return Failure("comment", message, job.request.comment_span, severity="error")
    node = find_function(job.tree, definition)
    facts = body_facts(node)
    if modules:
        add_layer_facts(node, facts, modules[""])
    ranks = MODULE_RANKS if modules else FUNCTION_RANKS
    named = _named_sizes(job.comment)
    notes = [f"{n} was traced as {s}" for n, s in named.items()]

    def call_of(plans: Plans) -> tuple[Call, dict[int, str]]:
        made = materialize(plans, named)
        names = tuple(n for n, _ in plans.items if n in plans.positional)
        return Call(function, made.args, made.kwargs, modules, names), made.paths

    def finish(plans: Plans) -> Prepared:
        return Prepared(call_of(plans)[0], init + input_specs(plans), found.best.run, notes)

    convention = None if job.comment.args else input_plans(job.module, signature, job.request.kind == "module")
    hints = hints_of(described, job.module)
    start, alternatives = _initial(job, signature, hints, facts, job.comment.args, ranks)

    def evaluate(plans: Plans) -> Attempt:
        return _attempt(job, plans, alternatives, lambda: call_of(plans))

    trusted = all(i.source != "search" for i in init)
    if convention is not None:
        start, alternatives = convention, {}
    found = search(start, evaluate, job.seconds)
    if convention is not None and found.best.run.error is not None and not only_module(job.module):
        start, alternatives = _initial(job, signature, hints, facts, {}, ranks)
        found = search(start, evaluate, job.seconds)
    inputs = init + input_specs(found.best.plans)
    if found.best.run.error is None:
        return finish(found.best.plans)
    bad: Severity = "information"
    if trusted and _is_given(start):
        bad = "error"
    elif trusted and job.seconds > MIN_SECONDS:
        bad = severity(found, evaluate)
    return _failure(job, found, bad, inputs)


def _attempt(
    job: _Job, plans: Plans, alternatives: dict[str, list[Plan]], make: Callable[[], tuple[Call, dict[int, str]]]
) -> Attempt:
    """One watched run; arguments that cannot even be made count as the shortest run of all."""
    try:
        call, paths = make()
    except Exception as error:
        return Attempt(plans, Run(error=error, calls=-1), {}, alternatives, job.sources, job.lines)
    run = watched_run(job.sources, call.run, RUN_CODE, job.statements)
    return Attempt(plans, run, paths, alternatives, job.sources, job.lines)


def _failure(job: _Job, found: Found, bad: Severity, inputs: tuple[InputSpec, ...]) -> Failure:
    run: Run = found.best.run
    assert run.error is not None
    failure = failure_of(run.error, job.sources, run.failed, job.lines, bad, inputs)
    if bad == "error" or failure.kind in ("data-dependent", "effect", "exit", "memory", "import"):
        return failure
    message = f"no inputs were found that {job.request.name} runs with; the closest try ended with: {failure.message}"
    return dataclasses.replace(failure, kind="inputs", message=message)


def _initial(
    job: _Job,
    signature: inspect.Signature,
    hints: dict[str, Any],
    facts: dict[str, Facts],
    given: dict[str, Any],
    ranks: tuple[int, ...],
    constructing: bool = False,
) -> tuple[Plans, dict[str, list[Plan]]]:
    """The first plans for a call, and the alternatives for each parameter that nobody gave a value."""
    items: list[tuple[str, Plan]] = []
    alternatives: dict[str, list[Plan]] = {}
    positional: set[str] = set()
    taken: set[int] = set()
    context = dataclasses.replace(job.context, ranks=ranks, constructing=constructing)
    lent = _lent_annotations(job, [n for n in signature.parameters if n not in hints])
    for name, parameter in signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            items += [
                (n, plan_of(v, "comment", job.evaluate)) for n, v in given.items() if n not in signature.parameters
            ]
            continue
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL and name not in given:
            continue
        if name in given:
            plan = plan_of(given[name], "comment", job.evaluate)
        else:
            options = proposals(
                parameter,
                hints.get(name, lent.get(name, parameter.annotation)),
                facts.get(name, Facts()),
                taken,
                context,
            )
            alternatives[name] = options
            plan = options[0]
        items.append((name, plan))
        if parameter.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD):
            positional.add(name)
        taken |= Plans(tuple(items)).sizes()
    return Plans(tuple(items), frozenset(positional)), alternatives


def _lent_annotations(job: _Job, names: list[str]) -> dict[str, Any]:
    """Annotations for parameters without one, from parameters of the same name elsewhere in the file."""
    lent: dict[str, Any] = {}
    for node in ast.walk(job.tree):
        if isinstance(node, ast.arg) and node.arg in names and node.arg not in lent and node.annotation is not None:
            try:
                lent[node.arg] = job.evaluate(ast.unparse(node.annotation))
            except Exception:
                continue
    return lent


def _is_given(plans: Plans) -> bool:
    """Whether no argument was guessed (there may be none at all)."""
    return all(i.source != "search" for i in input_specs(plans)) and any(
        i.source not in ("default", "annotation") for i in input_specs(plans)
    )


def _named_sizes(comment: Comment) -> dict[str, Any]:
    names: dict[str, Any] = {}

    def visit(given: Any) -> None:
        if isinstance(given, TensorSpec):
            for size in given.sizes:
                if isinstance(size, str) and size not in names:
                    names[size] = LEADING[len(names) % len(LEADING)]
        elif isinstance(given, (list, tuple)):
            for item in given:
                visit(item)

    for given in comment.args.values():
        visit(given)
    return names


def _short(given: Any) -> str:
    shown = repr(given)
    return shown if len(shown) <= 60 else f"{type(given).__name__}(…)"
