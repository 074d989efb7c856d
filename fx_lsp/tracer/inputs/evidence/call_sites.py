"""Observe calls of a target in straight-line code: run what one call needs, and stop where the target is entered."""

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
from fx_lsp.steps import functions_around
from fx_lsp.tracer.compat import FakeTensorMode
from fx_lsp.tracer.inputs.evidence.callers import Watcher, watcher
from fx_lsp.tracer.inputs.evidence.command_line import CommandLine, started_as
from fx_lsp.tracer.inputs.evidence.offers import Offer
from fx_lsp.tracer.inputs.plan.facts import Facts
from fx_lsp.tracer.inputs.plan.plans import Plan, SequencePlan, TensorPlan, ValuePlan
from fx_lsp.tracer.inputs.plan.values import proposals, tensors
from fx_lsp.tracer.inputs.solve.frames import expressions_raising, value_in
from fx_lsp.tracer.inputs.task import MIN_SECONDS, Task
from fx_lsp.tracer.program.absences import Absences, Absent, tolerant
from fx_lsp.tracer.program.data_loaders import one_batch_each
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
"""The share of the time left that one call site may use, and that of all which is kept for what comes after them."""


def seen_at_call_sites(task: Task, signature: inspect.Signature, hints: Mapping[str, Any]) -> Iterator[Offer]:
    """The arguments at each call site of the request that gets as far as the target; call it inside the fake mode.

    Where a site raises before it gets there, it runs once more without what raised. Whatever else it does (it ends the
    process, writes files, takes too long) it is no offer. What an annotation spells out is tried before what the site
    has in its place. Where the world of this process has seen a call, that is the only one.
    """
    request = task.request
    for offer in task.seen:
        yield from _as_stated(_with_guesses(offer, task), signature, hints, task)
    for site in request.sites if not task.seen else ():
        if task.program_seconds < request.seconds * KEPT:
            _UNFOLLOWED.append(f"{_place(site, request)} was not followed: other calls used up the time limit")
            continue
        with modules_kept((request.module, site.imported, site.module)):
            until = _time_after(task)
            offer = first = _seen_at(request, site, task.tree, task.program_seconds - until, task.mode)
            if (keys := _key_instead(first, task)) and task.program_seconds > until:
                seconds = task.program_seconds - until
                offer = first = _seen_at(request, site, task.tree, seconds, task.mode, instead=keys)
            if not isinstance(offer, Offer) and not request.step and task.program_seconds > until:
                seconds = task.program_seconds - _time_after(task)
                offer = _seen_at(request, site, task.tree, seconds, task.mode, is_tolerant=True)
                offer = _with_guesses(offer, task) if isinstance(offer, Offer) else offer
        if not isinstance(offer, Offer):
            _note_unfollowed(site, request, (first, offer))
            continue
        yield from _as_stated(offer, signature, hints, task)


def _as_stated(offer: Offer, signature: inspect.Signature, hints: Mapping[str, Any], task: Task) -> Iterator[Offer]:
    """Yield an offer without the arguments that annotations spell out, where there are any, and the whole of it."""
    rest = {name: plan for name, plan in offer.args.items() if not _is_stated(name, signature, hints, task)}
    if len(rest) < len(offer.args):
        yield replace(offer, args=rest)
    yield offer


def _key_instead(raised: Offer | BaseException | None, task: Task) -> Mapping[str, str]:
    """Return a key of a dictionary for a word that it does not have, where that is why a site raised."""
    frame, node = next(
        expressions_raising(raised, task.sources) if isinstance(raised, KeyError) else iter(()), (None, None)
    )
    held = value_in(node.value, frame) if frame is not None and isinstance(node, ast.Subscript) else None
    words = [key for key in held if isinstance(key, str) and key[:1] != "_"] if isinstance(held, Mapping) else []
    likely = [*(word for word in words if callable(held[word])), *words] if isinstance(held, Mapping) else words
    return {str(raised.args[0]): likely[0]} if isinstance(raised, KeyError) and likely else {}


_UNFOLLOWED: list[str] = []
"""Calls that could not be followed although they may be right, and why."""


def unfollowed_notes() -> list[str]:
    """Return a sentence for each call that could not be followed since the last time for want of time or a package."""
    notes = list(dict.fromkeys(_UNFOLLOWED))
    _UNFOLLOWED.clear()
    return notes


def _note_unfollowed(site: CallSite, request: TraceRequest, raised: Sequence[Offer | BaseException | None]) -> None:
    """Note that a call was not followed, where that is no fault of the program's."""
    place = _place(site, request)
    missing = next((e for e in raised if isinstance(e, ModuleNotFoundError) and e.name), None)
    if any(isinstance(error, TimeUp) for error in raised):
        _UNFOLLOWED.append(f"{place} was not followed: the code before it takes too long")
    elif missing is not None:
        _UNFOLLOWED.append(f"{place} was not followed: `{(missing.name or '').partition('.')[0]}` is not installed")


def _place(site: CallSite, request: TraceRequest) -> str:
    shown = _shown(site.file, request)
    return f"the call on line {site.line}{f' of {shown}' if shown else ''}"


def _time_after(task: Task) -> float:
    """Return how many seconds have to be left when a call site ends."""
    return min(max(task.program_seconds * (1 - SHARE), task.request.seconds * KEPT), task.program_seconds - MIN_SECONDS)


def _is_stated(name: str, signature: inspect.Signature, hints: Mapping[str, Any], task: Task) -> bool:
    """Tell whether the annotation of a parameter says its shape."""
    parameter = signature.parameters.get(name)
    if parameter is None or name not in hints:
        return False
    first = proposals(parameter, hints[name], Facts(), set(), task.context)[0]
    return isinstance(first, TensorPlan) and first.source == "annotation"


def _seen_at(
    request: TraceRequest,
    site: CallSite,
    tree: ast.Module,
    seconds: float,
    mode: FakeTensorMode,
    is_tolerant: bool = False,
    instead: Mapping[str, str] | None = None,
) -> Offer | BaseException | None:
    """Return what a site gives the target; what it raised where it does not get there. `instead` as in `started_as`."""
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
        target = None if own else target_module(request, site, mode, is_tolerant=is_tolerant)
        if target is not None:
            stack.enter_context(project_anew(request, (request.module, site.imported)))
            if site.module and site.package:  # which may import more of the site's file than runs of it
                import_package(site.package)
        module = site_module(request, site)
        vars(module).update(namespace)
        if is_tolerant:
            with forbid_effects(imports=True):
                stand_in_for(site.text, module)
        for code, imports in statements_of(request, site, is_tolerant=is_tolerant):
            if watch is None:
                watch = _watcher(request, target or module, tree, site)
            with watch.watching() if watch else nullcontext(), forbid_effects(imports=imports):
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
    """Keep what is raised inside, of whatever kind."""
    try:
        yield
    except BaseException as error:
        raised.append(error)


def _without_absent(offer: Offer, absences: Absences, line: CommandLine, is_tolerant: bool) -> Offer:
    """Return an offer without what is absent; it is a guess where the way to it was not complete."""
    args = {name: plan for name, plan in offer.args.items() if not is_absent(plan)}
    if not is_tolerant:
        return replace(offer, args=args, guessed=bool(line.invented), unset=bool(line.unset))
    absences.tell()
    init = {name: plan for name, plan in (offer.init or {}).items() if not is_absent(plan)}
    is_whole = offer.init is None or not any(map(has_absent, offer.init.values()))
    instance = offer.instance if is_whole or not isinstance(offer.instance, nn.Module) else None
    return replace(offer, args=args, init=init if offer.init is not None else None, instance=instance, guessed=True)


def is_absent(plan: Plan) -> bool:
    """Return True for what is absent, and for a list that has something absent in it: how long it is says nothing."""
    if isinstance(plan, SequencePlan) and plan.keys is None:
        return any(map(is_absent, plan.items))
    return isinstance(plan, ValuePlan) and isinstance(plan.make(), Absent)


def has_absent(plan: Plan) -> bool:
    """Return True for what is absent, and for a list or a dictionary that has something absent in it."""
    return any(map(has_absent, plan.items)) if isinstance(plan, SequencePlan) else is_absent(plan)


def _with_guesses(offer: Offer, task: Task) -> Offer:
    """Return an offer with guesses for what is absent of its dictionaries: their keys are known."""

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
    """The code of each statement of the site's text, and whether it is an import.

    What leads to a step, or `is_tolerant`, goes on after statements that raise; of what that reads, `inputs` are
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
    """The target's file as other files import it, whole where that runs, under its name and under a site's for it.

    Of the file of a step there is only what the site uses of it. What raises in it is left out where `is_tolerant`.
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
    """Return an empty module for a site to run in, under the name that its file has."""
    linecache.cache[site.file] = (len(site.text), None, site.text.splitlines(keepends=True), site.file)
    if site.module:
        return new_module(site.module, site.package, site.file)
    return new_module(request.module, request.package, site.file)


def prefer(target: ModuleType, module: ModuleType) -> None:
    """Replace what `module` has imported of the target's file on disk by that of its unsaved text."""
    for name, value in list(vars(module).items()):
        called = getattr(value, "__name__", None)
        if isinstance(called, str) and getattr(value, "__module__", None) == target.__name__:
            setattr(module, name, getattr(target, called, value))


def _watcher(request: TraceRequest, module: ModuleType, tree: ast.Module, site: CallSite) -> Watcher | None:
    """A watcher that stops at the target; None as long as the module has none."""
    try:
        find(module, request.name.partition(".")[0])
    except AttributeError:
        return None
    return replace(watcher(request, module, tree), stop=True, site=site.file, shown=_shown(site.file, request))


def _shown(file: str, request: TraceRequest) -> str:
    """A test file as people say it: relative to the outermost root that it is in; "" for the target's own."""
    if file == request.file:
        return ""
    roots = [root for root in request.roots if file.startswith(root + os.sep)]
    return os.path.relpath(file, min(roots, key=len)) if roots else os.path.basename(file)


@contextmanager
def modules_kept(names: Collection[str]) -> Generator[None, None, None]:
    """Put `sys.modules` back as it was, as far as these names go."""
    before = {name: sys.modules.get(name) for name in names if name}
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module
