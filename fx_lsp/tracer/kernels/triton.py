"""The file of Triton kernels for a target."""

from __future__ import annotations

import linecache
import operator
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from fx_lsp.choices import read_choices
from fx_lsp.codegen.file.functions import FileSpec
from fx_lsp.codegen.file.host_code import CannotWrite
from fx_lsp.codegen.file.module import GeneratedFile, reserved_names
from fx_lsp.codegen.generate import generate
from fx_lsp.codegen.graph.decompositions import attention_decomposed, decompositions
from fx_lsp.codegen.graph.query import layout_step, view_chain
from fx_lsp.codegen.inspect.compilation import span_of
from fx_lsp.codegen.ir.index import expression
from fx_lsp.codegen.ir.kernel import Naming
from fx_lsp.codegen.ir.node_facts import facts_of
from fx_lsp.codegen.ir.text import ascii_identifier
from fx_lsp.codegen.pipeline import Graphs, Watch, partition
from fx_lsp.model import Node, Remark, Stage, TargetKind
from fx_lsp.tracer.capture.aot import Captured, capture
from fx_lsp.tracer.capture.graphs import Names, stage_of
from fx_lsp.tracer.kernels.gradients import gradients
from fx_lsp.tracer.kernels.selftest import self_test
from fx_lsp.tracer.kernels.signature import settings, signature, value_checks
from fx_lsp.tracer.kernels.subject import given_tensors, results_of, returned, same_tensors, size_texts, tensor_checks
from fx_lsp.tracer.program.effects import forbid_effects
from fx_lsp.tracer.run.call import Call
from fx_lsp.tracer.run.tensors import spec_of
from fx_lsp.tracer.run.values.symbols import size_hint
from fx_lsp.tracer.source.names import Namer, identifier
from fx_lsp.tracer.stages.ledger import Ledger

if TYPE_CHECKING:
    from fx_lsp.tracer.stages.registry import Traced

TRITON = "triton"
"""The stage, and the work that makes it."""

DEEPEST = 20_000
"""How deeply functions may call each other; the stack of a process has room for so many."""


@dataclass(frozen=True)
class Made:
    """A generated file, the graphs that it was made from, what their nodes are called, and their sizes with names."""

    generated: GeneratedFile
    graphs: tuple[fx.Graph, ...]
    names: Names
    hints: Mapping[str, int]


def triton(traced: Traced) -> Ledger:
    """The kernels of a target, with remarks on what has none: their lines are those of the file under the name that it
    has as a document. Raises ValueError where there cannot be any kernels."""
    ledger, made = Ledger(), kernels(traced)
    ledger.add(triton_stage(made), "")
    file = file_name(traced.request.name)
    for number, call in made.generated.calls():
        span = span_of(made.generated.text, file, number)
        ledger.remarks.append(Remark(call.sentence, span, "hint" if call.chosen else "information"))
    return ledger


def file_name(target: str) -> str:
    """What the file of a target's kernels is called as a document."""
    return f"{target}.{TRITON}.py"


def triton_stage(made: Made) -> Stage:
    """The text of the kernels, with the operations that its lines compute; what is saved for backward is forward's."""
    lines = made.generated.nodes
    nodes = {node: None for node in lines if node is not None}
    shown: dict[str, Node] = {}
    for graph in made.graphs:
        pairs = zip(graph.nodes, stage_of("", graph, made.names).nodes, strict=True)
        for known in (known for node, known in pairs if node in nodes):
            shown.setdefault(known.name, known)
    number = {name: i for i, name in enumerate(shown, start=1)}
    origins = (number.get(made.names[node], 0) if node is not None else 0 for node in lines)
    return Stage(TRITON, tuple(shown.values()), made.generated.text, tuple(origins))


def captured_graphs(traced: Traced, names: Names, watch: Watch | None = None) -> tuple[Captured, Graphs]:
    """Capture a target once more, for kernels: forward and backward, parted by the pipeline, or the one for inference,
    which no rewrite has seen yet."""
    graphs = Graphs(read_choices(traced.options), watch=watch)
    with forbid_effects(), attention_decomposed():
        captured = capture(
            traced.call,
            traced.sources,
            names,
            traced.captured.inference is None,
            traced.symbolic,
            decompositions(),
            partial(partition, graphs),
            options={"keep_inference_input_mutations": False},
        )
    if captured.inference is not None:
        graphs.joint = captured.inference.graph
    return captured, graphs


def kernels(traced: Traced) -> Made:
    """The file of a target. Raises ValueError where there cannot be any."""
    names = traced.new_names()
    captured, graphs = captured_graphs(traced, names)
    forward = captured.inference or captured.forward
    assert forward is not None
    title = function_name(traced.request.name, traced.request.kind)
    hints = hints_of(captured)
    taken = [*reserved_names(title), *_parameters(traced.call), *hints]
    backward = captured.backward.graph if captured.backward is not None else None
    labels = _labels(captured, forward.graph, names)
    if graphs.saved is not None:
        unnamed = [(n, of) for n, of in gradients(graphs.saved).items() if names[n] == n.name]
        labels = {n.name: f"grad_{identifier(_shown(of, names))}" for n, of in unnamed} | labels
    naming = naming_of(traced, names, taken, labels)
    subject = subject_of(traced, captured, forward.graph, title)
    try:
        with deep_recursion():
            made = generate(subject, graphs, naming, hints)
    except CannotWrite as error:
        place = next(iter(names.chain(error.node)), None)
        where = f" (line {place.line})" if place is not None else ""
        raise ValueError(f"no kernels can be generated: {error.why}{where}") from error
    graphs = (forward.graph, backward) if backward is not None else (forward.graph,)
    return Made(made, graphs, names, hints)


@contextmanager
def deep_recursion() -> Generator[None, None, None]:
    """Inside, functions may call each other as deeply as operations of a graph follow on each other."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, DEEPEST))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def hints_of(captured: Captured) -> dict[str, int]:
    """The sizes that have names, with what they count as where a number is needed."""
    sizes = [s for item in captured.inputs for s in item.tensor.shape if isinstance(s, torch.SymInt)]
    return {expression(s).name: size_hint(s) for s in sizes if expression(s).is_Symbol}


def function_name(target: str, kind: TargetKind) -> str:
    """What the generated function is called: `rms_norm` for `rms_norm`, for `RMSNorm` and for `Model.rms_norm`."""
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
    """The parameters that are no tensors: nothing else may have their names."""
    return [name for name, value in signature(call).values if not isinstance(value, torch.Tensor)]


def _labels(captured: Captured, graph: fx.Graph, names: Names) -> dict[str, str]:
    """What results are called that no variable of the user's holds, by the names of their nodes."""
    results = results_of(captured, graph)
    output = next(n for n in reversed(graph.nodes) if n.op == "output")
    found: dict[str, str] = {}
    labels = list(zip(results.positions, names.output_labels(captured.outputs), strict=True))
    labels += [(p, f"new_{identifier(captured.inputs[i].name)}") for p, i in enumerate(results.changed)]
    for position, label in labels:
        node = output.args[0][position]  # pyright: ignore[reportIndexIssue, reportArgumentType, reportOptionalSubscript]
        for own in _as_a_whole(node) if isinstance(node, fx.Node) else ():
            if own.op == "call_function" and names[own] == own.name:
                found.setdefault(own.name, label)
    return found


def _part(node: fx.Node) -> str | None:
    """What one of several results is called where the name of the operation says so: the mean of `var_mean`."""
    made = node.args[0] if node.target is operator.getitem else None
    if not isinstance(made, fx.Node) or not isinstance(made.target, torch._ops.OpOverload):
        return None
    parts = made.target.overloadpacket.__name__.split("_")
    number: Any = node.args[1]
    return parts[number] if len(parts) == len(made.target._schema.returns) > 1 else None


def _as_a_whole(node: fx.Node) -> Iterator[fx.Node]:
    """A node, and what it shows all elements of."""
    return takewhile(lambda n: n is node or n.meta["val"].numel() == node.meta["val"].numel(), view_chain(node))


def _shows(node: fx.Node) -> Iterator[fx.Node]:
    """What shows all elements of a node that nothing else needs: the views behind it, apart from results."""
    while len(node.users) == 1:
        node = next(iter(node.users))
        if layout_step(node) is None or any(u.op == "output" for u in node.users):
            return
        yield node


def _shown(node: fx.Node, names: Names) -> str:
    """What the tensor is called that a node shows all elements of."""
    *_, base = _as_a_whole(node)
    return names[base]


def naming_of(traced: Traced, names: Names, taken: Sequence[str], labels: Mapping[str, str]) -> Naming:
    """Names for a file: those of the trace, apart from what the file itself defines; `labels` are those of results."""
    namer, known = Namer(), dict[str, str]()
    for word in taken:
        namer.unique(word)
    lines = traced.request.source.splitlines()

    def name(node: fx.Node) -> str:
        own = identifier(names[node])
        if own not in known:
            label = labels.get(node.name) or (unnamed(node) if names[node] == node.name else None)
            known[own] = namer.unique(ascii_identifier(identifier(label or own)))
        return known[own]

    def unnamed(node: fx.Node) -> str | None:
        role = facts_of(node).role
        known = [v for n in role.of if (v := names.variable(n))] if role is not None else []
        if known:
            return f"grad_{known[0]}"
        shows = next((n for n in _shows(node) if n.name in labels or names[n] != n.name), None)
        if shows is not None:
            return labels.get(shows.name) or names[shows]
        return role.title if role is not None else _part(node) or _shown(node, names)

    def variable(node: fx.Node) -> str | None:
        return name(node) if node.op == "call_function" and names[node] != node.name else None

    def source(node: fx.Node) -> str:
        chain = names.chain(node)
        if not chain:
            return ""
        span = chain[0]
        inside = span.file == traced.request.file
        text = lines[span.line - 1] if inside and span.line <= len(lines) else linecache.getline(span.file, span.line)
        text = text.strip()
        shown = f"{span.file.replace(chr(92), '/').rpartition('/')[2]}:{span.line}  {text}"
        return shown if len(shown) <= 80 else f"{shown[:79]}…"

    return Naming(name, variable, source)


def subject_of(traced: Traced, captured: Captured, graph: fx.Graph, name: str) -> FileSpec:
    """How the user calls what is generated, and what is checked."""
    call = traced.call
    found = signature(call)
    given = given_tensors(call, captured, graph, found)
    results = results_of(captured, graph)
    sizes = size_texts(given, graph, results.positions)
    back = returned(traced.result, results.positions, sizes)
    by_id = {id(g.item.tensor): g.expression for g in given}
    expressions = [by_id[id(item.tensor)] for item in captured.inputs]
    extra = {g.expression: g for g in given if g.outside}
    checks = [*value_checks(found), *same_tensors(found), *tensor_checks(given, traced.captured.refused)]
    width = max((len(g.expression) for g in given), default=0)
    described = ["Made for", "", *(f"    {g.expression:<{width}}  {spec_of(g.item.tensor)}" for g in given)]
    is_forward = traced.request.kind == "module" and found.receiver is not None
    usage = ["", f"`{traced.request.name}.forward = {name}` puts them in place."] if is_forward else []
    test = self_test(traced, captured, graph, name, found, given)
    missing = [f"It is not compared with the original: {test.missing}."] if test.missing else []
    described = [*(described if given else []), *usage, *([""] if given and missing else []), *missing]
    return FileSpec(
        name,
        found.text(list(extra)),
        tuple(g.expression for g in given),
        results.total,
        tuple(checks),
        tuple((expressions[i], captured.inputs[i].tensor.requires_grad) for i in results.changed),
        back.text,
        results.tangents,
        tuple(described),
        (*test.future, *back.imports, *test.imports),
        back.definitions,
        test.definitions,
        test.main,
        tuple(settings(found.receiver)),
    )
