"""Trace one target: turn the request of a tracer process into its replies."""

from __future__ import annotations

import ast
import linecache
import os
import site
import sys
import sysconfig
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

from fx_lsp import wire
from fx_lsp.messages.targets import NOT_CAPTURED, NOT_DEFINED
from fx_lsp.model import (
    MEMORY,
    PLAIN_CONTEXT,
    Failure,
    InputSpec,
    Outcome,
    Remark,
    Saved,
    Stage,
    StageInfo,
    StepMemory,
    Trace,
    TraceReply,
    TraceRequest,
    known_trace,
    plain_work,
    ran,
    read_work,
)
from fx_lsp.specs import parse_spec
from fx_lsp.tracer.analyses.breaks import graph_breaks
from fx_lsp.tracer.analyses.cross_reference import disagreements
from fx_lsp.tracer.analyses.hand_built import graph_reply
from fx_lsp.tracer.analyses.node_origins import marked
from fx_lsp.tracer.analyses.recompilations import recompilations
from fx_lsp.tracer.analyses.unregistered import unregistered
from fx_lsp.tracer.analyses.untrained import untrained_layers
from fx_lsp.tracer.capture.aot import Captured, capture_what_is_possible, stages
from fx_lsp.tracer.capture.graphs import Names, saved_values
from fx_lsp.tracer.capture.modules import modules_of
from fx_lsp.tracer.capture.partial_trace import partial_trace
from fx_lsp.tracer.compat import HAS_ANNOTATE, HAS_COLUMNS, FakeTensorMode
from fx_lsp.tracer.dimensions.annotations import annotation_remarks
from fx_lsp.tracer.dimensions.naming import finder_of_names
from fx_lsp.tracer.failures.exceptions import failure_of, load_failure, sentence, showing_inputs
from fx_lsp.tracer.failures.no_tensor_code import nothing, ran_without_tensors
from fx_lsp.tracer.inputs.evidence.body import find_class, find_function
from fx_lsp.tracer.inputs.evidence.command_line import flags_parsed, started_as
from fx_lsp.tracer.inputs.evidence.steps import cannot_run, inputs_from_data, lacks_data, not_reached, step_function
from fx_lsp.tracer.inputs.plan.offer import Offer
from fx_lsp.tracer.inputs.resolve import Prepared, prepare
from fx_lsp.tracer.inputs.task import LoadedRequest
from fx_lsp.tracer.notes import Notes
from fx_lsp.tracer.program.devices import Devices
from fx_lsp.tracer.program.effects import EffectBlocked, forbid_effects
from fx_lsp.tracer.program.installed import foreign_modules, package_files
from fx_lsp.tracer.program.load import (
    Loaded,
    LoadError,
    dependencies,
    find,
    forget_changed,
    forget_project,
    load,
    syntax_of,
)
from fx_lsp.tracer.program.paths import insert_user_paths
from fx_lsp.tracer.program.reads import reads, watch_reads
from fx_lsp.tracer.rehearsal.rehearse import Rehearsed, rehearse
from fx_lsp.tracer.rehearsal.training_memory import training_memory
from fx_lsp.tracer.run.call import RUN_CODE, tensors_in
from fx_lsp.tracer.run.conditions import under
from fx_lsp.tracer.run.observation import Run, Statements, Stopped, watched_run
from fx_lsp.tracer.run.values.decisions import Decisions, decided_by
from fx_lsp.tracer.run.values.symbols import Symbols
from fx_lsp.tracer.source.names import returned_names
from fx_lsp.tracer.source.provenance import Sources
from fx_lsp.tracer.stages.ledger import count_ops
from fx_lsp.tracer.stages.registry import TracedCall, further_stages
from fx_lsp.tracer.world.alone import become_world
from fx_lsp.tracer.world.surroundings import Surroundings, surroundings
from fx_lsp.tracer.world.world import World, current

Completion = Callable[[Trace], Trace]
"""Returns a trace with a slower part added, after the first reply was sent."""
STARTED = time.time()
"""The time at which this module was imported, before any code of the user."""


def run(request: TraceRequest) -> TraceReply:
    """Load the target, resolve its inputs and trace it. A mistake of the user's code is returned as a Failure."""
    *_, reply = replies(request)
    return reply


def replies(request: TraceRequest) -> Iterator[TraceReply]:
    """Yield the reply of `run`, after the same reply without names of sizes if these take longer.

    Code that always puts some tensors on a GPU, and others only if a GPU is available, is written for a machine with
    one. So is a program that does not reach its training loop without a GPU.
    """
    return _replies(request, _asks_memory(request) or any("@cuda" in comment.text for comment in request.given))


def _replies(request: TraceRequest, available: bool) -> Iterator[TraceReply]:
    """Yield the replies. `available` is the answer that `torch.cuda.is_available()` gives to the code."""
    started = time.perf_counter()
    warnings.simplefilter("ignore")
    watch_reads()
    linecache.cache[request.file] = (len(request.source), None, request.source.splitlines(True), request.file)
    insert_user_paths(list(request.roots))
    if request.world is not None and current() is None:
        become_world(request, request.world)
    process = current()
    world = process if process is not None and process.is_entered else None
    before = process.before if process is not None else frozenset(sys.modules)
    site_dirs = _site_dirs()
    package_dir = _package_dir(request, site_dirs)
    if process is None:
        forget_changed(request, package_dir, STARTED)
    sources = Sources(request.file, package_dir)
    basis = _Basis(request, package_dir, site_dirs, before, process)
    devices = Devices()
    try:
        with _entered(request, world, available) as around:
            devices, builds = around.devices, request.kind == "graph"
            with marked(sources, _replies.__code__) if builds else nullcontext():
                if _asks_memory(request):
                    memory = training_memory(request, sources, around.mode)
                    reply = _with_notes(TraceReply(_of_memory(request, memory, started)), around.notes)
                    yield _with_dependencies(reply, basis)
                    return
                if request.kind == "script":
                    script = rehearse(request, sources, around.mode)
                    target = LoadedTarget(request, Loaded(script.module, True), sources, around, started)
                    reply = _of_script(target, script)
                else:
                    loaded = _loaded(request, around.mode, world)
                    basis.whole = loaded.whole
                    if builds:
                        reply = graph_reply(request, loaded, sources, around.mode, started)
                    else:
                        seen = world.offers() if world is not None else ()
                        reply = yield from _traced(LoadedTarget(request, loaded, sources, around, started, seen), basis)
    except (LoadError, SystemExit) as error:
        cause = error.__cause__ if isinstance(error, LoadError) and error.__cause__ is not None else error
        reply = TraceReply(load_failure(cause, sources))
    if not available and devices.undecided and _stops(request, reply.outcome):
        if world is not None:
            world.leave()
        forget_project(request.roots, before)
        yield from _replies(request, available=True)
    else:
        yield _with_dependencies(reply, basis)


def _entered(request: TraceRequest, world: World | None, available: bool) -> AbstractContextManager[Surroundings]:
    """Return the surroundings of a request: those of the world, if this process is one."""
    if world is not None:
        return nullcontext(world.around)
    return surroundings(request.source, bool(request.work) and not _asks_memory(request), available)


def _asks_memory(request: TraceRequest) -> bool:
    """Return True if the memory of a whole program is asked for."""
    return request.kind == "script" and MEMORY in read_work(request.work)


def _of_memory(request: TraceRequest, memory: StepMemory | Failure, started: float) -> Outcome:
    """Return the trace of a program that has nothing but its memory."""
    if isinstance(memory, Failure):
        return memory
    target, seconds = f"{request.file}::{request.name}", time.perf_counter() - started
    return Trace(target, (), (), (), (), (), seconds, torch.__version__, memory=memory)


def _stops(request: TraceRequest, outcome: Outcome) -> bool:
    """Return True for a failure that may not occur on a machine with a GPU."""
    return isinstance(outcome, Failure) and (request.kind == "step" or outcome.kind == "device")


@dataclass(frozen=True)
class LoadedTarget:
    """Hold a target whose module is loaded, in its surroundings. `seen` are inputs of its calls in programs.

    `started` is the time at which its trace started.
    """

    request: TraceRequest
    loaded: Loaded
    sources: Sources
    around: Surroundings
    started: float
    seen: tuple[Offer, ...] = ()


def _of_script(target: LoadedTarget, script: Rehearsed) -> TraceReply:
    """Return the reply for a script: the trace of its top level, or its mistake with the part that ran before.

    The run of the whole script finds the mistakes: a failure of its top level alone is information.
    """
    request, wrong = replace(target.request, kind="function", given=(), callers=(), programs=()), script.wrong
    if script.tree is None:
        return TraceReply(wrong or nothing(request.name))
    reply, _ = _trace(replace(target, request=request), script.tree)
    outcome = reply.outcome
    if wrong is not None:
        outcome = replace(wrong, partial=known_trace(outcome))
    elif isinstance(outcome, Failure):
        outcome = replace(outcome, severity="information")
    return _with_notes(replace(reply, outcome=outcome), target.around.notes)


def _traced(target: LoadedTarget, basis: _Basis) -> Generator[TraceReply, None, TraceReply]:
    """Yield early replies for the target, and return the complete one."""
    request = target.request
    reply, later = _trace(target, syntax_of(request, request.source))
    missing, notes = target.loaded.missing, target.around.notes
    if isinstance(reply.outcome, Failure) and missing is not None and notes.has_missed(missing):
        reply = TraceReply(load_failure(missing, target.sources))
    reply = _with_notes(reply, notes)
    outcome = reply.outcome
    for complete in later:
        if not isinstance(outcome, Trace):
            break
        yield replace(_with_dependencies(reply, basis), final=False)
        with forbid_effects():
            outcome = complete(outcome)
        reply = replace(reply, outcome=outcome)
    return reply


@dataclass
class _Basis:
    """Hold the sources of the dependencies of a reply; `whole` is True if more than the slice had to run."""

    request: TraceRequest
    package_dir: str | None
    site_dirs: list[str]
    before: frozenset[str]
    process: World | None
    whole: bool = False


def _loaded(request: TraceRequest, mode: FakeTensorMode, world: World | None) -> Loaded:
    """Return the target's module from the program that has run, or import it."""
    if world is not None:
        return world.module_of(request)
    with forbid_effects(), started_as(request.file):
        loaded = load(request, mode)
    flags_parsed()
    return loaded


def _with_notes(reply: TraceReply, notes: Notes) -> TraceReply:
    """Add the notes of a run to its trace."""
    outcome = reply.outcome
    if not isinstance(outcome, Trace):
        return reply
    world = current()
    is_guessed = any(item.is_guess for item in outcome.inputs)
    stopped = world.stopped if world is not None and is_guessed else ()
    return replace(reply, outcome=replace(outcome, notes=(*outcome.notes, *notes.report(), *stopped)))


def _with_dependencies(reply: TraceReply, basis: _Basis) -> TraceReply:
    """Add to a reply the files and packages that it depends on."""
    request, process = basis.request, basis.process
    programs = [program.file for program in request.programs]
    files, packages = dependencies(request, basis.package_dir, basis.site_dirs, basis.before)
    if process is not None:
        needed = process.needed(request.file, *programs)
        files = tuple(file for file in files if file in needed)
    if basis.whole:
        files = (*files, request.file)
    elif process is not None and (process.call is not None or process.ran):
        files = (*files, ran(request.file, process.functions_run(request.file) | process.ran))
    else:
        files = (*files, f"{request.file}::{request.name}")
    files = (*files, *(source.found.file for source in request.passes))
    files = (*files, *(file for file in programs if file != request.file))
    files = (*files, *reads().dependencies(), *foreign_modules(request.roots), *package_files())
    if isinstance(reply.outcome, Failure) and reply.outcome.missing_module:
        files = (*files, *reads().dependencies_of_search(reply.outcome.missing_module))
    files = tuple(dict.fromkeys(files))
    return TraceReply(reply.outcome, reply.stages, files, packages)


def _trace(target: LoadedTarget, tree: ast.Module) -> tuple[TraceReply, Sequence[Completion]]:
    """Trace the target that `tree` defines; return the reply, and the slower steps that complete it."""
    request, loaded, sources = target.request, target.loaded, target.sources
    mode, devices = target.around.mode, target.around.devices
    notes = list(loaded.notes)
    if not HAS_COLUMNS:
        notes.append("Python before 3.11 stores no column numbers: operations are linked to lines")
    elif not HAS_ANNOTATE:
        notes.append(f"torch {torch.__version__} stores no annotations: operations are not linked to expressions")
    lines = request.source.splitlines()
    stopped: dict[Failure, Stopped] = {}
    prepared = _prepared(target, tree, stopped)
    if isinstance(prepared, Failure):
        return _failed(target, prepared, stopped, tree), ()
    if ran_without_tensors(request, prepared.run):
        return TraceReply(nothing(request.name)), ()

    def new_names() -> Names:
        return Names(sources, {request.file: tree}, returned_names(tree, _definition(request)))

    _return_losses(request)
    decisions = Decisions(sources, lines)
    sources.name_modules(prepared.call.modules)
    begun = time.process_time()
    with decided_by(decisions):
        tried = _captured(prepared, mode, sources, new_names, request)
    if isinstance(tried, Failure):
        recorded = _recorded(request, prepared, sources, tree, mode)
        return _failed(target, tried, {tried: recorded, **stopped}, tree), ()
    prepared, captured = tried
    capture_seconds = time.process_time() - begun
    captured.notes = (*captured.notes, *_notes_on_inference(captured, prepared))
    symbols = prepared.conditions.symbols
    shown = stages(captured)
    infos = [StageInfo(s.name, count_ops(s), len(s.nodes)) for s in shown]
    forward = shown[0] if captured.inference is not None else shown[1]
    remarks: list[Remark] = []
    traced = TracedCall(
        replace(request, work=plain_work(request.work)),
        prepared.call,
        captured,
        shown,
        sources,
        mode,
        devices.on_cpu,
        new_names,
        prepared.conditions,
        prepared.inputs,
        prepared.run.result,
        request.source if loaded.whole else request.sliced,
        constructor=prepared.constructor,
        program_calls=prepared.program_calls,
    )
    if traced.request.work:
        try:
            with under(mode, prepared.conditions), decided_by(decisions):
                ledger = further_stages(traced)
        except ValueError as error:
            return TraceReply(Failure("unsupported", str(error))), ()
        infos, shown, remarks = ledger.infos, ledger.stages, list(ledger.remarks)
    else:
        remarks += _of_operators(captured)
    remarks += captured.remarks
    if not request.work:
        remarks += [*_of_annotations(request, loaded, tree, prepared), *_of_training(request, loaded, tree, captured)]
        remarks += _of_registration(request, tree, prepared, captured)
    saved = _saved(captured)
    if saved and symbols is not None and (counted := symbols.counted()):
        notes.append(f"sizes in bytes count {counted}")
    outcome: Outcome = Trace(
        target=f"{request.file}::{request.name}",
        inputs=tuple(_with_settled_sizes(i, symbols) for i in prepared.inputs) if symbols else prepared.inputs,
        stages=tuple(infos),
        saved=tuple(saved),
        values=tuple(prepared.run.values),
        outputs=tuple(_output_specs(forward, captured)),
        seconds=time.perf_counter() - target.started,
        torch=torch.__version__,
        notes=(*notes, *prepared.notes, *captured.notes, *devices.notes()),
        remarks=prepared.reported(
            (
                *(symbols.remarks() if symbols is not None else ()),
                *decisions.remarks(),
                *prepared.remarks,
                *remarks,
            )
        ),
        refused=captured.refused,
        unreached=prepared.unreached,
        variants=prepared.variants,
        modules=tuple(modules_of(prepared.call.modules)),
        capture_seconds=capture_seconds,
        context=prepared.call.context or PLAIN_CONTEXT,
    )
    reply = TraceReply(outcome, {s.name: wire.encode_stage(s) for s in shown})
    return reply, [*_naming(loaded, prepared, tree, traced), *_breaking(traced)]


def _prepared(target: LoadedTarget, tree: ast.Module, stopped: dict[Failure, Stopped]) -> Prepared | Failure:
    """Find the object and its inputs; variables that a step reads from missing data become inputs too."""
    request, loaded, sources, mode = target.request, target.loaded, target.sources, target.around.mode
    inputs: tuple[str, ...] = ()
    lines = request.source.splitlines()
    while True:
        try:
            wanted = _target(request, loaded, mode, inputs)
        except AttributeError:
            wanted = None
            if find_function(tree, request.name) is None or not request.callers:
                return NOT_DEFINED.failure(name=request.name)
        if isinstance(wanted, Failure):
            return wanted
        with forbid_effects(), mode, decided_by(Decisions(sources, lines)):
            of_module = LoadedRequest(request, loaded.module, sources, tree, mode)
            prepared = prepare(of_module, wanted, stopped, seen=target.seen)
        run = stopped.get(prepared) if isinstance(prepared, Failure) and request.step else None
        more = inputs_from_data(request, run.run.error) if run is not None else ()
        if not {*more} - {*inputs}:
            return prepared
        inputs = tuple(dict.fromkeys((*inputs, *more)))


def _return_losses(request: TraceRequest) -> None:
    """Make a training step that its program called return its losses; a step that is loaded alone already does."""
    world = current()
    if request.step and request.kind != "step" and world is not None and world.is_entered:
        world.return_losses(request)


def _definition(request: TraceRequest) -> str:
    """Return the qualified name of the function of a target: `forward` for a module."""
    return request.name if request.kind != "module" else f"{request.name}.forward"


def _of_annotations(request: TraceRequest, loaded: Loaded, tree: ast.Module, prepared: Prepared) -> tuple[Remark, ...]:
    function, namespace = find_function(tree, _definition(request)), vars(loaded.module)
    return annotation_remarks(function, namespace, request.file, prepared.run, prepared.inputs)


def _naming(loaded: Loaded, prepared: Prepared, tree: ast.Module, traced: TracedCall) -> Iterator[Completion]:
    """Yield the step that adds the names of sizes, unless there are none or the sizes are names already."""
    is_named = traced.symbolic or traced.request.work
    find_names = None if is_named else finder_of_names(prepared, tree, traced.ran, traced.sources, traced.mode)
    if find_names is not None:
        yield lambda trace: replace(trace, named=find_names())


def _breaking(traced: TracedCall) -> Iterator[Completion]:
    """Yield the steps that add graph breaks and recompilations to the trace of a compiled target."""
    if traced.request.compiled and not traced.request.work:
        yield lambda trace: replace(trace, remarks=(*trace.remarks, *graph_breaks(traced)))
        yield lambda trace: replace(trace, remarks=(*trace.remarks, *recompilations(traced)))


def _recorded(
    request: TraceRequest, prepared: Prepared, sources: Sources, tree: ast.Module, mode: FakeTensorMode
) -> Stopped:
    """Run a target that cannot be captured once more, to record its operations."""
    run, decisions = Run(recorded=[]), Decisions(sources, request.source.splitlines())
    with forbid_effects(), mode, under(mode, prepared.conditions), decided_by(decisions):
        watched_run(sources, prepared.call.run, RUN_CODE, Statements(tree, request.file), run)
    return Stopped(run, prepared.call, prepared.conditions, prepared.inputs)


def _failed(target: LoadedTarget, failure: Failure, stopped: Mapping[Failure, Stopped], tree: ast.Module) -> TraceReply:
    """Return the reply for a target that fails, with the part that ran before."""
    run = stopped.get(failure)
    if run is None:
        return TraceReply(failure)
    mode = target.around.mode
    with mode, under(mode, run.conditions):
        ran = partial_trace(target.request, target.sources, tree, run)
    if ran is None:
        return TraceReply(failure)
    partial, stage = ran
    encoded = {} if stage is None else {stage.name: wire.encode_stage(stage)}
    return TraceReply(replace(failure, partial=partial), encoded)


def _target(request: TraceRequest, loaded: Loaded, mode: FakeTensorMode, inputs: tuple[str, ...]) -> Any:
    """Return the object that the request names, or the reason why there is no such step. Raises AttributeError.

    `inputs` are the variables from missing data that become parameters of a step.
    """
    world = current()
    reached: Any = world.call.function if world is not None and world.call is not None else None
    if request.kind == "step":
        if reached is None:
            return not_reached(request, world.reason if world is not None else "")
        with mode:
            return step_function(request, reached, inputs)
    target = reached or find(loaded.module, request.name)
    if request.step and request.kind == "function" and (inputs or lacks_data(target)):
        with mode:
            return step_function(request, target, inputs)
    return (cannot_run(request, target) if request.step else None) or target


def _captured(
    prepared: Prepared,
    mode: FakeTensorMode,
    sources: Sources,
    new_names: Callable[[], Names],
    request: TraceRequest,
) -> tuple[Prepared, Captured] | Failure:
    """Capture the prepared call, or the alternative one if this fails."""
    try:
        with forbid_effects(), under(mode, prepared.conditions):
            symbolic = prepared.conditions.symbols is not None
            return prepared, capture_what_is_possible(prepared.call, sources, new_names, symbolic)
    except (Exception, EffectBlocked) as error:
        with forbid_effects(), mode:
            otherwise = prepared.otherwise()
        if isinstance(otherwise, Failure):
            return otherwise
        if otherwise is None:
            return _capture_failure(error, sources, request, prepared)
        if not otherwise.conditions.drawn:
            otherwise.notes.append(f"named sizes are replaced by numbers, because with symbols {sentence(error)}")
        return _captured(otherwise, mode, sources, new_names, request)


def _with_settled_sizes(item: InputSpec, symbols: Symbols) -> InputSpec:
    """Add to an input the values that were chosen for its named sizes: `with B = 16`."""
    spec = parse_spec(item.spec)
    names = dict.fromkeys(s for s in (spec.sizes if spec is not None else ()) if isinstance(s, str))
    settled = [f"{n} = {value}" for n in names if (value := symbols.value_of(n)) != n]
    detail = ", ".join([*([item.detail] if item.detail else []), f"with {' and '.join(settled)}"])
    return replace(item, detail=detail) if settled else item


def _notes_on_inference(captured: Captured, prepared: Prepared) -> list[str]:
    """Return a note on why a differentiable target has no backward graph."""
    outputs = [tensor for _, tensor in tensors_in(prepared.run.result, "out") if tensor.requires_grad]
    if captured.inference is None or captured.notes or not outputs:
        return []
    if any(tensor.grad_fn is not None and not tensor._is_view() for tensor in outputs):
        return []  # it follows from a parameter that the target itself makes
    return [
        "every differentiable output is a view of an input: PyTorch differentiates these views outside of the graph"
    ]


def _capture_failure(error: BaseException, sources: Sources, request: TraceRequest, prepared: Prepared) -> Failure:
    lines = request.source.splitlines()
    failure = showing_inputs(failure_of(error, sources, None, lines, "information"), prepared.inputs)
    if failure.kind == "error":
        uncaptured = NOT_CAPTURED.failure(failure.span, hint=failure.hint, reason=failure.message)
        return replace(uncaptured, inputs=prepared.inputs)
    return failure


def _of_training(request: TraceRequest, loaded: Loaded, tree: ast.Module, captured: Captured) -> Iterator[Remark]:
    definition = find_class(tree, request.name) if request.kind == "module" else None
    cls = getattr(loaded.module, request.name, None)
    if definition is None or not isinstance(cls, type) or not captured.untrained:
        return iter(())
    parameters = [item.name for item in captured.inputs if item.kind == "parameter"]
    return untrained_layers(cls, definition, request.file, captured.untrained, parameters)


def _of_registration(request: TraceRequest, tree: ast.Module, prepared: Prepared, captured: Captured) -> list[Remark]:
    used = {id(item.tensor) for item in captured.inputs} if captured.joint is not None else set[int]()
    roots = prepared.call.modules.values()
    return [remark for root in roots for remark in unregistered(root, used, tree, request.file)]


def _of_operators(captured: Captured) -> list[Remark]:
    module = captured.computing
    return disagreements(module.graph, captured.names) if module is not None and captured.names is not None else []


def _saved(captured: Captured) -> list[Saved]:
    if captured.backward is None or captured.names is None:
        return []
    return saved_values(captured.saved, captured.backward, captured.names)


def _output_specs(stage: Stage, captured: Captured) -> list[str]:
    specs = {n.name: n.spec for n in stage.nodes}
    module = captured.forward if captured.inference is None else captured.inference
    assert module is not None and captured.names is not None
    returned: Any = module.graph.output_node().args[0]
    names = [captured.names[value] if isinstance(value, torch.fx.Node) else "" for value in returned]
    return [specs.get(name) or "" for name in names[: len(captured.outputs)]]


def _site_dirs() -> list[str]:
    paths = sysconfig.get_paths()
    return list({os.path.abspath(p) for p in (paths["purelib"], paths["platlib"], *site.getsitepackages())})


def _package_dir(request: TraceRequest, site_dirs: list[str]) -> str | None:
    """Return the folder of the top-level package of a target in an installed package; None for other targets."""
    for directory in site_dirs:
        if request.file.startswith(directory + os.sep):
            top = os.path.relpath(request.file, directory).split(os.sep)[0]
            return os.path.join(directory, top)
    return None
