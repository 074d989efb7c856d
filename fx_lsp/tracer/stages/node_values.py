"""Run a graph node by node on real tensors, in its own dtypes and in float64, and compare two such runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import is_fake
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_iter, tree_leaves, tree_map

from fx_lsp.numerics.rounding import judged
from fx_lsp.tracer.capture.graphs import Names
from fx_lsp.tracer.capture.node_values import value_of
from fx_lsp.tracer.failures.exceptions import sentence
from fx_lsp.tracer.program.effects import EffectBlocked, forbid_effects
from fx_lsp.tracer.run.tensors import spec_of
from fx_lsp.tracer.source.names import identifier
from fx_lsp.tracer.stages.real_tensors import MAX_BYTES, RANDOM, bytes_of, real_like

Tensors = tuple[torch.Tensor, ...]

Relation = Literal["rewritten", "part", "recaptured"]
"""How a graph comes from another: by a pass, by a partition, with other results, or by another capture of the code. In
that, only names of inputs, gradients and variables have the same values, and results without one.
"""

COPIES = 4
"""The bytes of a value in float32, in float64 and in the graph that it is compared with, relative to the first."""

_WIDE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}


@dataclass(frozen=True)
class NodeValue:
    """Hold the tensors of a node, the same in float64 if they are known, and the names of the nodes that it reads.

    `is_random` is True for random numbers, and for what is computed from them; `drawn` is too, unless they are those of
    another run. `is_named` is True if the name is that of a variable, an input or a gradient, which any graph of the
    code has. A value that the run does not know has no tensors.
    """

    tensors: Tensors
    reads: tuple[str, ...]
    exact: Tensors = ()
    drawn: bool = False
    is_random: bool = False
    is_named: bool = False
    is_input: bool = False


@dataclass(frozen=True)
class NodeRun:
    """Hold the values of a graph's nodes by name, in order, and the names of its results; or why it did not run."""

    values: dict[str, NodeValue] = field(default_factory=dict[str, NodeValue])
    results: tuple[str, ...] = ()
    trouble: str = ""


@dataclass(frozen=True)
class Difference:
    """Hold how far two tensors differ, at the element with the largest absolute error.

    `relative` is the largest error against float64, relative to the magnitude there and the mean one, `rounding` that
    of the graph before.
    """

    wrong: bool
    relative: float
    rounding: float
    absolute: float = 0.0
    index: tuple[int, ...] = ()
    here: str = ""
    before: str = ""
    exact: str = ""


@dataclass(frozen=True)
class NodeComparison:
    """Hold the difference of each compared value of a graph, by name, and the number of those left out.

    `first` is the first node that a differing result is computed from and that differs itself, or "".
    """

    differences: dict[str, Difference] = field(default_factory=dict[str, Difference])
    left_out: int = 0
    first: str = ""

    @property
    def wrong(self) -> list[str]:
        """Return the names of the nodes that differ by more than rounding."""
        return [name for name, difference in self.differences.items() if difference.wrong]


class InputPool:
    """Hold the values of inputs by name, so that each graph of a target gets the same ones."""

    def __init__(self) -> None:
        self._values: dict[str, torch.Tensor] = {}

    def value(self, name: str, fake: Any, is_buffer: bool) -> Any:
        """Return a random tensor like a fake one, the same for each name; numbers as they are."""
        if not isinstance(fake, torch.Tensor):
            return real_like(fake, RANDOM)
        random = real_like(fake, RANDOM)
        if name not in self._values or not _is_like(self._values[name], random):
            torch.manual_seed(len(self._values))
            random = real_like(fake, RANDOM)
            self._values[name] = random.abs() if is_buffer and random.is_floating_point() else random
        return _laid_out(self._values[name], random)


def _is_like(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (one.shape, one.dtype) == (other.shape, other.dtype)


def _laid_out(tensor: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return a tensor with the strides of another one; as it is if elements of that share their memory."""
    if any(size > 1 and stride == 0 for size, stride in zip(other.shape, other.stride(), strict=True)):
        return tensor
    return (
        torch.empty_strided(other.shape, other.stride(), dtype=other.dtype).copy_(tensor)
        if tensor.stride() != other.stride()
        else tensor
    )


def run_nodes(graph: fx.Graph, names: Names, pool: InputPool, before: NodeRun | None = None) -> NodeRun:
    """Run a graph in its own dtypes and in float64. Inputs and random numbers are those of the run `before`, by name;
    other inputs come from the pool.
    """
    needed = COPIES * sum(bytes_of(value_of(n)) for n in graph.nodes)
    if needed > MAX_BYTES:
        return NodeRun(trouble=f"its values need {needed / (1 << 30):.1f} GiB")
    earlier = {} if before is None else before.values
    try:
        with _disable_current_modes(), forbid_effects(), torch.random.fork_rng(devices=[]), torch.no_grad():
            inputs = real_inputs(graph, names, pool, before)
            run = _NodeRunner(graph, names, pool, earlier)
            torch.manual_seed(0)
            run.run(*tree_map(_copied, inputs))
            exact = _exact_values(run, graph, inputs)
    except (Exception, EffectBlocked) as error:
        return NodeRun(trouble=f"it cannot be run on the CPU: {sentence(error)}")
    drawn: set[fx.Node] = set()
    random: set[fx.Node] = set()
    values: dict[str, NodeValue] = {}
    for node, tensors in run.tensors.items():
        draws = node in run.random and node not in run.replayed
        if draws or (node not in run.replayed and not drawn.isdisjoint(node.all_input_nodes)):
            drawn.add(node)
        if node in run.random or not random.isdisjoint(node.all_input_nodes):
            random.add(node)
        reads = tuple(names[n] for n in node.all_input_nodes)
        is_named, is_input = _is_named(node, names), node.op == "placeholder"
        is_drawn, is_random = node in drawn, node in random
        values[names[node]] = NodeValue(tensors, reads, exact.get(node, ()), is_drawn, is_random, is_named, is_input)
    last = next(n for n in reversed(graph.nodes) if n.op == "output")
    results = tuple(names[n] if isinstance(n, fx.Node) else "" for n in tree_leaves(last.args))
    return NodeRun(values, results)


def real_inputs(graph: fx.Graph, names: Names, pool: InputPool, before: NodeRun | None = None) -> list[Any]:
    """Return the values of the inputs of a graph: those of the run `before`, by name, and others from the pool."""
    earlier = {} if before is None else before.values
    return [_input(n, names, pool, earlier) for n in graph.nodes if n.op == "placeholder"]


def other_inputs(run: NodeRun, before: NodeRun) -> list[str]:
    """Return the inputs of a run under names that are no inputs of the run `before`."""
    inputs = {name for name, value in before.values.items() if value.is_input}
    return [name for name, value in run.values.items() if value.is_input and name not in inputs]


def with_values(before: NodeRun, values: Mapping[str, Tensors]) -> NodeRun:
    """Return a run with other values than the run `before`, as far as they have the shapes and dtypes there; a tensor
    of another shape or dtype is another value. Inputs are the same.
    """

    def other(name: str, value: NodeValue) -> NodeValue:
        tensors = values.get(name, ())
        alike = _specs(tensors) == _specs(value.tensors)
        return replace(value, tensors=tensors if alike else (), drawn=value.is_random)

    return NodeRun({n: v if v.is_input else other(n, v) for n, v in before.values.items()}, before.results)


def compare_nodes(run: NodeRun, before: NodeRun, relation: Relation) -> NodeComparison:
    """Compare the values of the same name, and results in the same place, with those of the run `before`."""
    differences: dict[str, Difference] = {}
    left_out = 0
    variables_only = relation == "recaptured"
    pairs = [(n, n) for n, v in run.values.items() if n in before.values and (v.is_named or not variables_only)]
    if relation != "part" and len(run.results) == len(before.results):
        pairs += [
            p for p in zip(run.results, before.results, strict=True) if not variables_only or _unnamed(run, before, p)
        ]
    pairs = [(n, m) for n, m in dict.fromkeys(pairs) if n in run.values and m in before.values]
    for name, other in pairs:
        value = run.values[name]
        if value.drawn:
            left_out += name == other
            continue
        if not value.tensors:
            continue
        with _disable_current_modes():
            difference = _difference(value.tensors, before.values[other])
        if name not in differences or difference.wrong:
            differences[name] = difference
    in_order = {name: differences[name] for name in run.values if name in differences}
    return NodeComparison(in_order, left_out, _first(run, in_order))


def _unnamed(run: NodeRun, before: NodeRun, pair: tuple[str, str]) -> bool:
    """Return True for two results of the code that are no variables; gradients have names, and come in any order."""
    one, other = run.values.get(pair[0]), before.values.get(pair[1])
    return one is not None and other is not None and not one.is_named and not other.is_named


def _specs(tensors: Tensors) -> list[tuple[torch.Size, torch.dtype]]:
    return [(t.shape, t.dtype) for t in tensors]


def _first(run: NodeRun, differences: Mapping[str, Difference]) -> str:
    """Return the first differing node on a way of differing, or not compared, nodes to a result that differs, or that
    the run does not know.
    """
    unknown = {name for name, value in run.values.items() if not value.tensors}
    todo = [n for n in run.results if n in unknown or (n in differences and differences[n].wrong)]
    on_the_way: set[str] = set()
    while todo:
        name = todo.pop()
        if name in on_the_way or (name in differences and not differences[name].wrong):
            continue
        on_the_way.add(name)
        todo += run.values[name].reads
    return next((name for name in run.values if name in on_the_way and name in differences), "")


def _difference(tensors: Tensors, before: NodeValue) -> Difference:
    """Return the worst difference between the tensors of two nodes."""
    if len(tensors) != len(before.tensors):
        return Difference(True, torch.inf, torch.inf)
    exact: Iterable[torch.Tensor | None] = before.exact or [None] * len(tensors)
    each = [_between(*three) for three in zip(tensors, before.tensors, exact, strict=True)]
    return max(each, key=lambda d: (d.wrong, d.relative), default=Difference(False, 0.0, 0.0))


def _between(value: torch.Tensor, right: torch.Tensor, exact: torch.Tensor | None) -> Difference:
    wrong, off, far = judged(value, right, exact)
    if value.shape != right.shape or value.dtype != right.dtype:
        return Difference(True, off, far, here=str(spec_of(value)), before=str(spec_of(right)))
    if not wrong:
        return Difference(False, off, far)
    wide = torch.complex128 if value.is_complex() else torch.float64
    off_by = (value.to(wide) - right.to(wide)).abs()
    same = (value == right) | (value.isnan() & right.isnan()) if right.dtype.is_floating_point else value == right
    flat = off_by.nan_to_num(nan=torch.inf).masked_fill(same, 0.0).flatten()
    place = int(flat.argmax())
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(place), value.shape))
    texts = [f"{t[index].item():.9g}" if t is not None else "" for t in (value, right, exact)]
    return Difference(True, off, far, float(flat[place]), index, *texts)


def _is_named(node: fx.Node, names: Names) -> bool:
    """Return True if a node has the name of an input, a gradient or a variable, and not one that torch counts."""
    variable = names.variable(node.name)
    return node.op == "placeholder" or (variable is not None and _counted(variable) != _counted(node.name))


def _counted(name: str) -> str:
    """Return a name without its number at the end."""
    return name.rstrip("0123456789").rstrip("_")


def _input(node: fx.Node, names: Names, pool: InputPool, earlier: Mapping[str, NodeValue]) -> Any:
    value = earlier.get(names[node])
    fake = value_of(node)
    if value is not None and isinstance(fake, torch.Tensor) and len(value.tensors) == 1:
        random = real_like(fake, RANDOM)
        if _is_like(value.tensors[0], random):
            return _laid_out(value.tensors[0], random)
    return pool.value(names[node], fake, names.is_buffer(node))


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    for item in tree_iter(value):
        if isinstance(item, torch.Tensor):
            yield item.detach().clone()
        elif isinstance(item, (bool, int, float, complex)):
            yield torch.tensor(item)


def _exact_values(run: _NodeRunner, graph: fx.Graph, inputs: list[Any]) -> dict[fx.Node, Tensors]:
    """Return the values in float64, of the nodes before the first that has no float64 kernel."""
    exact = _NodeRunner(graph, run.names, run.pool, {}, widened)
    exact.replays = {n: tuple(map(widened, run.tensors[n])) for n in run.random}
    try:
        exact.run(*map(widened, tree_map(_copied, inputs)))
    except Exception:
        return exact.tensors
    return exact.tensors


def widened(value: Any) -> Any:
    """Return a tensor, or a dtype, in float64 instead of a narrower one; anything else unchanged."""
    if isinstance(value, torch.dtype):
        return _WIDE.get(value, value)
    return value.to(_WIDE[value.dtype]) if isinstance(value, torch.Tensor) and value.dtype in _WIDE else value


def _on_cpu(value: Any) -> Any:
    return torch.device("cpu") if isinstance(value, torch.device) else value


class _NodeRunner(fx.Interpreter):
    """Run a graph, and keep a copy of each value, as later nodes may write to it.

    `adapt` is applied to constants and arguments. `random` are the nodes that advance the random number generator.
    `replays` are values that replace theirs, `replayed` the nodes that got one, also from the values of an earlier run
    that have the same name, shapes and dtypes.
    """

    def __init__(
        self,
        graph: fx.Graph,
        names: Names,
        pool: InputPool,
        earlier: Mapping[str, NodeValue],
        adapt: Callable[[Any], Any] = lambda value: value,
    ) -> None:
        super().__init__(graph.owning_module or nn.Module(), graph=graph, garbage_collect_values=True)
        self.names, self.pool, self._earlier, self._adapt = names, pool, earlier, adapt
        self.tensors: dict[fx.Node, Tensors] = {}
        self.replays: dict[fx.Node, Tensors] = {}
        self.random: set[fx.Node] = set()
        self.replayed: set[fx.Node] = set()

    def run_node(self, n: fx.Node) -> Any:
        state = torch.get_rng_state()
        result = super().run_node(n)
        if n.op == "output":
            return result
        if not torch.equal(state, torch.get_rng_state()):
            self.random.add(n)
        tensors = tuple(_tensors(result))
        replay = self._replay(n, tensors)
        if replay is not None:
            tensors = replay
            self.replayed.add(n)
            supply = iter(replay)
            result = tree_map(lambda item: next(supply).clone() if isinstance(item, torch.Tensor) else item, result)
        self.tensors[n] = tensors
        return result

    def _replay(self, node: fx.Node, tensors: Tensors) -> Tensors | None:
        if node in self.replays:
            return self.replays[node]
        earlier = self._earlier.get(self.names[node])
        if node not in self.random or earlier is None or not tensors:
            return None
        return earlier.tensors if _specs(earlier.tensors) == _specs(tensors) else None

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        args, kwargs = tree_map(lambda value: self._adapt(_on_cpu(value)), (args, kwargs))
        return super().call_function(target, args, kwargs)

    def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
        args, kwargs = tree_map(lambda value: self._adapt(_on_cpu(value)), (args, kwargs))
        return super().call_method(target, args, kwargs)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = self.fetch_attr(target)
        return self._held(target, value) if isinstance(value, torch.Tensor) else value

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        module = self.fetch_attr(target)
        named = [*module.named_parameters(), *module.named_buffers()]
        state = {name: self._held(f"{target}.{name}", tensor) for name, tensor in named}
        return torch.func.functional_call(module, state, args, kwargs)

    def _held(self, path: str, tensor: torch.Tensor) -> torch.Tensor:
        """Return the value of a tensor that the module holds: a constant, or that of the input with its name."""
        constant = getattr(tensor, "constant", None)
        if isinstance(constant, torch.Tensor):
            return self._adapt(constant)
        is_buffer = not isinstance(tensor, nn.Parameter)
        value = self.pool.value(identifier(path), tensor, is_buffer) if is_fake(tensor) else tensor
        return self._adapt(value).clone()
