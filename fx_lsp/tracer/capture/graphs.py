"""Convert FX graphs to stages of the model, with readable names."""

from __future__ import annotations

import ast
import copy
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from fx_lsp.model import Node, Saved, SavedKind, Span, Stage
from fx_lsp.tracer.capture.costs import flops_of, is_collective, moved_bytes, sent_bytes
from fx_lsp.tracer.capture.node_values import is_view, stored_bytes, value_of
from fx_lsp.tracer.capture.recomputation import why_saved
from fx_lsp.tracer.capture.triton_launches import TritonLaunch, launch_of
from fx_lsp.tracer.capture.triton_launches import name_of as name_of_launch
from fx_lsp.tracer.compat import annotation, descriptor
from fx_lsp.tracer.run.call import FlatInput
from fx_lsp.tracer.run.tensors import spec_of
from fx_lsp.tracer.run.values.symbols import scalar_text
from fx_lsp.tracer.source.names import Assigned, Namer, assigned_names, identifier, variables_of
from fx_lsp.tracer.source.provenance import BACKWARD, KEY, Chain, NodeOrigin, Sources


class Names:
    """Hold the readable name of every node of a trace, and its chain of source expressions."""

    def __init__(self, sources: Sources, trees: dict[str, ast.Module], returned: list[str] | None = None) -> None:
        self.sources = sources
        self._namer = Namer()
        self._assigned: dict[Span, Assigned] = {}
        for file, tree in trees.items():
            self._assigned.update(assigned_names(tree, file))
        self._by_node: dict[str, str] = {}
        self._inherited: dict[str, NodeOrigin] = {}
        self.inputs: dict[str, FlatInput] = {}
        self._returned = returned

    def assign(self, graph: torch.fx.Graph, inputs: Sequence[FlatInput], outputs: Sequence[str]) -> None:
        """Name the nodes of `graph`: inputs, gradients, the user's variables, then PyTorch's names."""
        nodes = list(graph.nodes)
        labels = self.output_labels(outputs)
        for position, node in enumerate(n for n in nodes if n.op == "placeholder"):
            source = _input_index(node, position)
            if source is not None and source < len(inputs):
                if isinstance(value_of(node), torch.Tensor):
                    self.inputs[node.name] = inputs[source]
                    self._name(node, inputs[source].name)
                else:  # of a distributed tensor
                    self._name(node, f"{inputs[source].name}_size")
            else:
                self._name(node, _tangent_name(node, labels))
        for node, of in _gradients(nodes[-1], inputs).items():
            if node.name not in self._by_node:
                self._name(node, f"grad_{identifier(of)}")
        self._inherit(nodes)
        self.name_variables(nodes[: first_backward(nodes)])
        for node in nodes:
            if node.name not in self._by_node:
                self._name(node, _own_name(node))

    def is_buffer(self, node: torch.fx.Node) -> bool:
        """Return True for a buffer of the module."""
        item = self.inputs.get(node.name)
        return item is not None and item.kind == "buffer"

    def _inherit(self, nodes: Sequence[torch.fx.Node]) -> None:
        """Assign chains to nodes that AOTAutograd adds itself.

        A sum of gradients belongs to the value whose gradient it is: its reader is the backward of the operation that
        computed the value. The write-back of a mutated input belongs to the expression that computed the new value.
        """
        for node in reversed(nodes):
            if node.op == "call_function" and not self.chain(node):
                relatives = [*node.users, *reversed(node.all_input_nodes)] if node.users else node.all_input_nodes[::-1]
                self._inherited[node.name] = next((o for o in map(self.origin, relatives) if o.chain), NodeOrigin())

    def _name(self, node: torch.fx.Node, wish: str) -> None:
        self._by_node[node.name] = self._namer.unique(wish)

    def variable(self, name: str) -> str | None:
        """Return the variable of the node that torch calls `name`; None if its name here is the same."""
        variable = self._by_node.get(name)
        return variable if variable != name else None

    def output_labels(self, outputs: Sequence[str]) -> list[str]:
        """Return the user's names for the results: the returned variables, else `out_0`."""
        if self._returned is not None and len(self._returned) == len(outputs):
            return [r or identifier(o) for r, o in zip(self._returned, outputs, strict=True)]
        return [identifier(o) for o in outputs]

    def name_variables(self, nodes: Iterable[torch.fx.Node]) -> None:
        """Name the calls among `nodes` after the variables that they were bound to."""
        chains = {n: self.chain(n) for n in nodes if n.op.startswith("call_")}
        for node, variable in variables_of(list(chains), chains, self._assigned).items():
            if node.name not in self._by_node:
                self._name(node, variable)

    def name_inputs(self, inputs: Iterable[tuple[torch.fx.Node, FlatInput]]) -> None:
        """Name placeholders, and record their inputs."""
        for node, item in inputs:
            self.inputs[node.name] = item
            self._name(node, item.name)

    def copy(self) -> Names:
        """Return an independent copy of the names, for a graph that is changed differently from here."""
        other = copy.copy(self)
        other._namer = copy.deepcopy(self._namer)
        other._by_node, other._inherited = dict(self._by_node), dict(self._inherited)
        other.inputs = dict(self.inputs)
        return other

    def of_copy(self, origins: Mapping[str, str]) -> Names:
        """Return the names of a copied graph; `origins` maps torch's names of its nodes to those of the originals."""
        other = self.copy()
        other._by_node = {new: self._by_node[old] for new, old in origins.items() if old in self._by_node}
        other._inherited = {new: self._inherited[old] for new, old in origins.items() if old in self._inherited}
        other.inputs = {new: self.inputs[old] for new, old in origins.items() if old in self.inputs}
        return other

    def inherit(self, node: torch.fx.Node, old: torch.fx.Node, names: Names) -> None:
        """Assign to `node` the name of the replaced `old` in `names`, and its origin if `node` has none."""
        self._by_node[node.name] = names[old]
        if not self.chain(node):
            self._inherited[node.name] = names.origin(old)

    def __getitem__(self, node: torch.fx.Node) -> str:
        name = self._by_node.get(node.name)
        if name is None:
            self._name(node, _own_name(node))
            name = self._by_node[node.name]
        return name

    def chain(self, node: torch.fx.Node) -> Chain:
        """Return the user's expressions that `node` came from, innermost first; empty if unknown."""
        return self.origin(node).chain

    def origin(self, node: torch.fx.Node) -> NodeOrigin:
        """Return the origin of `node`, as far as known; a parameter comes from the module that owns it."""
        numbers = [n for n in (node.meta.get(BACKWARD), annotation(node, KEY)) if isinstance(n, int)]
        if not numbers:
            item = self.inputs.get(node.name)
            owner = item.name.rpartition(".")[0] if item is not None and item.kind != "input" else ""
            return self._inherited.get(node.name, NodeOrigin((), owner))
        origins = [self.sources.origins[number] for number in numbers]
        return NodeOrigin(tuple(span for origin in origins for span in origin.chain), origins[-1].module)


def _own_name(node: torch.fx.Node) -> str:
    """Return a name for a node without a variable: that of a size, `B`, that of a launched kernel, else torch's own."""
    text = scalar_text(node.meta.get("val"))
    return text if text is not None and text.isidentifier() else name_of_launch(node) or node.name


def stage_of(name: str, graph: torch.fx.Graph, names: Names, forward_ops: set[str] | None = None) -> Stage:
    """Return a graph as a stage; nodes of a backward graph that are in `forward_ops` are marked as recomputed."""
    nodes: list[Node] = []
    for node in graph.nodes:
        chain, module = names.origin(node)
        recomputed = forward_ops is not None and node.op == "call_function" and node.name in forward_ops
        launch = launch_of(node)
        nodes.append(
            Node(
                name=names[node],
                op=node.op,
                target=target_name(node.target),
                args=arguments_of(node, names) if launch is None else _launch_arguments(launch, names),
                inputs=tuple(names[n] for n in node.all_input_nodes),
                users=tuple(names[n] for n in node.users),
                spec=node_spec(node),
                spans=chain,
                comment="recomputed from forward" if recomputed else _comment(node, names, launch),
                flops=flops_of(node),
                moved_bytes=moved_bytes(node),
                module=module,
                sent_bytes=sent_bytes(node),
            )
        )
    return Stage(name, tuple(nodes))


def _comment(node: torch.fx.Node, names: Names, launch: TritonLaunch | None) -> str:
    return launch.comment if launch is not None else _role(node, names) or _collective(node)


def _launch_arguments(launch: TritonLaunch, names: Names) -> tuple[str, ...]:
    """Return the displayed arguments of a launch: the kernel, its grid, its parameters by name."""
    named = (f"{name}={_argument(value, names)}" for name, value in launch.arguments.items())
    return (launch.kernel, f"grid={_argument(launch.grid, names)}", *named)


def arguments_of(node: torch.fx.Node, names: Names) -> tuple[str, ...]:
    """Return the displayed arguments of a node."""
    named = (f"{k}={_argument(v, names)}" for k, v in node.kwargs.items())
    return (*(_argument(a, names) for a in node.args), *named)


def node_spec(node: torch.fx.Node) -> str | None:
    """Return the spec of a node's result."""
    return value_spec(value_of(node))


def is_tangent(node: torch.fx.Node) -> bool:
    """Return True for an input that is a gradient, as in joint and backward graphs."""
    return node.op == "placeholder" and node.name.startswith("tangents")


def value_spec(value: Any) -> str | None:
    """Return the spec of a tensor or of several; None for anything else."""
    if isinstance(value, torch.Tensor):
        return str(spec_of(value))
    if isinstance(value, (list, tuple)) and any(isinstance(v, torch.Tensor) for v in value):
        items = [value_spec(v) or scalar_text(v) or str(v) for v in value]
        return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
    return None


def target_name(target: Any) -> str:
    """Return the name of a node's target: `aten.mm.default`, `operator.getitem`, `prims.…`."""
    if isinstance(target, str):
        return target
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    if isinstance(target, (types.BuiltinFunctionType, types.FunctionType)):
        module = (target.__module__ or "").removeprefix("_")
        return f"{module}.{target.__name__}" if module not in ("", "builtins") else target.__name__
    name = getattr(target, "__name__", None) or getattr(target, "_name", None)
    return (
        f"torch.ops.higher_order.{name}" if isinstance(target, torch._ops.HigherOrderOperator) else str(name or target)
    )


def saved_values(nodes: Sequence[torch.fx.Node], backward: torch.fx.GraphModule, names: Names) -> list[Saved]:
    """Describe the values saved for backward; bytes are those of the values, not of storages that they may share."""
    readers = {n.name: tuple(names[u] for u in n.users) for n in backward.graph.nodes if n.op == "placeholder"}
    saved: list[Saved] = []
    for node in nodes:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            continue
        chain = names.chain(node)
        saved.append(
            Saved(
                name=names[node],
                spec=str(spec_of(value)),
                bytes=stored_bytes(value),
                span=chain[0] if chain else None,
                kind=_kind(node, names),
                used_by=readers.get(node.name, ()),
                why=why_saved(node),
            )
        )
    return saved


def _kind(node: torch.fx.Node, names: Names) -> SavedKind:
    while node.op == "call_function" and is_view(node.target) and isinstance(node.args[0], torch.fx.Node):
        node = node.args[0]
    source = names.inputs.get(node.name)
    return source.kind if source is not None else "activation"


def _role(node: torch.fx.Node, names: Names) -> str:
    if node.op != "placeholder" or node.name not in names.inputs:
        return ""
    source = names.inputs[node.name]
    return source.kind if source.kind != "input" else ""


def _collective(node: torch.fx.Node) -> str:
    """Return how many bytes a collective communicates in this process, as text; "" for any other node."""
    if not is_collective(node.target):
        return ""
    operands = [value for n in node.all_input_nodes if isinstance(value := value_of(n), torch.Tensor)]
    return f"communicates {sum(map(stored_bytes, operands)):,} bytes" if operands else ""


def _input_index(node: torch.fx.Node, position: int) -> int | None:
    """Return the index of the call's input that a placeholder is, or is a part or a base of; None for others."""
    source = descriptor(node)
    if source is None:
        return None if node.name.startswith("tangents") else position
    while (of := getattr(source, "base_of", None) or getattr(source, "base", None)) is not None:
        source = of
    return source.idx if type(source).__name__ in ("PlainAOTInput", "DummyAOTInput") else None


def _tangent_name(node: torch.fx.Node, labels: Sequence[str]) -> str:
    output = getattr(descriptor(node), "output", None)
    index = getattr(output, "idx", None)
    if index is None and node.name.startswith("tangents_"):
        index = int(node.name.removeprefix("tangents_")) - 1
    if index is not None and type(output).__name__ in ("PlainAOTOutput", "NoneType") and index < len(labels):
        return f"grad_{labels[index]}"
    mutated = getattr(getattr(output, "mutated_input", None), "idx", None)
    return node.name if mutated is None else f"grad_mutated_{mutated}"


def _gradients(output: torch.fx.Node, inputs: Sequence[FlatInput]) -> dict[torch.fx.Node, str]:
    """Return the nodes that are gradients of inputs, each with the name of its input."""
    described = descriptor(output)
    values = output.args[0]
    if described is None or not isinstance(values, (list, tuple)):
        return {}
    input_of: dict[torch.fx.Node, str] = {}
    for value, desc in zip(values, described, strict=False):
        index = getattr(getattr(desc, "grad_of", None), "idx", None)
        if isinstance(value, torch.fx.Node) and isinstance(index, int) and index < len(inputs):
            input_of.setdefault(value, inputs[index].name)
    return input_of


def first_backward(nodes: Sequence[torch.fx.Node]) -> int:
    """Return the index of the first node that depends on a tangent; the number of nodes if there is none."""
    dependent = {n for n in nodes if is_tangent(n)}
    for index, node in enumerate(nodes):
        if node.op == "call_function" and any(i in dependent for i in node.all_input_nodes):
            return index
    return len(nodes)


def _argument(value: Any, names: Names) -> str:
    if isinstance(value, torch.fx.Node):
        return scalar_text(value.meta.get("val")) or names[value]
    if (text := scalar_text(value)) is not None:
        return text
    if isinstance(value, (list, tuple)):
        inside = ", ".join(_argument(v, names) for v in value)
        if isinstance(value, list) or type(value).__name__ == "immutable_list":
            return f"[{inside}]"
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {_argument(v, names)}" for k, v in value.items()) + "}"
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    if isinstance(value, slice):
        return f"slice({_argument(value.start, names)}, {_argument(value.stop, names)}, {_argument(value.step, names)})"
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f"float({str(value)!r})"
    if isinstance(value, (int, float, complex, bool, str, type(None), torch.dtype, torch.layout, torch.memory_format)):
        return repr(value)
    return target_name(value) if callable(value) else repr(str(value))
