"""Is it still the same function? Graphs run before and after a pass, on real tensors of the input specs, on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn
from torch.fx.experimental.symbolic_shapes import free_symbols
from torch.testing._comparison import default_tolerances
from torch.utils._python_dispatch import _disable_current_modes

from fx_lsp.tracer.failures import sentence
from fx_lsp.tracer.tensors import spec_of

MOST_BYTES = 1 << 30
"""Graphs whose values need more are not run."""


@dataclass(frozen=True)
class Results:
    """What a graph computed: outputs and gradients, by a name for each; or why it was not run.

    `random` where it draws random numbers, so that another graph of the same function may compute something else;
    `gradients` where some are among the tensors.
    """

    tensors: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])
    trouble: str = ""
    random: bool = False
    gradients: bool = False


def run_for_real(graph: fx.Graph, differentiate: bool) -> Results:
    """Run a graph on random tensors, the same ones for every graph with such inputs.

    With `differentiate`, also compute the gradients of its inputs, for a random gradient of each output.
    """
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    needed = sum(_bytes(n.meta.get("val", n.meta.get("example_value"))) for n in graph.nodes)
    if needed > MOST_BYTES:
        return Results(trouble=f"its values need {needed / (1 << 30):.1f} GiB")
    try:
        with _disable_current_modes(), torch.random.fork_rng(devices=[]):
            inputs = [
                _real(n.meta.get("val", n.meta.get("example_value")), seed) for seed, n in enumerate(placeholders)
            ]
            leaves = [(n, t) for n, t in zip(placeholders, inputs, strict=True) if _is_differentiable(t)]
            if differentiate:
                for _, tensor in leaves:
                    tensor.requires_grad_()
            # Inputs may be written to, which their own leaves must not be.
            given = [t.clone() if isinstance(t, torch.Tensor) else t for t in inputs]
            torch.manual_seed(0)
            with torch.set_grad_enabled(differentiate):
                outputs = dict(_tensors(_Runner(graph).run(*given), "output"))
            found = {name: tensor.detach() for name, tensor in outputs.items()}
            if differentiate:
                found |= _gradients(outputs, leaves)
            joint = any(n.name.startswith("tangents") for n in placeholders) and len(leaves) > 1
            gradients = joint or any(name.startswith("gradient") for name in found)
            return Results(found, "", any(_is_random(n.target) for n in graph.nodes), gradients)
    except Exception as error:
        return Results(trouble=f"it cannot be run on the CPU: {sentence(error)}")


def compare(before: Results, after: Results) -> str:
    """One sentence: whether two graphs are the same function, as far as one run tells."""
    for results, which in ((before, "the graph before"), (after, "the graph after")):
        if results.trouble:
            return f"not checked: {which} was not run, because {results.trouble}"
    with _disable_current_modes():
        return _compare(before, after)


def _compare(before: Results, after: Results) -> str:
    if before.tensors.keys() != after.tensors.keys():
        lost = sorted(before.tensors.keys() ^ after.tensors.keys())
        return f"it is another function: {', '.join(lost)} is there only once"
    worst = 0.0
    for name, old in before.tensors.items():
        new = after.tensors[name]
        if old.shape != new.shape or old.dtype != new.dtype:
            return f"it is another function: {name} was {spec_of(old)} and is {spec_of(new)}"
        rtol, atol = default_tolerances(old, new)
        difference = _largest_difference(old, new)
        if not torch.allclose(old, new, rtol=rtol, atol=atol, equal_nan=True):
            if before.random or after.random:
                return f"not certain, because random numbers are drawn: {name} differs by up to {difference:.3g}"
            return f"it is another function: {name} differs by up to {difference:.3g}"
        worst = max(worst, difference)
    what = "outputs and gradients" if before.gradients else "outputs"
    return f"checked on random inputs: the same {what}" + (f", up to {worst:.2g}" if worst else "")


def _gradients(outputs: dict[str, torch.Tensor], leaves: list[tuple[fx.Node, torch.Tensor]]) -> dict[str, torch.Tensor]:
    wanted = [t for t in outputs.values() if t.requires_grad]
    if not wanted or not leaves:
        return {}
    torch.manual_seed(1)
    seeds = [torch.randn_like(t) for t in wanted]
    grads: tuple[torch.Tensor | None, ...] = torch.autograd.grad(
        wanted, [t for _, t in leaves], seeds, allow_unused=True
    )
    found: list[torch.Tensor | None] = list(grads)
    pairs = zip(leaves, found, strict=True)
    return {f"gradient of {node.name}": g.detach() for (node, _), g in pairs if g is not None}


class _Runner(fx.Interpreter):
    """Runs a graph whose module holds fake tensors: each of them stands for a random one."""

    def __init__(self, graph: fx.Graph) -> None:
        super().__init__(graph.owning_module or nn.Module(), graph=graph, garbage_collect_values=True)
        self._made: dict[int, torch.Tensor] = {}

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = self.fetch_attr(target)
        return self._stand_in(value) if isinstance(value, torch.Tensor) else value

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        module = self.fetch_attr(target)
        if isinstance(module, fx.GraphModule):
            return _Runner(module.graph).run(*args)
        state = {name: self._stand_in(t) for name, t in [*module.named_parameters(), *module.named_buffers()]}
        return torch.func.functional_call(module, state, args, kwargs)

    def _stand_in(self, tensor: torch.Tensor) -> torch.Tensor:
        constant = getattr(tensor, "constant", None)
        if isinstance(constant, torch.Tensor):
            return constant
        if id(tensor) not in self._made:
            seed = sum(tensor.shape) + tensor.ndim
            made = _real(tensor, seed)
            self._made[id(tensor)] = made if isinstance(tensor, nn.Parameter) else made.abs()
        return self._made[id(tensor)]


def _real(value: Any, seed: int) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    torch.manual_seed(seed)
    sizes, strides = [int(s) for s in value.shape], [int(s) for s in value.stride()]
    with torch.no_grad():
        made = torch.empty_strided(sizes, strides, dtype=value.dtype)
        if value.dtype.is_floating_point or value.dtype.is_complex:
            made.copy_(torch.randn(sizes, dtype=torch.complex64 if value.dtype.is_complex else torch.float32))
        else:
            made.copy_(torch.randint(0, 2, sizes))
    return made


def _is_random(target: Any) -> bool:
    tags = target.tags if isinstance(target, torch._ops.OpOverload) else ()
    return torch.Tag.nondeterministic_seeded in tags or str(target).startswith(("inductor_random", "inductor_seed"))


def _is_differentiable(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.dtype.is_floating_point or value.dtype.is_complex)


def _tensors(value: Any, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
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


def _bytes(value: Any) -> int:
    if not isinstance(value, torch.Tensor) or free_symbols(value):
        return 0
    return value.numel() * value.element_size()
