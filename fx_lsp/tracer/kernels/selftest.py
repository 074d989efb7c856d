"""Write the end of a generated file: the original, random arguments, and a comparison of both results."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import fx, nn

from fx_lsp.codegen.file.format import literal
from fx_lsp.codegen.file.module import reserved_names
from fx_lsp.codegen.graph.unsupported import operation_name
from fx_lsp.codegen.ir.lowerings import is_random
from fx_lsp.model import CallContext
from fx_lsp.specs import DTYPES
from fx_lsp.tracer.capture.aot import Captured
from fx_lsp.tracer.inputs.plan.plans import Plan, Plans, SequencePlan, TensorPlan, ValuePlan, input_specs
from fx_lsp.tracer.kernels.original import original
from fx_lsp.tracer.kernels.random_tensors import random_tensor
from fx_lsp.tracer.kernels.signature import Signature
from fx_lsp.tracer.kernels.subject import GraphInput, hints_of, tuple_text
from fx_lsp.tracer.source.names import Namer, identifier

if TYPE_CHECKING:
    from fx_lsp.tracer.stages.registry import TracedCall


RESULTS = '''
def results(function, args, kwargs):
    """Return the tensors that a call returns, and the gradients of its inputs."""
    values = tree_leaves((args, kwargs))
    inputs = [v for v in values if torch.is_tensor(v) and v.requires_grad]
    outputs = [v for v in tree_leaves(function(*args, **kwargs)) if torch.is_tensor(v)]
    ends = [v for v in outputs if v.requires_grad]
    if not ends or not inputs:
        return outputs
    gradients = [torch.ones_like(v) for v in ends]
    options = {"allow_unused": True, "materialize_grads": True}
    return [*outputs, *torch.autograd.grad(ends, inputs, gradients, **options)]
'''

RESULTS_OF_MODULE = RESULTS.replace("(args, kwargs))\n    inputs", "(args, kwargs, *args[0].parameters()))\n    inputs")
"""A variant for a function whose first argument is a module."""

RESULTS_ONLY = '''
def results(function, args, kwargs):
    """Return the tensors that a call returns."""
    return [v for v in tree_leaves(function(*args, **kwargs)) if torch.is_tensor(v)]
'''
"""A variant for a function without a gradient."""

PERTURB = """\
module = copy.deepcopy(module)
for tensor in (*module.parameters(), *module.buffers()):
    if tensor.is_floating_point():
        tensor.data.add_(torch.rand_like(tensor), alpha=0.1)
"""
"""Perturbs parameters and buffers slightly, because many are zeros or ones at first."""


MODULE = '''
def __getattr__(name):
    """Makes the class CLASS on first use: the original with KERNELS as its forward."""
    if name != "CLASS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    base = type(original()[1]["module"])
    globals()[name] = type(name, (base,), {"forward": KERNELS, "__module__": __name__})
    return globals()[name]
'''


@dataclass(frozen=True)
class SelfTest:
    """Hold the definitions for the end of a file, its lines, and imports that have to begin the file.

    `imports` are its other imports; `module` is the class with kernels that the file offers, or ""; `missing` is the
    reason if there is no comparison, or ""; `original` is the expression of the original, "" if its call needs objects.
    """

    definitions: tuple[str, ...] = ()
    main: tuple[str, ...] = ()
    future: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    module: str = ""
    missing: str = ""
    original: str = ""


class _Missing(Exception):
    """Raised with the reason why the original cannot be called."""


def self_test(
    traced: TracedCall,
    captured: Captured,
    name: str,
    parameters: Signature,
    inputs: Sequence[GraphInput],
) -> SelfTest:
    """Return the original of the generated function `name`, its random arguments, and a comparison of their results.

    `fx_lsp.bench.variant.subject` reads the first two.
    """
    assert captured.computing is not None
    graph = captured.computing.graph
    if any(_is_random(n) for n in graph.nodes):
        return SelfTest(missing="it draws random numbers, which differ from those of the original")
    outside = [i for i in inputs if i.outside]
    try:
        arguments = _Arguments(traced, graph, captured, parameters, outside)
        arguments_text = arguments.text()
        function, module = _subject(traced, parameters)
    except _Missing as reason:
        return SelfTest(missing=str(reason))
    if outside:
        names = ", ".join(i.expression for i in outside)
        function = f"functools.wraps({function})(lambda *args, {names}, **kwargs: {function}(*args, **kwargs))"
    function = _in_autocast(function, traced.call.context)
    objects = {**({"module": module} if module else {}), **arguments.names}
    items = ", ".join(f'"{k}": {v}' for k, v in objects.items())
    definition, future = original(
        traced.ran, traced.request.package, f"{function}, {{{items}}}" if objects else function
    )
    drawn = "*arguments(0, device, **names)" if objects else "*arguments(0, device)"
    lines = [
        'device = "cuda" if torch.cuda.is_available() else "cpu"',
        "with torch.device(device):",
        f"    reference{', names' if objects else ''} = original()",
        f"both = [results(f, {drawn}) for f in (KERNELS, reference)]",
        "for ours, right in zip(*both):",
        "    difference = ours.to(torch.complex128) - right.to(torch.complex128)",
        '    print(f"largest difference: {difference.abs().max():.1e}")',
    ]
    results = RESULTS_OF_MODULE if isinstance(parameters.receiver, nn.Module) else RESULTS
    parts = [arguments_text, RESULTS_ONLY if captured.backward is None else results]
    offered = _offered_class(traced, parameters, name)
    if offered:
        parts.append(MODULE.replace("CLASS", offered).replace("KERNELS", name))
    if name in _OWN:  # our definitions make way for the user's
        definition = re.sub(rf"\Adef {name}\(", f"def {name}_(", definition)
        parts, lines = ([re.sub(rf"\b{name}\(", f"{name}_(", t) for t in texts] for texts in (parts, lines))
    imports = ("from torch.utils._pytree import tree_leaves",)
    main = tuple(line.replace("KERNELS", name) for line in lines)
    return SelfTest((definition, *parts), main, future, imports, offered, original=_call_of(definition, objects))


def _call_of(definition: str, objects: Mapping[str, str]) -> str:
    """Return the call of a definition that returns the original, "" if it returns objects of its program as well."""
    return "" if objects else f"{definition.removeprefix('def ').partition('(')[0]}()"


def _in_autocast(function: str, context: CallContext | None) -> str:
    """Return the expression of a function under the autocast of its call, whatever device that was for: kernels are for
    a GPU.
    """
    if context is None or not context.autocast:
        return function
    dtype = DTYPES[context.autocast[0][1]]
    return f'torch.autocast("cuda" if torch.cuda.is_available() else "cpu", torch.{dtype})({function})'


_OWN = ("original", "arguments", "results")


def _runs_on_cpu(node: fx.Node) -> bool:
    """Return True if PyTorch can compute an operation on the CPU."""
    target: Any = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return True
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(target.name(), key) for key in _CPU_KEYS)


_CPU_KEYS = (
    "CPU",
    "CompositeImplicitAutograd",
    "CompositeExplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
)


def _is_random(node: fx.Node) -> bool:
    seeds = ("inductor_random", "inductor_seed", "inductor_lookup_seed", "inductor_randint")
    return is_random(node) or any(s in str(node.target) for s in seeds)


def _subject(traced: TracedCall, parameters: Signature) -> tuple[str, str]:
    """Return the user's function, and the object that it is a method of, "" for none, as expressions in its file."""
    request, receiver = traced.request, parameters.receiver
    if receiver is None:
        return request.name, ""
    is_module = request.kind == "module"
    owner, _, method = (request.name, "", "__call__") if is_module else request.name.rpartition(".")
    if not owner:
        raise _Missing("the original is a method of an object that is created elsewhere")
    if is_module and not isinstance(receiver, nn.Module):
        raise _Missing("the original is not a module")
    if not _is_class(traced, owner):
        return f"type({owner}).{method}", owner
    if traced.constructor is None:
        raise _Missing(f"a program created the {owner}, and the constructor arguments are unknown")
    mode = ".eval()" if isinstance(receiver, nn.Module) and not receiver.training else ""
    return f"{owner}.{method}", f"{owner}({_constructor_arguments(traced.constructor, request.module)}){mode}"


def _offered_class(traced: TracedCall, parameters: Signature, name: str) -> str:
    """Return the name of the module class that a file of the function `name` offers, "" for none."""
    target = traced.request.name
    is_plain = traced.request.kind == "module" and target.isidentifier() and target not in reserved_names(name)
    return target if is_plain and isinstance(parameters.receiver, nn.Module) and _is_class(traced, target) else ""


def _is_class(traced: TracedCall, name: str) -> bool:
    tree = ast.parse(traced.ran)
    return "." in name or any(isinstance(s, ast.ClassDef) and s.name == name for s in ast.walk(tree))


def _constructor_arguments(plans: Plans, module: str) -> str:
    """Return the arguments of a constructor, without defaults, as text. Raises _Missing if one has no text."""
    spread = dict(plans.items).get(plans.starred or "")
    is_spread = isinstance(spread, SequencePlan) and bool(spread.items)
    parts: list[str] = []
    for name, plan in plans.items:
        is_positional = is_spread and name in plans.positional
        if isinstance(plan, SequencePlan) and name == plans.starred:
            parts += (_plan_text(item, module) for item in plan.items)
        elif is_positional or any(i.source != "default" for i in input_specs(Plans(((name, plan),)))):
            parts.append(f"{'' if is_positional else f'{name}='}{_plan_text(plan, module)}")
    return ", ".join(parts)


def _plan_text(plan: Plan, module: str) -> str:
    """Return the value of a plan as an expression in the user's file, which is `module`. Raises _Missing."""
    if isinstance(plan, TensorPlan):
        raise _Missing(f"it is constructed with a tensor, {plan.spec}")
    if isinstance(plan, ValuePlan):
        return literal(plan.make()) or _expression(plan.shown)
    items, kind = [_plan_text(item, module) for item in plan.items], plan.kind
    if kind is tuple and plan.keys is None:
        return tuple_text(items)
    if kind is list:
        return f"[{', '.join(items)}]"
    if kind is dict and plan.keys is not None:
        return "{" + ", ".join(f"{literal(k) or repr(k)}: {v}" for k, v in zip(plan.keys, items, strict=True)) + "}"
    name = kind.__qualname__ if isinstance(kind, type) and kind.__module__ == module else "<"
    if "<" in name:
        raise _Missing("it is constructed with an object that cannot be written as source")
    keys = plan.keys or ()
    return f"{name}({', '.join(f'{k}={v}' for k, v in zip(keys, items, strict=True)) if keys else ', '.join(items)})"


def _expression(spec: str) -> str:
    """Return an input's description as an expression, if it is Python. Raises _Missing."""
    try:
        tree = ast.parse(spec, mode="eval")
    except SyntaxError:
        raise _Missing(f"its constructor arguments cannot be written as source: {spec}") from None
    return ast.unparse(tree).replace("'", '"')


@dataclass
class _Arguments:
    """Write the function that creates arguments; `names` are expressions of the user's file, by parameter."""

    traced: TracedCall
    graph: fx.Graph
    captured: Captured
    parameters: Signature
    outside: Sequence[GraphInput]
    names: dict[str, str] = field(default_factory=dict[str, str])
    variables: list[tuple[str, torch.Tensor]] = field(default_factory=list[tuple[str, torch.Tensor]])

    def text(self) -> str:
        """Return the definition."""
        items = self.captured.names.inputs if self.captured.names is not None else {}
        placeholders = [n for n in self.graph.nodes if n.op == "placeholder" and n.name in items]
        self.nodes = {id(items[n.name].tensor): n for n in placeholders}
        self.namer = Namer()
        sizes = hints_of(self.captured)
        outside = [item.expression for item in self.outside]
        for word in ("seed", "device", "module", "copy", "torch", *sizes, *outside):
            self.namer.unique(word)
        self.lines: list[str] = []
        call = self.traced.call
        positional = [self.value(v, self._path(i)) for i, v in enumerate(call.args)]
        by_name = {k: self.value(v, k) for k, v in call.kwargs.items()}
        for item in self.outside:
            self.names[item.expression] = item.outside
            by_name[item.expression] = item.expression
        receiver = self.parameters.receiver
        if isinstance(receiver, nn.Module):
            self.lines += PERTURB.splitlines()
            positional.insert(0, f"module{'.requires_grad_(False)' if self.traced.captured.refused else ''}")
        elif receiver is not None:
            positional.insert(0, "copy.deepcopy(module)")
        receivers = ["module"] if receiver is not None else []
        own_parameters = ["seed", "device", *receivers, *self.names, *(f"{n}={hint}" for n, hint in sizes.items())]
        kwargs = "{" + ", ".join(f'"{k}": {v}' for k, v in by_name.items()) + "}"
        lines = [
            f"def arguments({', '.join(own_parameters)}):",
            '    """Return random positional and keyword arguments that the kernels accept."""',
            *self._refusal(),
            "    torch.manual_seed(seed)",
            *(f"    {line}" for line in self.lines),
            f"    return {tuple_text(positional)}, {kwargs}",
        ]
        return "\n".join(lines)

    def _refusal(self) -> list[str]:
        """Return the lines that refuse a CPU if an operation needs a GPU."""
        on_gpu = next((operation_name(n) for n in self.graph.nodes if not _runs_on_cpu(n)), "")
        refusal = f'        raise NotImplementedError("{on_gpu} only runs on a GPU")'
        return ['    if device == "cpu":', refusal] if on_gpu else []

    def _path(self, number: int) -> str:
        plain = [n for n, _ in self.parameters.values]
        return plain[min(number, len(plain) - 1)] if plain else "value"

    def value(self, value: Any, path: str) -> str:
        """Return an expression for an argument like this one; tensors become variables."""
        if isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        return literal(value) or self._container(value, path) or self._object(path)

    def _tensor(self, tensor: torch.Tensor, path: str) -> str:
        variable = next((name for name, other in self.variables if other is tensor), None)
        if variable is None:
            variable = self.namer.unique(identifier(path))
            requires_grad = tensor.requires_grad and not self.traced.captured.refused
            self.lines.append(f"{variable} = {random_tensor(tensor, self.nodes.get(id(tensor)), requires_grad)}")
            self.variables.append((variable, tensor))
        return variable

    def _container(self, value: Any, path: str) -> str | None:
        """Return an expression for a list, a dictionary, a dataclass …; None for anything else."""
        match value:
            case tuple() if hasattr(value, "_fields"):
                return self._instance(value, value._fields)  # pyright: ignore[reportAttributeAccessIssue]
            case list():
                return f"[{', '.join(self._items(value, path))}]"
            case tuple():
                return tuple_text(self._items(value, path))
            case Mapping():
                pairs = [f"{literal(k) or repr(k)}: {self.value(v, str(k))}" for k, v in value.items()]
                return "{" + ", ".join(pairs) + "}"
            case _ if dataclasses.is_dataclass(value) and not isinstance(value, (type, nn.Module)):
                return self._instance(value, [f.name for f in dataclasses.fields(value) if f.init])
            case _:
                return None

    def _items(self, values: Sequence[Any], path: str) -> list[str]:
        return [self.value(v, f"{path}_{n}") for n, v in enumerate(values)]

    def _instance(self, value: Any, fields: Iterable[str]) -> str:
        """Return a call of a class of the user's file with the fields of `value`. Raises _Missing for another class."""
        name = type(value).__qualname__
        if type(value).__module__ != self.traced.request.module or "<" in name:
            raise _Missing(f"{name} is a class of another file")
        if name not in self.names:
            self.namer.unique(name)
            self.names[name] = name
        return f"{name}({', '.join(f'{n}={self.value(getattr(value, n), n)}' for n in fields)})"

    def _object(self, path: str) -> str:
        """Return an object of the user's file, by the expression in the input's description."""
        spec = next((i.spec for i in self.traced.inputs if i.name == path), "")
        text = _expression(spec) if spec else ""
        if not text:
            raise _Missing(f"{path} is an object that cannot be written as source")
        parameter = self.namer.unique(identifier(path))
        self.names[parameter] = text
        return parameter
