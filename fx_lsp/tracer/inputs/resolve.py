"""Resolve a request to a call that can be traced: try the sources of inputs in order."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain as concat
from types import FunctionType, ModuleType
from typing import Any

from fx_lsp.messages.targets import CALLER_RAISES, NO_SIGNATURE, NOT_DEFINED_INSIDE
from fx_lsp.messages.texts import UNKNOWN_PARAMETER, UNKNOWN_PARAMETER_OF_NONE
from fx_lsp.model import Caller, Failure, TraceRequest, WatchedFile, plain_work
from fx_lsp.tracer.failures.exceptions import sentence
from fx_lsp.tracer.inputs.budget import Budget, Work
from fx_lsp.tracer.inputs.candidate import FUNCTION_RANKS
from fx_lsp.tracer.inputs.evidence.body import find_function
from fx_lsp.tracer.inputs.evidence.configurations import fitting_plans
from fx_lsp.tracer.inputs.evidence.offers import conventions, unmakable, written_offers
from fx_lsp.tracer.inputs.evidence.program_calls import offers_of_program
from fx_lsp.tracer.inputs.evidence.steps import offers_of_step, wrong_batch
from fx_lsp.tracer.inputs.evidence.watch import CallWatch, FirstCall, function_in
from fx_lsp.tracer.inputs.guessed_variables import GuessedVariables
from fx_lsp.tracer.inputs.outcome import Prepared
from fx_lsp.tracer.inputs.plan.configs import completed, constructor, modules_with, namespaces
from fx_lsp.tracer.inputs.plan.offer import Offer, Written
from fx_lsp.tracer.inputs.plan.signatures import hints_of, signature_of, takes_any
from fx_lsp.tracer.inputs.plan.start import lent_annotations, needs_objects, says_little
from fx_lsp.tracer.inputs.plan.values import Context
from fx_lsp.tracer.inputs.prepare import prepare_with, program_calls
from fx_lsp.tracer.inputs.search import HARD
from fx_lsp.tracer.inputs.subject import Subject, subject_of
from fx_lsp.tracer.inputs.task import LoadedRequest, Task
from fx_lsp.tracer.program.load import find, load, rewritten
from fx_lsp.tracer.program.rewriting.instrument import Instrument
from fx_lsp.tracer.run.callables import innermost
from fx_lsp.tracer.run.conditions import under
from fx_lsp.tracer.run.observation import Statements, Stopped
from fx_lsp.tracer.run.state import variables_around


def prepare(
    loaded: LoadedRequest,
    target: Any,
    stopped: dict[Failure, Stopped],
    work: Work | None = None,
    seen: tuple[Offer, ...] = (),
) -> Prepared | Failure:
    """Resolve the inputs of `target`; call it inside the fake mode. It adds to the `work` of another target, if passed.

    `target` is None for a nested function, which exists only once its enclosing function runs. `stopped` receives the
    run of a failing target, under its failure. `seen` is as in `Task`.
    """
    request = loaded.request
    work = work or Work()
    task = Task(
        request,
        loaded.module,
        loaded.sources,
        loaded.tree,
        loaded.mode,
        lines=request.source.splitlines(),
        statements=Statements(loaded.tree, request.file),
        budget=Budget(work, work.seconds + request.seconds),
        deadline=time.process_time() + request.seconds,
        context=_context(loaded),
        stopped=stopped,
        seen=seen,
    )
    written = written_offers(request.given, task.evaluate)
    if isinstance(written, Failure):
        return written
    observe = partial(_observed, task)
    if target is None:
        return _prepare_nested(task, written, observe)
    subject = subject_of(task, target)
    return subject if isinstance(subject, Failure) else _prepare_subject(task, subject, written, observe)


def _context(loaded: LoadedRequest) -> Context:
    """Return the context of proposals for the parameters of a target."""
    module, construct_class = loaded.module, constructor(loaded.module)
    return Context(
        module,
        FUNCTION_RANKS,
        construct_class,
        namespaces(module, construct_class),
        fits=fitting_plans(loaded.request, module, construct_class),
        complete=completed,
        modules=modules_with(module, construct_class),
        lent=partial(lent_annotations, loaded.tree, module),
    )


@dataclasses.dataclass(frozen=True)
class Observed:
    """Hold the target as a caller showed it: its function (None for classes), and its call, if any.

    `guessed` names the arguments of the caller that were guessed.
    """

    function: Callable[..., Any] | None
    offer: Offer | None
    guessed: frozenset[str]


SHARE_OF_CALLER = 0.6
"""The share of the remaining work that one caller may use; the arguments that it shows are tried afterwards."""
Observe = Callable[[Caller], "Observed | Failure"]


def _prepare_subject(task: Task, subject: Subject, written: Written, observe: Observe) -> Prepared | Failure:
    request, signature = task.request, subject.parameters()
    if signature is None:
        return NO_SIGNATURE.failure(name=request.name)
    unknown = _unknown_names(task, subject, signature, written)
    if unknown is not None:
        return unknown
    failure: Failure | None = None
    wrong = wrong_batch(subject.function, task)
    offers = _offers(task, subject, signature, written, observe)
    for offer in offers:
        if wrong is not None and (offer.is_empty or offer.guessed):
            return wrong
        prepared = prepare_with(task, subject, signature, written.author.over(offer), written)
        if isinstance(prepared, Prepared):
            calls = partial(program_calls, task, subject, signature, concat((offer,), offers), prepared.call)
            prepared = dataclasses.replace(prepared, program_calls=calls)
            return _as_guessed(prepared) if offer.guessed else prepared
        if offer.final:
            return prepared
        if prepared.severity != "information" and not offer.is_empty and written.author.is_empty:
            wrong = wrong or prepared
        if failure is None or (offer.is_empty and failure.kind not in (*HARD, "inputs")):
            failure = prepared
    assert failure is not None, "there is always an offer that says nothing"
    return unmakable(written) or failure


def _as_guessed(prepared: Prepared) -> Prepared:
    """Return a call with its observed inputs marked as guessed, because their program had guesses itself."""
    inputs = (dataclasses.replace(i, guessed=True) if i.source == "call site" else i for i in prepared.inputs)
    return dataclasses.replace(prepared, inputs=tuple(inputs))


def _unknown_names(task: Task, subject: Subject, signature: inspect.Signature, written: Written) -> Failure | None:
    """Return the failure of unknown input names in a comment, for the call or the constructor, or None."""
    request = task.request
    unknown = _unknown(request.name, signature, written.author.args, written, "")
    constructor_signature = signature_of(subject.owner) if subject.owner is not None else None
    if unknown is not None or constructor_signature is None:
        return unknown
    owner = request.name if request.kind == "module" else request.name.rpartition(".")[0]
    return _unknown(f"{owner}'s constructor", constructor_signature, written.author.init or {}, written, "init.")


def _unknown(
    of: str, signature: inspect.Signature, arguments: Mapping[str, Any], written: Written, prefix: str
) -> Failure | None:
    names = [n for n in arguments if n not in signature.parameters and not takes_any(signature)]
    if not names:
        return None
    span, parameters = written.spans[f"{prefix}{names[0]}"], ", ".join(signature.parameters)
    if not parameters:
        return UNKNOWN_PARAMETER_OF_NONE.failure(span, callee=of, name=names[0])
    return UNKNOWN_PARAMETER.failure(span, callee=of, name=names[0], parameters=parameters)


def _prepare_nested(task: Task, written: Written, observe: Observe) -> Prepared | Failure:
    """Return the call of a nested function as its enclosing function calls or returns it, or the failure."""
    failure: Failure | None = None
    for caller in task.request.callers:
        seen = observe(caller)
        if isinstance(seen, Failure):
            failure = seen
        elif seen.function is not None:
            subject = Subject(task.request.name, seen.function)
            is_guessed = bool(seen.guessed)
            offers = [dataclasses.replace(seen.offer, guessed=is_guessed)] if seen.offer is not None else []
            written = dataclasses.replace(written, recorded=(*written.recorded, *offers))
            prepared = _prepare_subject(task, subject, written, observe)
            around = find_function(task.tree, caller.name)
            guesses = GuessedVariables.among(around, seen.guessed).names if around is not None else seen.guessed
            return _on_guesses_around(task, subject, prepared, guesses)
    name, outer = task.request.name.rpartition(".")[2], task.request.name.rpartition(".")[0]
    if failure is None:
        return NOT_DEFINED_INSIDE.failure(function=outer, name=name)
    return dataclasses.replace(failure, message=f"{failure.message} (while running {outer}, which defines {name})")


def _on_guesses_around(
    task: Task, subject: Subject, prepared: Prepared | Failure, guessed: frozenset[str]
) -> Prepared | Failure:
    """Return the outcome for a nested function; a mistake that depends on guessed arguments around it is
    information.
    """
    node, function = find_function(task.tree, subject.definition), innermost(subject.described)
    names = guessed & variables_around(function).keys() if isinstance(function, FunctionType) else frozenset[str]()
    if node is None or not names:
        return prepared
    outer, named = task.request.name.rpartition(".")[0], ", ".join(f"`{name}`" for name in sorted(names))
    guesses, note = GuessedVariables.among(node, names), f"guessed in the enclosing function {outer}: {named}"
    if isinstance(prepared, Prepared):
        remarks = guesses.reported(prepared.remarks, task.lines)
        return dataclasses.replace(prepared, remarks=remarks, notes=[*prepared.notes, note])
    if prepared.severity == "information" or not guesses.are_read(prepared.span, task.lines):
        return prepared
    hint = f"The arguments of the enclosing function {outer} are guessed: {named}. Write a `# fx:` comment there."
    failure = dataclasses.replace(prepared, kind="inputs", severity="information", hint=hint)
    if prepared in task.stopped:
        task.stopped[failure] = task.stopped.pop(prepared)
    return failure


def _caller_request(request: TraceRequest, caller: Caller, seconds: float) -> TraceRequest:
    """Return the request to resolve a caller's own inputs. A nested function keeps its enclosing ones."""
    return dataclasses.replace(
        request,
        name=caller.name,
        kind=caller.kind,
        sliced=caller.sliced,
        given=(),
        previous=(),
        callers=tuple(around for around in request.callers if caller.name.startswith(f"{around.name}.")),
        seconds=seconds,
        work=plain_work(request.work),
    )


def _observed(task: Task, caller: Caller) -> Observed | Failure:
    """Run a caller on its own inputs, and observe its call of the target."""
    target, request = task.request, _caller_request(task.request, caller, task.seconds * SHARE_OF_CALLER)
    before, result = sys.modules.get(request.module), None
    calls, instrument = list[FirstCall](), Instrument((), {}, (target.file,))
    watched = WatchedFile(
        target.file, target.source, target.module, target.package, ((target.name, target.kind),), False
    )
    watch = CallWatch(target.file, (watched,), calls.append)
    instrument.hear()
    instrument.listen(watch)
    try:
        with rewritten(instrument.compile):
            module = load(request, task.mode).module
        loaded = LoadedRequest(request, module, task.sources, task.tree, task.mode)
        prepared = prepare(loaded, _found(module, request), {}, task.budget.work)
        if isinstance(prepared, Prepared):
            calls.clear()
            watch.forget_calls()
            with under(task.mode, prepared.conditions):
                result = prepared.call.run()
    except Exception as error:
        return CALLER_RAISES.failure(name=caller.name, error=sentence(error))
    finally:
        instrument.restore()
        if before is not None:
            sys.modules[request.module] = before
    call = next(iter((*reversed(calls), *watch.made())), None)
    if call is None and isinstance(prepared, Failure):
        return prepared
    definition = find_function(task.tree, target.name)
    function = call.function if call is not None else function_in(result, target.file, definition)
    inputs = prepared.inputs if isinstance(prepared, Prepared) else ()
    guessed = frozenset(re.split(r"[\[.]", i.name, maxsplit=1)[0] for i in inputs if i.guessed)
    return Observed(function, call.located(f"line {call.line}", f"line {call.init_line}") if call else None, guessed)


def _found(module: ModuleType, request: TraceRequest) -> Any:
    """Return the request's name in the module; None for a function nested in one of its callers."""
    try:
        return find(module, request.name)
    except AttributeError:
        if not request.callers:
            raise
        return None


def _offers(
    task: Task, subject: Subject, signature: inspect.Signature, written: Written, observe: Observe
) -> Iterator[Offer]:
    """Yield the offers of the sources in order, including the empty one, which leaves everything to the search."""
    yield from written.recorded
    if task.request.kind == "step":
        context = next((offer.context for offer in task.seen), None)
        for offer in (*offers_of_step(subject.function), Offer({})):
            yield dataclasses.replace(offer, context=context)
        return
    callers = list(task.request.callers)
    if not written.author.args:
        if inner := [c for c in callers if c.convention]:
            yield from _seen_by(inner, observe, guessed=False)
            callers = [c for c in callers if not c.convention]
        else:
            is_module = task.request.kind == "module"
            constructor = signature_of(subject.owner) if is_module and subject.owner is not None else None
            yield from conventions(task.module, signature, constructor)
        hints = hints_of(subject.described, task.module)
        is_inner = task.request.kind == "method" and says_little(signature, hints)
        for offer in offers_of_program(task, signature, hints):
            is_inner = False  # the program knows more of the object than a caller that runs on guesses
            yield offer
        if needs_objects(signature, hints) or is_inner:
            yield from _seen_by(callers, observe)
            callers = []
    yield Offer({})
    if not written.author.args:
        yield from _seen_by(callers, observe)


def _seen_by(callers: list[Caller], observe: Observe, guessed: bool = True) -> Iterator[Offer]:
    """Yield the arguments that callers, run on their own inputs, pass to the target; `guessed` if those inputs are
    guesses.
    """
    for caller in callers:
        seen = observe(caller)
        if not isinstance(seen, Failure) and seen.offer is not None:
            yield dataclasses.replace(seen.offer, guessed=guessed)
