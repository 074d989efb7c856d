"""Observe calls of a target in straight-line code: run the code that one call needs, and stop at the entry of the
target.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import sys
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from types import ModuleType
from typing import Any

from torch import nn

from fx_lsp.model import CallSite, TraceRequest
from fx_lsp.syntax import functions_around
from fx_lsp.tracer.compat import FakeTensorMode
from fx_lsp.tracer.failures.frames import expressions_raising, value_in
from fx_lsp.tracer.inputs.evidence.callers import Watcher, watcher
from fx_lsp.tracer.inputs.evidence.command_line import CommandLine, started_as
from fx_lsp.tracer.inputs.plan.facts import Facts
from fx_lsp.tracer.inputs.plan.offer import Offer
from fx_lsp.tracer.inputs.plan.plans import Plan, SequencePlan, TensorPlan, ValuePlan
from fx_lsp.tracer.inputs.plan.values import proposals, tensors
from fx_lsp.tracer.inputs.task import MIN_SECONDS, Task
from fx_lsp.tracer.notes import notes
from fx_lsp.tracer.program.absences import Absences, Absent, tolerant
from fx_lsp.tracer.program.data.loaders import one_batch_each
from fx_lsp.tracer.program.effects import forbid_effects
from fx_lsp.tracer.program.load import (
    LoadError,
    codes_of,
    constructor_lines,
    find,
    import_package,
    load,
    new_module,
    project_anew,
    syntax_of,
    with_inputs,
    without_what_raises,
)
from fx_lsp.tracer.program.partial_imports import stand_in_for
from fx_lsp.tracer.program.time_limit import TimeUp, time_limit

SHARE, KEPT = 0.6, 0.5
"""The share of the remaining time that one call site may use, and of the whole time that is reserved for later work."""


def seen_at_call_sites(task: Task, signature: inspect.Signature, hints: Mapping[str, Any]) -> Iterator[Offer]:
    """Yield the arguments at each call site of the request that reaches the target; call it inside the fake mode.

    If a site raises before the call, it runs again without the statements that raised. A site that fails in another way
    (it ends the process, writes files, takes too long) yields nothing. A shape in an annotation is tried before the
    site's value. If the world of this process has seen a call, only that one is used.
    """
    request = task.request
    for offer in task.seen:
        yield from _as_stated(_with_guesses(offer, task), signature, hints, task)
    for site in request.sites if not task.seen else ():
        if task.program_seconds < request.seconds * KEPT:
            notes().unfollowed[f"{_place(site, request)} was not followed: other calls used up the time limit"] = None
            continue
        with modules_kept((request.module, site.imported, site.module)):
            until = _time_after(task)
            offer = first = _seen_at(task, site, task.program_seconds - until)
            if (keys := _key_instead(first, task)) and task.program_seconds > until:
                offer = first = _seen_at(task, site, task.program_seconds - until, instead=keys)
            if not isinstance(offer, Offer) and not request.step and task.program_seconds > until:
                seconds = task.program_seconds - _time_after(task)
                offer = _seen_at(task, site, seconds, is_tolerant=True)
                offer = _with_guesses(offer, task) if isinstance(offer, Offer) else offer
        if not isinstance(offer, Offer):
            _note_unfollowed(site, request, (first, offer))
            continue
        yield from _as_stated(offer, signature, hints, task)


def _as_stated(offer: Offer, signature: inspect.Signature, hints: Mapping[str, Any], task: Task) -> Iterator[Offer]:
    """Yield an offer without the arguments whose shapes are annotated, if any, and the whole offer."""
    rest = {name: plan for name, plan in offer.args.items() if not _is_stated(name, signature, hints, task)}
    if len(rest) < len(offer.args):
        yield replace(offer, args=rest)
    yield offer


def _key_instead(raised: Offer | BaseException | None, task: Task) -> Mapping[str, str]:
    """Return a key of a dictionary in place of a word that it lacks, if that is why a site raised."""
    frame, node = next(
        expressions_raising(raised, task.sources) if isinstance(raised, KeyError) else iter(()), (None, None)
    )
    held = value_in(node.value, frame) if frame is not None and isinstance(node, ast.Subscript) else None
    words = [key for key in held if isinstance(key, str) and key[:1] != "_"] if isinstance(held, Mapping) else []
    likely = [*(word for word in words if callable(held[word])), *words] if isinstance(held, Mapping) else words
    return {str(raised.args[0]): likely[0]} if isinstance(raised, KeyError) and likely else {}


def _note_unfollowed(site: CallSite, request: TraceRequest, raised: Sequence[Offer | BaseException | None]) -> None:
    """Record that a call was not followed, unless that is a mistake of the program."""
    place = _place(site, request)
    missing = next((e for e in raised if isinstance(e, ModuleNotFoundError) and e.name), None)
    if any(isinstance(error, TimeUp) for error in raised):
        notes().unfollowed[f"{place} was not followed: the code before it takes too long"] = None
    elif missing is not None:
        notes().unfollowed[f"{place} was not followed: `{(missing.name or '').partition('.')[0]}` is not installed"] = (
            None
        )


def _place(site: CallSite, request: TraceRequest) -> str:
    shown = _shown(site.file, request)
    return f"the call on line {site.line}{f' of {shown}' if shown else ''}"


def _time_after(task: Task) -> float:
    """Return how many seconds have to remain when a call site ends."""
    return min(max(task.program_seconds * (1 - SHARE), task.request.seconds * KEPT), task.program_seconds - MIN_SECONDS)


def _is_stated(name: str, signature: inspect.Signature, hints: Mapping[str, Any], task: Task) -> bool:
    """Return True if the annotation of a parameter states its shape."""
    parameter = signature.parameters.get(name)
    if parameter is None or name not in hints:
        return False
    first = proposals(parameter, hints[name], Facts(), set(), task.context)[0]
    return isinstance(first, TensorPlan) and first.source == "annotation"


def _seen_at(
    task: Task, site: CallSite, seconds: float, is_tolerant: bool = False, instead: Mapping[str, str] | None = None
) -> Offer | BaseException | None:
    """Return the arguments that a site passes to the target, or the exception that prevented it. `instead` is as in
    `started_as`.
    """
    request = task.request
    own = site.file == request.file
    watch: Watcher | None = None
    line, absences = CommandLine(), Absences()
    namespace = absences.namespace() if request.step or is_tolerant else {}
    raised: list[BaseException] = []
    with _kept(raised), ExitStack() as stack:
        stack.enter_context(forbid_effects())
        line = stack.enter_context(started_as(site.file, instead))
        stack.enter_context(time_limit(seconds))
        stack.enter_context(one_batch_each())
        target = None if own else target_module(request, site, task.mode, is_tolerant=is_tolerant)
        if target is not None:
            stack.enter_context(project_anew(request, (request.module, site.imported)))
            if site.module and site.package:  # which may import more of the site's file than it runs
                import_package(site.package)
        module = site_module(request, site)
        vars(module).update(namespace)
        if is_tolerant:
            stand_in_for(site.text, module)
        for code, imports in statements_of(request, site, is_tolerant=is_tolerant):
            if watch is None:
                watch = _watcher(request, target or module, task.tree, site)
            with watch.watching() if watch else nullcontext():
                exec(code, module.__dict__)
            if imports:
                line.imported()
            if imports and target is not None:
                prefer(target, module)
        if watch is not None and site.then:
            with watch.watching():
                eval(site.then, module.__dict__)
    offer = watch.observed(None).offer if watch is not None else None
    if offer is not None:
        return _without_absent(offer, absences, line, is_tolerant)
    return raised[0] if raised else None


@contextmanager
def _kept(raised: list[BaseException]) -> Generator[None, None, None]:
    """Catch every exception raised inside, of any kind."""
    try:
        yield
    except BaseException as error:
        raised.append(error)


def _without_absent(offer: Offer, absences: Absences, line: CommandLine, is_tolerant: bool) -> Offer:
    """Return an offer without absent values; it is a guess if the code before the call was incomplete."""
    args = {name: plan for name, plan in offer.args.items() if not is_absent(plan)}
    if not is_tolerant:
        return replace(offer, args=args, guessed=bool(line.invented or notes().sizes), unset=bool(line.unset))
    notes().numbers.update(absences.numbers)
    init = {name: plan for name, plan in (offer.init or {}).items() if not is_absent(plan)}
    is_whole = offer.init is None or not any(map(has_absent, offer.init.values()))
    instance = offer.instance if is_whole or not isinstance(offer.instance, nn.Module) else None
    return replace(offer, args=args, init=init if offer.init is not None else None, instance=instance, guessed=True)


def is_absent(plan: Plan) -> bool:
    """Return True for an absent value, and for a list that contains one: its length is meaningless."""
    if isinstance(plan, SequencePlan) and plan.keys is None:
        return any(map(is_absent, plan.items))
    return isinstance(plan, ValuePlan) and isinstance(plan.make(), Absent)


def has_absent(plan: Plan) -> bool:
    """Return True for an absent value, and for a list or a dictionary that contains one."""
    return any(map(has_absent, plan.items)) if isinstance(plan, SequencePlan) else is_absent(plan)


def _with_guesses(offer: Offer, task: Task) -> Offer:
    """Return an offer with guesses for absent values in its dictionaries: their keys are known."""

    def guessed(name: str, plan: Plan) -> Plan:
        if isinstance(plan, SequencePlan):
            names = plan.keys or (name,) * len(plan.items)
            return replace(plan, items=tuple(guessed(str(n), p) for n, p in zip(names, plan.items, strict=True)))
        return tensors(name, Facts(), set(), task.context)[0] if is_absent(plan) else plan

    args = {name: guessed(name, plan) for name, plan in offer.args.items()}
    init = {name: guessed(name, plan) for name, plan in offer.init.items()} if offer.init is not None else None
    return replace(offer, args=args, init=init)


def statements_of(
    request: TraceRequest, site: CallSite, inputs: Collection[str] = (), is_tolerant: bool = False
) -> Iterator[tuple[Any, bool]]:
    """Yield the code of each statement of the site's text, and whether it is an import.

    Code that leads to a step, or is `is_tolerant`, continues after statements that raise; its reads of `inputs` become
    parameters.
    """
    own = site.file == request.file
    tree = syntax_of(request, site.text, inputs) if own else ast.parse(site.text, site.file)
    constructors = constructor_lines(tree, request.name) if own else ()
    if request.step:
        around = functions_around(tree, request.step) if own else ()
        tree = tolerant(tree, (*site.functions, *around, *constructors))
    elif is_tolerant:
        tree = tolerant(tree, (*site.functions, *constructors), site.line)
    yield from codes_of(tree, site.file)


def target_module(
    request: TraceRequest,
    site: CallSite,
    mode: FakeTensorMode,
    inputs: Collection[str] = (),
    is_tolerant: bool = False,
) -> ModuleType:
    """Return the target's file as other files import it, complete if it runs, under its name and under a site's for it.

    Of the file of a step, it has only the part that the site uses. If `is_tolerant`, statements that raise are left
    out.
    """
    asked = replace(request, sliced=site.sliced, overlays={})
    if inputs:
        module = with_inputs(asked, inputs, mode)
    elif is_tolerant:
        module = without_what_raises(replace(asked, sliced=request.source), mode)
    elif request.step:
        module = load(asked, mode).module
    else:
        try:
            module = load(replace(asked, sliced=request.source), mode).module
        except (LoadError, SystemExit):
            module = load(asked, mode).module
    if site.imported:
        sys.modules[site.imported] = module
    return module


def site_module(request: TraceRequest, site: CallSite) -> ModuleType:
    """Return an empty module for a site to run in, under its file's module name."""
    linecache.cache[site.file] = (len(site.text), None, site.text.splitlines(keepends=True), site.file)
    if site.module:
        return new_module(site.module, site.package, site.file)
    return new_module(request.module, request.package, site.file)


def prefer(target: ModuleType, module: ModuleType) -> None:
    """Replace objects that `module` imported from the target's file on disk by those of its unsaved text."""
    for name, value in list(vars(module).items()):
        called = getattr(value, "__name__", None)
        if isinstance(called, str) and getattr(value, "__module__", None) == target.__name__:
            setattr(module, name, getattr(target, called, value))


def _watcher(request: TraceRequest, module: ModuleType, tree: ast.Module, site: CallSite) -> Watcher | None:
    """Return a watcher that stops at the target; None while the module does not have it."""
    try:
        find(module, request.name.partition(".")[0])
    except AttributeError:
        return None
    return replace(watcher(request, module, tree), stop=True, site=site.file, shown=_shown(site.file, request))


def _shown(file: str, request: TraceRequest) -> str:
    """Return the path of a test file for people: relative to the outermost root that contains it; "" for the target's
    own.
    """
    if file == request.file:
        return ""
    roots = [root for root in request.roots if file.startswith(root + os.sep)]
    return os.path.relpath(file, min(roots, key=len)) if roots else os.path.basename(file)


@contextmanager
def modules_kept(names: Collection[str]) -> Generator[None, None, None]:
    """Restore the entries of these names in `sys.modules`."""
    before = {name: sys.modules.get(name) for name in names if name}
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module
