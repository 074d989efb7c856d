"""Run the kernels of a target under Triton's interpreter, and compare what each launch writes with the graphs."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from fx_lsp import files
from fx_lsp.choices import NO_KERNELS
from fx_lsp.codegen.graph.templates.template_kernel import template_kernel
from fx_lsp.codegen.ir.kernel import KernelLaunch
from fx_lsp.codegen.pipeline import Graphs, Rewrite
from fx_lsp.codegen.triton.program import Program
from fx_lsp.tracer.failures.exceptions import sentence
from fx_lsp.tracer.kernels.triton import KernelFile, file_of, function_name
from fx_lsp.tracer.passes.pass_graphs import copied_module
from fx_lsp.tracer.stages.differences import ComparedStage, add_differences
from fx_lsp.tracer.stages.ledger import Heading, Ledger
from fx_lsp.tracer.stages.node_values import (
    InputPool,
    NodeComparison,
    NodeRun,
    NodeValue,
    Tensors,
    compare_nodes,
    real_inputs,
    run_nodes,
    with_values,
)

if TYPE_CHECKING:
    from fx_lsp.tracer.stages.registry import TracedCall

INTERPRETER = "fx_lsp.numerics.interpreter"
"""The module that enables Triton's interpreter when it is imported."""


@dataclass
class LaunchRecord:
    """Hold what launches of a program have written, by node, and the kernel that wrote each."""

    values: dict[fx.Node, torch.Tensor] = field(default_factory=dict[fx.Node, torch.Tensor])
    kernels: dict[fx.Node, str] = field(default_factory=dict[fx.Node, str])


class CannotCompare(Exception):
    """There is nothing to compare kernels with; the message is a clause with the reason."""


def compare_kernels(traced: TracedCall) -> Ledger:
    """Return the graphs that the kernels of a target are generated from, and a page on launches that write other
    numbers than these. Raises ValueError if there cannot be any kernels.
    """
    joint: list[fx.GraphModule] = []

    def watch(rewrite: Rewrite, graphs: Graphs, broken: Sequence[str] | None) -> None:
        if not joint and graphs.joint is not None:
            owner = graphs.joint.owning_module
            joint.append(copied_module(fx.GraphModule(owner if owner is not None else torch.nn.Module(), graphs.joint)))

    options = {**traced.options, "sizes": "traced", "inductor": NO_KERNELS}
    file = file_of(replace(traced, options=options), watch)
    ledger, pool, rows = Ledger(), InputPool(), list[ComparedStage]()
    before = run_nodes(joint[0].graph, file.names, pool)
    programs = file.generated.programs
    with _interpreted(file.generated.text) as module:
        for which, program, graph in zip(("forward", "backward"), programs, file.graphs, strict=False):
            heading = Heading(which, f"the graph that the kernels of {which} compute")
            stage = ledger.begin(heading, graph, file.names).stage
            label = f"kernels {which}"
            try:
                right = _reference(file, graph, pool, before)
                record = _run(module, f"{_stem(traced)}_{which}", program, (file, graph, pool, right))
            except Exception as error:
                trouble = str(error) if isinstance(error, CannotCompare) else f"they cannot be run: {sentence(error)}"
                rows.append(ComparedStage(label, stage, NodeComparison(), trouble, True))
                continue
            written = {file.names[node]: (value,) for node, value in record.values.items()}
            writers = {file.names[node]: kernel for node, kernel in record.kernels.items()}
            comparison = compare_nodes(with_values(right, written), right, "part")
            rows.append(ComparedStage(label, stage, comparison, "", True, writers))
            before = replace(before, values={**before.values, **right.values})
    add_differences(ledger, rows)
    return ledger


def _stem(traced: TracedCall) -> str:
    return function_name(traced.request.name, traced.request.kind)


def _reference(file: KernelFile, graph: fx.Graph, pool: InputPool, before: NodeRun) -> NodeRun:
    """Return a run of a graph on the inputs of the run `before`. Results of template kernels, which have no operation,
    are those of the same name there. Raises CannotCompare.
    """
    if before.trouble:
        raise CannotCompare(before.trouble)
    reads = {n.name: tuple(file.names[i] for i in n.args[0].all_input_nodes) for n in graph.nodes if _is_templated(n)}
    run = run_nodes(_without_templates(graph, reads), file.names, pool, before)
    if run.trouble:
        raise CannotCompare(run.trouble)
    values: dict[str, NodeValue] = {}
    for name, value in run.values.items():
        eager = before.values.get(name)
        if value.is_input and value.tensors and (eager is None or not _same(value.tensors, eager.tensors)):
            raise CannotCompare(f"the graph reads {name}, which eager does not compute")
        values[name] = value if eager is None else _joined(value, eager)
    for node in graph.nodes:
        if node.name in reads:
            name = file.names[node]
            values[name] = replace(before.values[name], reads=reads[node.name], is_input=False)
    in_order = [file.names[node] for node in graph.nodes if file.names[node] in values]
    return NodeRun({name: values[name] for name in in_order}, run.results)


def _without_templates(graph: fx.Graph, results: Collection[str]) -> fx.Graph:
    """Return a copy of a graph whose inputs include the results of template kernels."""
    copy = copied_module(fx.GraphModule(graph.owning_module or torch.nn.Module(), graph)).graph
    for node in [n for n in copy.nodes if n.name in results]:
        name = node.name
        with copy.inserting_before(next(iter(copy.nodes))):
            new = copy.placeholder(name)
        new.meta = dict(node.meta)
        node.replace_all_uses_with(new)
        copy.erase_node(node)
        new.name = name
    for node in [n for n in copy.nodes if n.target is template_kernel]:
        copy.erase_node(node)
    return copy


def _joined(value: NodeValue, eager: NodeValue) -> NodeValue:
    """Return the value with the numbers of eager if it is the same one, as these have all of eager's rounding."""
    names = ("value",)
    one, other = (NodeRun({"value": replace(v, drawn=False)}, names) for v in (value, eager))
    differs = compare_nodes(one, other, "part").wrong
    return value if differs or not eager.tensors else replace(value, tensors=eager.tensors, exact=eager.exact)


def _same(one: Tensors, other: Tensors) -> bool:
    return [(t.shape, t.dtype) for t in one] == [(t.shape, t.dtype) for t in other]


def _is_templated(node: fx.Node) -> bool:
    """Return True for a result of a template kernel."""
    first = node.args[0] if node.args else None
    return isinstance(first, fx.Node) and first.target is template_kernel


def _run(
    module: ModuleType, function: str, program: Program, reference: tuple[KernelFile, fx.Graph, InputPool, NodeRun]
) -> LaunchRecord:
    """Run the function of a program on the inputs of a run of its graph, and record what each launch writes.

    Memory that several launches write to, or that one changes, holds more than the value of its node.
    """
    file, graph, pool, right = reference
    launches = [step for step in program.steps if isinstance(step, KernelLaunch)]
    record = LaunchRecord()
    if not launches:
        raise CannotCompare("it has no kernels")
    writes = Counter(node for step in launches for node in step.writes)
    steps, launch = iter(launches), vars(module)["launch"]

    def recorded(kernel: Any, grid: Any, *args: Any, **blocks: Any) -> None:
        step = next(steps)
        launch(kernel, grid, *args, **blocks)
        pointers = [*step.reads, *(n for n in step.writes if n not in step.reads)]
        for node, argument in zip(pointers, args, strict=False):
            if node in step.writes and node not in step.reads and writes[node] == 1:
                record.values[node] = argument.detach().clone()
                record.kernels[node] = step.kernel.name

    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    with _disable_current_modes(), torch.random.fork_rng(devices=[]), torch.no_grad():
        values = dict(zip(placeholders, real_inputs(graph, file.names, pool, right), strict=True))
        tensors = [values[n].clone() for n in program.inputs if isinstance(values[n], torch.Tensor)]
        with mock.patch.object(module, "launch", recorded):
            getattr(module, function)(*_arguments(getattr(module, function), tensors))
    return record


def _arguments(function: Any, tensors: list[torch.Tensor]) -> Iterator[Any]:
    """Yield the arguments of an operator: tensors, alone or as a list, and flags that all gradients are needed."""
    parameters = inspect.signature(function).parameters
    if "tensors" in parameters and parameters["tensors"].annotation == list[torch.Tensor]:
        raise CannotCompare("it has too many tensors")
    yield from tensors
    yield from [True] * (len(parameters) - len(tensors))


@contextmanager
def _interpreted(text: str) -> Generator[ModuleType, None, None]:
    """Import a file of kernels for Triton's interpreter. Triton is imported again inside, without its native code."""

    def is_python(name: str) -> bool:
        return name == INTERPRETER or (name.split(".")[0] == "triton" and not name.startswith("triton._C"))

    before = {name: module for name, module in sys.modules.items() if is_python(name)}
    with mock.patch.dict(os.environ), tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for name in before:
            del sys.modules[name]
        try:
            importlib.import_module(INTERPRETER).repair()
            path = Path(folder, "kernels_of_target.py")
            files.write(path, text)
            spec = importlib.util.spec_from_file_location(path.stem, path)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            with _disable_current_modes():
                spec.loader.exec_module(module)
            yield module
        finally:
            for name in [name for name in sys.modules if is_python(name)]:
                del sys.modules[name]
            sys.modules.update(before)
