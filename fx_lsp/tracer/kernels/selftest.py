"""Write the end of a generated file: a comparison with the original, and the times of both."""

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
from fx_lsp.codegen.graph.unsupported import operation_name
from fx_lsp.codegen.ir.lowerings import is_random
from fx_lsp.tracer.capture.aot import Captured
from fx_lsp.tracer.inputs.plan.plans import Plan, Plans, SequencePlan, TensorPlan, ValuePlan, input_specs
from fx_lsp.tracer.kernels.comparison import COMPARE, COMPARE_WIDER, DOUBLED, RESULTS, SHAKEN, TENSORS, WIDER, main
from fx_lsp.tracer.kernels.original import original
from fx_lsp.tracer.kernels.random_tensors import random_tensor
from fx_lsp.tracer.kernels.signature import Signature
from fx_lsp.tracer.kernels.subject import GraphInput, tuple_text
from fx_lsp.tracer.source.names import Namer, identifier

if TYPE_CHECKING:
    from fx_lsp.tracer.stages.registry import TracedCall


@dataclass(frozen=True)
class SelfTest:
    """Hold the definitions for the end of a file, its lines, and imports that have to begin the file.

    `imports` are its other imports; `missing` is the reason if there is no comparison, or "".
    """

    definitions: tuple[str, ...] = ()
    main: tuple[str, ...] = ()
    future: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    missing: str = ""


class _Missing(Exception):
    """Raised with the reason why the original cannot be called."""


def self_test(
    traced: TracedCall,
    captured: Captured,
    name: str,
    parameters: Signature,
    inputs: Sequence[GraphInput],
) -> SelfTest:
    """Compare the generated function `name` with the user's."""
    assert captured.computing is not None
    graph = captured.computing.graph
    if any(_is_random(n) for n in graph.nodes):
        return _absent("it draws random numbers, which differ from those of the original")
    outside = [i for i in inputs if i.outside]
    try:
        arguments = _Arguments(traced, graph, captured, parameters, outside)
        arguments_text = arguments.text()
        subject = _subject(traced, parameters)
    except _Missing as reason:
        return _absent(str(reason))
    names = arguments.names
    objects = "{" + ", ".join(f'"{k}": {v}' for k, v in names.items()) + "}"
    result = f"{subject}, {objects}" if names else subject
    definition, future = original(traced.ran, traced.request.package, result)
    compare = [WIDER, COMPARE_WIDER] if _casts(graph) else [COMPARE]
    copies = [SHAKEN] if isinstance(parameters.receiver, nn.Module) else []
    parts = [arguments_text, *copies, TENSORS, RESULTS, DOUBLED, *compare]
    on_gpu = next((operation_name(n) for n in graph.nodes if not _runs_on_cpu(n)), "")
    lines = main(name, _method(traced, parameters), bool(names), [i.expression for i in outside], on_gpu)
    if re.search(rf"^def {name}\(", "\n".join([definition, *parts]), re.M):  # our definitions make way for the user's
        definition = re.sub(rf"\Adef {name}\(", f"def {name}_(", definition)
        parts, lines = ([re.sub(rf"\b{name}(?=[(),])", f"{name}_", t) for t in texts] for texts in (parts, lines))
    definitions = (definition, *(part.replace("KERNELS", name) for part in parts))
    return SelfTest(
        definitions, tuple(line.replace("KERNELS", name) for line in lines), future, _IMPORTS[-len(compare) :]
    )


_IMPORTS = (
    "from torch.utils._python_dispatch import TorchDispatchMode",
    "from torch.utils._pytree import tree_map",
)
"""Imports of the comparison; the first is for keeping casts from rounding."""


def _absent(reason: str) -> SelfTest:
    return SelfTest(main=(f'print("not compared with the original: {reason}")',), missing=reason)


def _casts(graph: fx.Graph) -> bool:
    """Return True if a function casts to a half precision that not all of its inputs have, or to one temporarily."""
    input_dtypes = set(_float_dtypes(graph, "placeholder").values())
    dtypes = _float_dtypes(graph, "call_function")
    if any(input_dtypes != {dtype} for dtype in {*dtypes.values()} & _HALF):
        return True
    rounded: set[fx.Node] = set()
    for node, dtype in dtypes.items():
        operands = [n for n in node.all_input_nodes if n in dtypes]
        is_rounded = dtype in _HALF and any(dtypes[n] not in _HALF for n in operands)
        if is_rounded or not rounded.isdisjoint(operands):
            rounded.add(node)
            if dtype not in _HALF:
                return True
    return False


def _float_dtypes(graph: fx.Graph, op: str) -> dict[fx.Node, torch.dtype]:
    """Return the dtypes of floating-point tensors among the nodes of one kind."""
    values = {n: n.meta.get("val") for n in graph.nodes if n.op == op}
    tensors = {n: value for n, value in values.items() if isinstance(value, torch.Tensor)}
    return {n: tensor.dtype for n, tensor in tensors.items() if tensor.dtype.is_floating_point}


_HALF = {torch.float16, torch.bfloat16}


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


def _subject(traced: TracedCall, parameters: Signature) -> str:
    """Return the user's function, or the object of its method, as an expression in its file."""
    request, receiver = traced.request, parameters.receiver
    if receiver is None:
        return request.name
    owner = request.name if request.kind == "module" else request.name.rpartition(".")[0]
    if not owner:
        raise _Missing("the original is a method of an object that is created elsewhere")
    if request.kind == "module" and not isinstance(receiver, nn.Module):
        raise _Missing("the original is not a module")
    if not _is_class(traced, owner):
        return owner
    if traced.constructor is None:
        raise _Missing(f"a program created the {owner}, and the constructor arguments are unknown")
    mode = ".eval()" if isinstance(receiver, nn.Module) and not receiver.training else ""
    return f"{owner}({_constructor_arguments(traced.constructor, request.module)}){mode}"


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


def _method(traced: TracedCall, parameters: Signature) -> str:
    """Return the method that is called on the original's object: `__call__` of a module; "" for a function."""
    if parameters.receiver is None:
        return ""
    return "__call__" if traced.request.kind == "module" else traced.request.name.rpartition(".")[2]


@dataclass
class _Arguments:
    """Write the function that creates arguments; `names` are its names from the user's file, by local name."""

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
        for word in ("seed", "device", "names", "module", "copy", "shaken"):
            self.namer.unique(word)
        self.lines: list[str] = []
        call = self.traced.call
        positional = [self.value(v, self._path(i)) for i, v in enumerate(call.args)]
        by_name = {k: self.value(v, k) for k, v in call.kwargs.items()}
        for item in self.outside:
            self.names[item.expression] = item.outside
            by_name[item.expression] = f'names["{item.expression}"]'
        receiver = self.parameters.receiver
        if isinstance(receiver, nn.Module):
            positional.insert(0, f"shaken(module){'.requires_grad_(False)' if self.traced.captured.refused else ''}")
        elif receiver is not None:
            positional.insert(0, "copy.deepcopy(module)")
        own_parameters = ["seed", "device"]
        own_parameters += ["module"] if receiver is not None else []
        own_parameters += ["names"] if self.names else []
        kwargs = "{" + ", ".join(f'"{k}": {v}' for k, v in by_name.items()) + "}"
        lines = [
            f"def arguments({', '.join(own_parameters)}):",
            '    """Return random positional and keyword arguments that the kernels accept."""',
            "    torch.manual_seed(seed)",
            *(f"    {line}" for line in self.lines),
            f"    return {tuple_text(positional)}, {kwargs}",
        ]
        return "\n".join(lines)

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
        self.names[name] = name
        return f'names["{name}"]({", ".join(f"{n}={self.value(getattr(value, n), n)}" for n in fields)})'

    def _object(self, path: str) -> str:
        """Return an object of the user's file, by the expression in the input's description."""
        spec = next((i.spec for i in self.traced.inputs if i.name == path), "")
        text = _expression(spec) if spec else ""
        if not text:
            raise _Missing(f"{path} is an object that cannot be written as source")
        self.names[identifier(path)] = text
        return f'names["{identifier(path)}"]'
