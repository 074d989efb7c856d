"""Generate the file of Triton kernels for a target."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from textwrap import wrap
from typing import TYPE_CHECKING

import torch
from torch import fx

from fx_lsp.choices import read_choices
from fx_lsp.codegen.file.functions import FileSpec
from fx_lsp.codegen.file.host_code import CannotWrite
from fx_lsp.codegen.file.module import GeneratedFile, reserved_names
from fx_lsp.codegen.generate import generate
from fx_lsp.codegen.graph.decompositions import composites_decomposed, decompositions
from fx_lsp.codegen.inspect.compilation import span_of
from fx_lsp.codegen.ir.kernel import Kernel, KernelLaunch
from fx_lsp.codegen.ir.lowerings import operation
from fx_lsp.codegen.ir.node_facts import facts_of
from fx_lsp.codegen.ir.template import MatmulTemplate
from fx_lsp.codegen.ir.text import LINE_WIDTH
from fx_lsp.codegen.pipeline import Graphs, Watch, partition
from fx_lsp.model import Node, Remark, Stage, TargetKind
from fx_lsp.tracer.capture.aot import Captured, CaptureOptions, capture
from fx_lsp.tracer.capture.graphs import Names, stage_of
from fx_lsp.tracer.compat import without_cpu_libraries
from fx_lsp.tracer.kernels.naming import naming_of
from fx_lsp.tracer.kernels.open_sizes import with_open_sizes
from fx_lsp.tracer.kernels.selftest import SelfTest, self_test
from fx_lsp.tracer.kernels.signature import settings, signature, value_checks
from fx_lsp.tracer.kernels.subject import (
    GraphInput,
    accepted_inputs,
    graph_inputs,
    hints_of,
    results_of,
    returned,
    same_tensors,
    size_checks,
    size_texts,
)
from fx_lsp.tracer.program.devices import left
from fx_lsp.tracer.program.effects import forbid_effects
from fx_lsp.tracer.run.call import Call
from fx_lsp.tracer.run.conditions import under
from fx_lsp.tracer.run.tensors import spec_of
from fx_lsp.tracer.run.values.symbols import expressions
from fx_lsp.tracer.stages.ledger import Ledger

if TYPE_CHECKING:
    from fx_lsp.tracer.stages.registry import TracedCall

TRITON = "triton"
"""The stage, and the work that produces it."""

TYPICAL_SIZE = 64
"""The least size for which kernels are tiled where a size is open and guessed: guessed sizes are small."""

MAX_CALL_DEPTH = 20_000
"""The recursion limit, for which the process's stack is large enough."""


@dataclass(frozen=True)
class KernelFile:
    """Hold a generated file, the call that it is generated from, its graphs, the names of their nodes, and the sizes
    that are open, with the hint of each.
    """

    traced: TracedCall
    generated: GeneratedFile
    graphs: tuple[fx.Graph, ...]
    names: Names
    hints: Mapping[str, int]


def triton(traced: TracedCall) -> Ledger:
    """Return the kernels of a target, with remarks on operations without one, at lines of the file's document. Raises
    ValueError if there cannot be any kernels.
    """
    ledger, file = Ledger(), kernels(traced)
    ledger.add(triton_stage(file), "")
    for number, call in file.generated.calls():
        span = span_of(file.generated.text, file_name(traced.request.name), number)
        ledger.remarks.append(Remark(call.sentence, span, "hint" if call.chosen else "information"))
    return ledger


def file_name(target: str) -> str:
    """Return the document name of the file of a target's kernels."""
    return f"{target}.{TRITON}.py"


def triton_stage(file: KernelFile) -> Stage:
    """Return the text of the kernels, with the operations of its lines. If both graphs have a node of one name, which
    is saved for backward, it is forward's.
    """
    lines = file.generated.nodes
    computed = {node for node in lines if node is not None}
    nodes_by_name: dict[str, Node] = {}
    for graph in file.graphs:
        for node, stage_node in zip(graph.nodes, stage_of("", graph, file.names).nodes, strict=True):
            if node in computed:
                nodes_by_name.setdefault(stage_node.name, stage_node)
    number = {name: i for i, name in enumerate(nodes_by_name, start=1)}
    origins = (number.get(file.names[node], 0) if node is not None else 0 for node in lines)
    return Stage(TRITON, tuple(nodes_by_name.values()), file.generated.text, tuple(origins))


def captured_graphs(traced: TracedCall, names: Names, watch: Watch | None = None) -> tuple[Captured, Graphs]:
    """Capture a target again, for kernels: forward and backward, split by the pipeline, or the inference graph before
    any rewrite.
    """
    graphs = Graphs(read_choices(traced.options), watch=watch, generates=partial(_generates, traced))
    with forbid_effects(), composites_decomposed():
        how = CaptureOptions(
            traced.captured.inference is None,
            traced.symbolic,
            decompositions(),
            partial(partition, graphs),
            others={"keep_inference_input_mutations": False},
        )
        captured = capture(traced.call, traced.sources, names, how)
    if captured.inference is not None:
        graphs.joint = captured.inference.graph
    return captured, graphs


def _generates(traced: TracedCall, node: fx.Node) -> bool:
    """Return True if Inductor computes an operation in kernels."""
    from fx_lsp.tracer.passes.inductor_kernels import inductor_generates  # it loads the compiler

    with left(traced.devices):
        return inductor_generates(node)


def kernels(traced: TracedCall) -> KernelFile:
    """Return the generated file of a target. Raises ValueError if there cannot be any.

    It takes as many sizes as its code leaves open, if none of its operations loses a kernel for that. By default, it
    has the same steps as for fixed sizes, and its kernels loop over no open size, divide no index by one, and pad no
    operand to one; but all sizes that are guessed are open, because others occur.
    """
    fixed, sizes = file_of(traced), read_choices(traced.options).sizes
    if sizes == "traced":
        return fixed
    is_plain = sizes == "auto" and not _is_guessed(traced)

    def accept(free: TracedCall) -> tuple[KernelFile | None, set[str]]:
        try:
            with under(traced.mode, free.conditions):
                file = file_of(free)
        except Exception:  # an operation, or PyTorch, needs a number
            return None, set()
        costly = {size for kernel in _kernels(file) for size in kernel.costly_sizes} if is_plain else set[str]()
        worse = _steps(file) != _steps(fixed) if is_plain else _loses_kernels(file, fixed)
        return None if worse else file, costly

    with without_cpu_libraries():  # kernels are for a GPU
        return with_open_sizes(traced, accept) or fixed


def _is_guessed(traced: TracedCall) -> bool:
    """Return True if no text and no program says what the inputs are."""
    return any(item.guessed for item in traced.inputs)


def _steps(file: KernelFile) -> list[str | int]:
    """Return the steps of a file: the number of a kernel, of the operations that Inductor compiles, or an operation."""
    steps = [step for program in file.generated.programs for step in program.steps]
    numbers = {name: i for i, name in enumerate(dict.fromkeys(k.name for k in _kernels(file)))}
    return [
        operation(step)
        if isinstance(step, fx.Node)
        else numbers[step.kernel.name]
        if isinstance(step, KernelLaunch)
        else -len(step.nodes)
        for step in steps
        if not isinstance(step, fx.Node) or isinstance(step.meta.get("val"), torch.Tensor)
    ]


def _kernels(file: KernelFile) -> list[Kernel]:
    """Return the kernels of a file, also those that Inductor replaces."""
    kernels: list[Kernel] = []
    for step in (step for program in file.generated.programs for step in program.steps):
        if not isinstance(step, fx.Node):
            kernels += [step.kernel] if isinstance(step, KernelLaunch) else step.replaces
    return kernels


def _loses_kernels(file: KernelFile, fixed: KernelFile) -> bool:
    """Return True if PyTorch computes something for open sizes that has a kernel for fixed ones, other than a matrix
    multiplication, for which the library is as fast.
    """
    return bool(_fallbacks(file) - _fallbacks(fixed) or _templates(fixed) - _templates(file))


def _fallbacks(file: KernelFile) -> Counter[str]:
    """Count the operations without a kernel, by their name."""
    calls = [call for program in file.generated.programs for call in program.calls]
    return Counter(operation(call.node) for call in calls if not call.chosen)


def _templates(file: KernelFile) -> Counter[str]:
    """Count the template kernels, except matrix products, by their kind."""
    templates = [facts_of(node).template for graph in file.graphs for node in graph.nodes]
    return Counter(type(t).__name__ for t in templates if t is not None and not isinstance(t, MatmulTemplate))


def file_of(traced: TracedCall, watch: Watch | None = None) -> KernelFile:
    """Return the file of a call with its sizes. Raises ValueError if there cannot be any."""
    names = traced.new_names()
    captured, graphs = captured_graphs(traced, names, watch)
    forward = captured.computing
    assert forward is not None
    title = function_name(traced.request.name, traced.request.kind)
    hints, least = hints_of(captured), TYPICAL_SIZE if _is_guessed(traced) else 0
    reserved = [*reserved_names(title), *_parameters(traced.call), *hints]
    naming = naming_of(traced, captured, graphs.saved, names, reserved)
    subject = subject_of(traced, captured, forward.graph, title)
    try:
        with deep_recursion():
            sizes = {name: max(size, least) for name, size in hints.items()}
            file = generate(subject, graphs, naming, sizes)
    except CannotWrite as error:
        place = next(iter(names.chain(error.node)), None)
        where = f" (line {place.line})" if place is not None else ""
        raise ValueError(f"no kernels can be generated: {error.why}{where}") from error
    modules = (forward, captured.backward)
    graphs_ = tuple(module.graph for module in modules if module is not None)
    return KernelFile(traced, file, graphs_, names, hints)


@contextmanager
def deep_recursion() -> Generator[None, None, None]:
    """Allow recursion inside as deep as the chain of operations of a graph."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, MAX_CALL_DEPTH))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def function_name(target: str, kind: TargetKind) -> str:
    """Return the generated function's name: `rms_norm` for `rms_norm`, for `RMSNorm` and for `Model.rms_norm`."""
    last = target.rpartition(".")[2]
    if kind != "module":
        return last
    parts: list[str] = []
    for i, c in enumerate(last):
        before, after = last[i - 1 : i], last[i + 1 : i + 2]
        if c.isupper() and before and before != "_" and (not before.isupper() or after.islower()):
            parts.append("_")
        parts.append(c.lower())
    return "".join(parts)


def _parameters(call: Call) -> list[str]:
    """Return the parameters that are not tensors: their names are reserved."""
    return [name for name, value in signature(call).values if not isinstance(value, torch.Tensor)]


def subject_of(traced: TracedCall, captured: Captured, graph: fx.Graph, name: str) -> FileSpec:
    """Return the description of the function `name` of a file: its parameters and results, as in the user's code, and
    its checks.
    """
    call = traced.call
    parameters = signature(call)
    inputs = graph_inputs(call, captured, graph, parameters)
    results = results_of(captured, graph)
    sizes = size_texts(inputs, graph, results.positions)
    result = returned(traced.result, results.positions, sizes)
    by_id = {id(i.item.tensor): i.expression for i in inputs}
    expressions = [by_id[id(item.tensor)] for item in captured.inputs]
    extra = {i.expression: None for i in inputs if i.outside}
    checks = [*value_checks(parameters), *same_tensors(parameters)]
    accepted, conditions = accepted_inputs(inputs, traced.captured.refused)
    conditions += size_checks(inputs, traced.conditions.symbols)
    test = self_test(traced, captured, name, parameters, inputs)
    is_forward = traced.request.kind == "module" and parameters.receiver is not None
    replaces = f"{traced.request.name}.forward" if is_forward else ""
    return FileSpec(
        name,
        parameters.text(list(extra)),
        tuple(i.expression for i in inputs),
        results.total,
        tuple(checks),
        tuple((expressions[i], captured.inputs[i].tensor.requires_grad) for i in results.changed),
        result.text,
        results.tangents,
        (*_description(inputs, name, replaces, test), *_measured(traced.options.get("measured", ""))),
        (*test.future, *result.imports, *test.imports),
        result.definitions,
        test.definitions,
        test.main,
        tuple(settings(parameters.receiver)),
        tuple(accepted),
        tuple(conditions),
        test.original,
    )


def _measured(sentence: str) -> list[str]:
    """Return the lines of a docstring for a sentence on times, which may be from a file of the project."""
    plain = "".join(c if c.isprintable() else " " for c in sentence).replace("\\", "/").replace('"', "'")
    return ["", *wrap(plain, LINE_WIDTH)] if plain else []


def _description(inputs: Sequence[GraphInput], name: str, replaces: str, test: SelfTest) -> list[str]:
    """Return the lines that describe the function `name`: its inputs, the method that it `replaces`, the class with
    this method, and why there is no comparison with the original.
    """
    width = max((len(i.expression) for i in inputs), default=0)
    lines = [f"    {i.expression:<{width}}  {spec_of(i.item.tensor)}" for i in inputs]
    if lines:
        is_open = any(not size.is_Integer for i in inputs for size in expressions(i.item.tensor.shape))
        title = "Made for these sizes, and for any where one has a name" if is_open else "Made for these sizes alone"
        lines = [title, "", *lines]
    if replaces:
        lines += ["", f"`{replaces} = {name}` uses them instead."]
    if test.module:
        sentence = f"The class `{test.module}` of this file uses them. It has the state_dict of the original."
        lines += wrap(sentence, LINE_WIDTH)
    if test.missing:
        lines += [*([""] if inputs else []), f"It is not compared with the original: {test.missing}."]
    return lines
