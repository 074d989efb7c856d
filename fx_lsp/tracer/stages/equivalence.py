"""Check a pass: the graphs before and after it run on the CPU, on random tensors of the input specs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import is_fake
from torch.testing._comparison import default_tolerances
from torch.utils._python_dispatch import _disable_current_modes

from fx_lsp.tracer.capture.graphs import is_tangent
from fx_lsp.tracer.capture.node_values import value_of
from fx_lsp.tracer.failures.exceptions import sentence
from fx_lsp.tracer.run.tensors import spec_of
from fx_lsp.tracer.stages.real_tensors import MAX_BYTES, RANDOM, bytes_of, real_like


@dataclass(frozen=True)
class Seeds:
    """Hold the seeds of random tensors: of inputs by their place and name, of the module's tensors by their identity.

    A copy of a module has other tensors under the same names. `fixed` are the places of inputs without gradients.
    """

    inputs: dict[str, int] = field(default_factory=dict[str, int])
    tensors: dict[int, torch.Tensor] = field(default_factory=dict[int, torch.Tensor])
    names: dict[str, int] = field(default_factory=dict[str, int])
    fixed: frozenset[int] = frozenset()


@dataclass(frozen=True)
class RandomRun:
    """Hold the values of a graph on random inputs: outputs, gradients, inputs afterwards; or why it did not run.

    Each has a key, and in `labels` its name in a sentence. `random` is True if the graph generates random values, so
    that an equivalent one may compute others; `copied` if its module is a copy, whose weights are only known by name;
    `gradients` if gradients are among the tensors.
    """

    tensors: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])
    labels: dict[str, str] = field(default_factory=dict[str, str])
    trouble: str = ""
    random: bool = False
    copied: bool = False
    gradients: bool = False
    seeds: Seeds = field(default_factory=Seeds)


def run_for_real(
    graph: fx.Graph,
    differentiate: bool,
    label: Callable[[fx.Node], str],
    is_fixed: Callable[[fx.Node], bool],
    before: RandomRun | None = None,
) -> RandomRun:
    """Run a graph on random tensors: on the same ones as the graph `before` it.

    With `differentiate`, also compute the gradients of its inputs for a random gradient of each output, except those of
    fixed inputs, such as a module's buffers. `label` returns the name of an input.
    """
    placeholders = _placeholders(graph)
    trouble = _obstacle(graph, placeholders, label)
    if trouble:
        return RandomRun(trouble=trouble)
    try:
        seeds = _seeds(graph, is_fixed) if before is None else before.seeds
        places = _places(placeholders, seeds)
        with _disable_current_modes(), torch.random.fork_rng(devices=[]):
            runner = _Runner(graph, seeds, before is None)
            tensors, leaf_places = _computed(runner, placeholders, places, differentiate)
    except Exception as error:
        return RandomRun(trouble=f"it cannot be run on the CPU: {sentence(error)}")
    names = dict(zip(places, map(label, placeholders), strict=True))
    labels = {f"gradient {i}": f"the gradient of {name}" for i, name in names.items()}
    labels |= {f"input {i}": f"its final value of {name}" for i, name in names.items()}
    is_joint = any(map(is_tangent, placeholders)) and len(leaf_places) > 1
    gradients = is_joint or any(name.startswith("gradient") for name in tensors)
    random = any(_is_random(n.target) for n in graph.nodes)
    return RandomRun(tensors, labels, "", random, bool(runner.copied), gradients, seeds)


def _obstacle(graph: fx.Graph, placeholders: list[fx.Node], label: Callable[[fx.Node], str]) -> str:
    """Return why a graph cannot run: an input of an unknown kind, or too much memory; "" if it can."""
    unknown = next((n for n in placeholders if not n.args and not {"val", "example_value"} & n.meta.keys()), None)
    if unknown is not None:
        return f"the value of {label(unknown)} is unknown"
    needed = sum(bytes_of(value_of(n)) for n in graph.nodes)
    return f"its values need {needed / (1 << 30):.1f} GiB" if needed > MAX_BYTES else ""


def _computed(
    runner: _Runner, placeholders: list[fx.Node], places: list[int], differentiate: bool
) -> tuple[dict[str, torch.Tensor], list[int]]:
    """Run a graph; return its results by key, and the places of the differentiable inputs."""
    inputs = [_real(value_of(n), place) for n, place in zip(placeholders, places, strict=True)]
    pairs = list(zip(places, inputs, strict=True))
    leaves = [(place, t) for place, t in pairs if _is_differentiable(t, place, runner.seeds)]
    if differentiate:
        for _, tensor in leaves:
            tensor.requires_grad_()
    # Inputs may be written to, unlike their leaves.
    arguments = [t.clone() if isinstance(t, torch.Tensor) else t for t in inputs]
    torch.manual_seed(0)
    with torch.set_grad_enabled(differentiate):
        outputs = dict(_tensors(runner.run(*arguments), "output"))
    tensors = {name: tensor.detach() for name, tensor in outputs.items()}
    if differentiate:
        tensors |= {f"gradient {place}": g for place, g in _gradients(outputs, leaves).items()}
    for place, node, argument in zip(places, placeholders, arguments, strict=True):
        afterwards: Any = runner.left.get(node, argument)
        if isinstance(afterwards, torch.Tensor):
            tensors[f"input {place}"] = afterwards.detach()
    return tensors, [place for place, _ in leaves]


def _placeholders(graph: fx.Graph) -> list[fx.Node]:
    return [n for n in graph.nodes if n.op == "placeholder"]


def _seeds(graph: fx.Graph, is_fixed: Callable[[fx.Node], bool]) -> Seeds:
    placeholders = _placeholders(graph)
    inputs = {n.name: i for i, n in enumerate(placeholders)}
    fixed = frozenset(i for i, n in enumerate(placeholders) if is_fixed(n))
    module = graph.owning_module
    held: dict[str, torch.Tensor] = {}
    if module is not None:
        held |= dict(module.named_parameters()) | dict(module.named_buffers())
        named = {n.target for n in graph.nodes if n.op == "get_attr"}
        held |= {name: t for name in named if isinstance(t := _attribute(module, name), torch.Tensor)}
    numbers = {id(t): i for i, t in enumerate(held.values(), len(inputs))}
    by_number = {numbers[id(t)]: t for t in held.values()}
    return Seeds(inputs, by_number, {name: numbers[id(t)] for name, t in held.items()}, fixed)


def _attribute(module: nn.Module, path: str) -> Any:
    value: Any = module
    for name in path.split("."):
        value = getattr(value, name, None)
    return value


def _places(placeholders: list[fx.Node], seeds: Seeds) -> list[int]:
    """Return the place of each input in the graph before: its own, unless the number of inputs has changed."""
    if len(placeholders) == len(seeds.inputs):
        return list(range(len(placeholders)))
    return [seeds.inputs.get(n.name, len(seeds.inputs) + i) for i, n in enumerate(placeholders)]


def compare(before: RandomRun, after: RandomRun) -> str:
    """Return a sentence on whether two graphs are the same function, as far as one run of each shows."""
    for run, which in ((before, "the graph before"), (after, "the graph after")):
        if run.trouble:
            return f"not checked: {which} was not run, because {run.trouble}"
    labels = after.labels | before.labels
    with _disable_current_modes():
        return (
            _missing_value(before, after, labels)
            or _differing_value(before, after, labels)
            or _agreement(before, after)
        )


def _missing_value(before: RandomRun, after: RandomRun, labels: dict[str, str]) -> str:
    """Return a sentence on an output or gradient that only one of two graphs has; "" without one."""
    for which, some, others in (("lost", before, after), ("new", after, before)):
        for name in some.tensors:
            if name not in others.tensors and not name.startswith("input"):
                return f"it is another function: {labels.get(name, name)} is {which}"
    return ""


def _differing_value(before: RandomRun, after: RandomRun, labels: dict[str, str]) -> str:
    """Return a sentence on the first value that two graphs disagree on, and its certainty; "" without one."""
    for name, old, new in _pairs(before, after):
        label = labels.get(name, name)
        if old.shape != new.shape or old.dtype != new.dtype:
            return f"it is another function: {label} was {spec_of(old)} and is {spec_of(new)}"
        rtol, atol = default_tolerances(old, new)
        if torch.allclose(old, new, rtol=rtol, atol=atol, equal_nan=True):
            continue
        difference = f"{label} differs by up to {_largest_difference(old, new):.3g}"
        if after.copied:
            return f"not certain, because the module is a copy that may have other weights: {difference}"
        if before.random or after.random:
            return f"not certain, because the graph uses random numbers: {difference}"
        return f"it is another function: {difference}"
    return ""


def _agreement(before: RandomRun, after: RandomRun) -> str:
    """Return a sentence on how closely two graphs agree."""
    pairs = list(_pairs(before, after))
    largest = max((_largest_difference(old, new) for _, old, new in pairs), default=0.0)
    values = "outputs and gradients" if before.gradients else "outputs"
    up_to = f", up to {largest:.2g}" if largest else ""
    moved = next((name for name, old, new in pairs if _has_other_strides(old, new)), "")
    other = f"; {before.labels.get(moved, moved)} has other strides" if moved.startswith("output") else ""
    same = "; assumed: its copy has the same weights" if after.copied else ""
    return f"checked on random inputs: the same {values}{up_to}{other}{same}"


def _pairs(before: RandomRun, after: RandomRun) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    return ((name, old, after.tensors[name]) for name, old in before.tensors.items() if name in after.tensors)


def _has_other_strides(old: torch.Tensor, new: torch.Tensor) -> bool:
    return old.numel() > 1 and old.stride() != new.stride()


def _gradients(outputs: dict[str, torch.Tensor], leaves: list[tuple[int, torch.Tensor]]) -> dict[int, torch.Tensor]:
    wanted = [t for t in outputs.values() if t.requires_grad]
    if not wanted or not leaves:
        return {}
    torch.manual_seed(1)
    seeds = [torch.randn(t.shape, dtype=t.dtype) for t in wanted]  # the same ones for any strides
    grads: Any = torch.autograd.grad(wanted, [t for _, t in leaves], seeds, allow_unused=True)
    pairs = zip(leaves, grads, strict=True)
    return {place: g.detach() for (place, _), g in pairs if g is not None}


class _Runner(fx.Interpreter):
    """Run a graph whose module holds fake tensors, each replaced by a random one.

    Only the `first` graph may hold tensors without a seed. `copied` are names of tensors whose seed is found by name
    only. `left` are the final writes into inputs, deferred because gradients may need the previous values.
    """

    def __init__(self, graph: fx.Graph, seeds: Seeds, first: bool) -> None:
        super().__init__(graph.owning_module or nn.Module(), graph=graph, garbage_collect_values=True)
        self.seeds, self._first = seeds, first
        self._numbers = {id(t): number for number, t in seeds.tensors.items()}
        self._stand_ins: dict[int, torch.Tensor] = {}
        self.copied: list[str] = []
        self.left: dict[fx.Node, torch.Tensor] = {}
        self._last = _write_backs(graph)

    def run_node(self, n: fx.Node) -> Any:
        if n not in self._last:
            return super().run_node(n)
        args, _ = self.fetch_args_kwargs_from_env(n)
        self.left[self._last[n]] = torch.ops.aten.copy.default(*args)
        return self.left[self._last[n]]

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = self.fetch_attr(target)
        return self._stand_in(target, value) if isinstance(value, torch.Tensor) else value

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        module = self.fetch_attr(target)
        if isinstance(module, fx.GraphModule):
            return _Runner(module.graph, self.seeds, self._first).run(*args)
        held = [*module.named_parameters(), *module.named_buffers()]
        state = {name: self._stand_in(f"{target}.{name}", t) for name, t in held}
        return torch.func.functional_call(module, state, args, kwargs)

    def _is_copy(self) -> bool:
        """Return True if the module is a copy: it holds none of the tensors with a seed."""
        held = [*self.module.parameters(), *self.module.buffers()]  # pyright: ignore[reportAttributeAccessIssue]
        return not any(id(t) in self._numbers for t in held)

    def _stand_in(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Return the random replacement of a tensor of the module. Raises ValueError if a pass computed it
        from others.
        """
        constant = getattr(tensor, "constant", None)
        if isinstance(constant, torch.Tensor):
            return constant
        if not is_fake(tensor):
            return tensor
        if id(tensor) not in self._stand_ins:
            number = self._numbers.get(id(tensor))
            if number is None and self._is_copy():
                number = self.seeds.names.get(name)
                self.copied.append(name)
            if number is None or spec_of(self.seeds.tensors.get(number, tensor)) != spec_of(tensor):
                if not self._first:
                    raise ValueError(f"{name} is computed from tensors of the module, which have no values in a trace")
                number = 0
            values = _real(tensor, number)
            self._stand_ins[id(tensor)] = values if isinstance(tensor, nn.Parameter) else values.abs()
        return self._stand_ins[id(tensor)]


def _real(value: Any, seed: int) -> Any:
    torch.manual_seed(seed)
    return real_like(value, RANDOM)


def _is_random(target: Any) -> bool:
    tags = target.tags if isinstance(target, torch._ops.OpOverload) else ()
    return torch.Tag.nondeterministic_seeded in tags or str(target).startswith(("inductor_random", "inductor_seed"))


def _write_backs(graph: fx.Graph) -> dict[fx.Node, fx.Node]:
    """Return the nodes that write into an input which nothing reads afterwards, with that input."""
    inputs_by_write: dict[fx.Node, fx.Node] = {}
    read: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        target = node.args[0] if node.target is torch.ops.aten.copy_.default else None
        if isinstance(target, fx.Node) and target.op == "placeholder" and target not in read:
            inputs_by_write[node] = target
        read.update(node.all_input_nodes)
    return inputs_by_write


def _is_differentiable(value: Any, place: int, seeds: Seeds) -> bool:
    if place in seeds.fixed or not isinstance(value, torch.Tensor):
        return False
    return value.dtype.is_floating_point or value.dtype.is_complex


def _tensors(value: Any, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, (bool, int, float, complex)):
        yield name, torch.tensor(value)
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from _tensors(item, f"{name}[{i}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _tensors(item, f"{name}[{key!r}]")


def _largest_difference(old: torch.Tensor, new: torch.Tensor) -> float:
    if old.numel() == 0:
        return 0.0
    wide = torch.complex128 if old.dtype.is_complex else torch.float64
    return float(torch.nan_to_num((old.to(wide) - new.to(wide)).abs()).max())
