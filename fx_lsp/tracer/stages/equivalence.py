"""Is it still the same function? Graphs run before and after a pass, on real tensors of the input specs, on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import is_fake
from torch.testing._comparison import default_tolerances
from torch.utils._python_dispatch import _disable_current_modes

from fx_lsp.tracer.capture.graphs import is_tangent, value_of
from fx_lsp.tracer.failures.exceptions import sentence
from fx_lsp.tracer.run.tensors import spec_of
from fx_lsp.tracer.stages.real_tensors import MOST_BYTES, RANDOM, bytes_of, real_like


@dataclass(frozen=True)
class Seeds:
    """Which random numbers stand for what: inputs by their place and name, tensors of the module by what they are.

    A copy of a module has other tensors under the same names. `fixed` are the places of inputs without gradients.
    """

    inputs: dict[str, int] = field(default_factory=dict[str, int])
    tensors: dict[int, torch.Tensor] = field(default_factory=dict[int, torch.Tensor])
    names: dict[str, int] = field(default_factory=dict[str, int])
    fixed: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Results:
    """What a graph computed: outputs, gradients and what it left its inputs as; or why it was not run.

    Each has a key, and in `labels` what it is called. `random` where the graph draws random numbers, so that another
    one of the same function may compute something else; `copied` where its module is a copy, of which one knows only
    the names of its weights; `gradients` where some are among the tensors.
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
    before: Results | None = None,
) -> Results:
    """Run a graph on random tensors: on the same ones as the graph `before` it.

    With `differentiate`, also compute the gradients of its inputs, but for those that are fixed, as a module's buffers
    are, for a random gradient of each output. `label` says what an input is called.
    """
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    if unknown := [n for n in placeholders if not n.args and not {"val", "example_value"} & n.meta.keys()]:
        return Results(trouble=f"nothing says what {label(unknown[0])} is")
    needed = sum(bytes_of(value_of(n)) for n in graph.nodes)
    if needed > MOST_BYTES:
        return Results(trouble=f"its values need {needed / (1 << 30):.1f} GiB")
    try:
        seeds = _seeds(graph, is_fixed) if before is None else before.seeds
        places = _places(placeholders, seeds)
        with _disable_current_modes(), torch.random.fork_rng(devices=[]):
            inputs = [_real(value_of(n), place) for n, place in zip(placeholders, places, strict=True)]
            leaves = [(i, t) for i, t in zip(places, inputs, strict=True) if _is_differentiable(t, i, seeds)]
            if differentiate:
                for _, tensor in leaves:
                    tensor.requires_grad_()
            # Inputs may be written to, which their own leaves must not be.
            given = [t.clone() if isinstance(t, torch.Tensor) else t for t in inputs]
            torch.manual_seed(0)
            with torch.set_grad_enabled(differentiate):
                runner = _Runner(graph, seeds, before is None)
                outputs = dict(_tensors(runner.run(*given), "output"))
            found = {name: tensor.detach() for name, tensor in outputs.items()}
            if differentiate:
                found |= {f"gradient {i}": g for i, g in _gradients(outputs, leaves).items()}
            left: list[Any] = [runner.left.get(node, t) for node, t in zip(placeholders, given, strict=True)]
            found |= {
                f"input {i}": t.detach() for i, t in zip(places, left, strict=True) if isinstance(t, torch.Tensor)
            }
    except Exception as error:
        return Results(trouble=f"it cannot be run on the CPU: {sentence(error)}")
    called = dict(zip(places, map(label, placeholders), strict=True))
    labels = {f"gradient {i}": f"the gradient of {name}" for i, name in called.items()}
    labels |= {f"input {i}": f"what it leaves in {name}" for i, name in called.items()}
    joint = any(map(is_tangent, placeholders)) and len(leaves) > 1
    gradients = joint or any(name.startswith("gradient") for name in found)
    random = any(_is_random(n.target) for n in graph.nodes)
    return Results(found, labels, "", random, bool(runner.copied), gradients, seeds)


def _seeds(graph: fx.Graph, is_fixed: Callable[[fx.Node], bool]) -> Seeds:
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    inputs = {n.name: i for i, n in enumerate(placeholders)}
    fixed = frozenset(i for i, n in enumerate(placeholders) if is_fixed(n))
    module = graph.owning_module
    found: dict[str, torch.Tensor] = {}
    if module is not None:
        found |= dict(module.named_parameters()) | dict(module.named_buffers())
        named = {n.target for n in graph.nodes if n.op == "get_attr"}
        found |= {name: t for name in named if isinstance(t := _attribute(module, name), torch.Tensor)}
    numbers = {id(t): i for i, t in enumerate(found.values(), len(inputs))}
    return Seeds(
        inputs, {numbers[id(t)]: t for t in found.values()}, {n: numbers[id(t)] for n, t in found.items()}, fixed
    )


def _attribute(module: nn.Module, name: str) -> Any:
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _places(placeholders: list[fx.Node], seeds: Seeds) -> list[int]:
    """The place that each input had in the graph before: the same, unless there are more or fewer inputs now."""
    if len(placeholders) == len(seeds.inputs):
        return list(range(len(placeholders)))
    return [seeds.inputs.get(n.name, len(seeds.inputs) + i) for i, n in enumerate(placeholders)]


def compare(before: Results, after: Results) -> str:
    """One sentence: whether two graphs are the same function, as far as one run tells."""
    for results, which in ((before, "the graph before"), (after, "the graph after")):
        if results.trouble:
            return f"not checked: {which} was not run, because {results.trouble}"
    with _disable_current_modes():
        return _compare(before, after)


def _compare(before: Results, after: Results) -> str:
    labels, worst = after.labels | before.labels, 0.0
    for which, some, others in (("lost", before, after), ("new", after, before)):
        for name in some.tensors:
            if name not in others.tensors and not name.startswith("input"):
                return f"it is another function: {labels.get(name, name)} is {which}"
    for name, old in before.tensors.items():
        label, new = labels.get(name, name), after.tensors.get(name)
        if new is None:
            continue
        if old.shape != new.shape or old.dtype != new.dtype:
            return f"it is another function: {label} was {spec_of(old)} and is {spec_of(new)}"
        rtol, atol = default_tolerances(old, new)
        difference = _largest_difference(old, new)
        if not torch.allclose(old, new, rtol=rtol, atol=atol, equal_nan=True):
            if before.random or after.random or after.copied:
                why = (
                    "the module is a copy, which may have other weights" if after.copied else "random numbers are drawn"
                )
                return f"not certain, because {why}: {label} differs by up to {difference:.3g}"
            return f"it is another function: {label} differs by up to {difference:.3g}"
        worst = max(worst, difference)
    what = "outputs and gradients" if before.gradients else "outputs"
    strides = next((n for n, old in before.tensors.items() if n in after.tensors and _moved(old, after.tensors[n])), "")
    other = f"; {labels.get(strides, strides)} has other strides" if strides.startswith("output") else ""
    same = "; the weights of its copy are taken to be the same" if after.copied else ""
    return f"checked on random inputs: the same {what}{f', up to {worst:.2g}' if worst else ''}{other}{same}"


def _moved(old: torch.Tensor, new: torch.Tensor) -> bool:
    return old.numel() > 1 and old.stride() != new.stride()


def _gradients(outputs: dict[str, torch.Tensor], leaves: list[tuple[int, torch.Tensor]]) -> dict[int, torch.Tensor]:
    wanted = [t for t in outputs.values() if t.requires_grad]
    if not wanted or not leaves:
        return {}
    torch.manual_seed(1)
    seeds = [torch.randn(t.shape, dtype=t.dtype) for t in wanted]  # the same ones, whatever their strides
    grads: tuple[torch.Tensor | None, ...] = torch.autograd.grad(
        wanted, [t for _, t in leaves], seeds, allow_unused=True
    )
    found: list[torch.Tensor | None] = list(grads)
    pairs = zip(leaves, found, strict=True)
    return {place: g.detach() for (place, _), g in pairs if g is not None}


class _Runner(fx.Interpreter):
    """Runs a graph whose module holds fake tensors: each of them stands for a random one.

    Only the `first` graph may hold others than the seeds know. `copied` are names of those that are known by name only.
    What is written back into an input at the end is in `left`: the gradient may need what was there before.
    """

    def __init__(self, graph: fx.Graph, seeds: Seeds, first: bool) -> None:
        super().__init__(graph.owning_module or nn.Module(), graph=graph, garbage_collect_values=True)
        self._seeds, self._first = seeds, first
        self._numbers = {id(t): number for number, t in seeds.tensors.items()}
        self._made: dict[int, torch.Tensor] = {}
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
            return _Runner(module.graph, self._seeds, self._first).run(*args)
        held = [*module.named_parameters(), *module.named_buffers()]
        state = {name: self._stand_in(f"{target}.{name}", t) for name, t in held}
        return torch.func.functional_call(module, state, args, kwargs)

    def _is_copy(self) -> bool:
        """Whether the module is a copy: it holds none of the tensors that are known."""
        held = [*self.module.parameters(), *self.module.buffers()]  # pyright: ignore[reportAttributeAccessIssue]
        return not any(id(t) in self._numbers for t in held)

    def _stand_in(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """What stands for a tensor of the module. Raises ValueError for one that a pass has computed from others."""
        constant = getattr(tensor, "constant", None)
        if isinstance(constant, torch.Tensor):
            return constant
        if not is_fake(tensor):
            return tensor
        if id(tensor) not in self._made:
            number = self._numbers.get(id(tensor))
            if number is None and self._is_copy():
                number = self._seeds.names.get(name)
                self.copied.append(name)
            if number is None or spec_of(self._seeds.tensors.get(number, tensor)) != spec_of(tensor):
                if not self._first:
                    raise ValueError(f"{name} is computed from tensors of the module, which have no values here")
                number = 0
            made = _real(tensor, number)
            self._made[id(tensor)] = made if isinstance(tensor, nn.Parameter) else made.abs()
        return self._made[id(tensor)]


def _real(value: Any, seed: int) -> Any:
    torch.manual_seed(seed)
    return real_like(value, RANDOM)


def _is_random(target: Any) -> bool:
    tags = target.tags if isinstance(target, torch._ops.OpOverload) else ()
    return torch.Tag.nondeterministic_seeded in tags or str(target).startswith(("inductor_random", "inductor_seed"))


def _write_backs(graph: fx.Graph) -> dict[fx.Node, fx.Node]:
    """The nodes that write into an input which nothing reads afterwards, and that input."""
    found: dict[fx.Node, fx.Node] = {}
    read: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        target = node.args[0] if node.target is torch.ops.aten.copy_.default else None
        if isinstance(target, fx.Node) and target.op == "placeholder" and target not in read:
            found[node] = target
        read.update(node.all_input_nodes)
    return found


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
