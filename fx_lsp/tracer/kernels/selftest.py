"""The end of a generated file: a comparison with the original, and the times of both."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import fx, nn

from fx_lsp.codegen.file.format import literal
from fx_lsp.tracer.capture.aot import Captured
from fx_lsp.tracer.kernels.comparison import COMPARE, COMPARE_WIDER, DOUBLED, RESULTS, SHAKEN, TENSORS, WIDER, main
from fx_lsp.tracer.kernels.original import original
from fx_lsp.tracer.kernels.signature import Signature
from fx_lsp.tracer.kernels.subject import Given
from fx_lsp.tracer.kernels.value_ranges import highest, is_positive
from fx_lsp.tracer.run.values.symbols import size_hint
from fx_lsp.tracer.source.names import Namer, identifier

if TYPE_CHECKING:
    from fx_lsp.tracer.stages.registry import Traced


@dataclass(frozen=True)
class SelfTest:
    """The definitions that the end of a file needs, its lines, and imports that have to begin the file.

    `imports` are those it needs besides; `missing` says why there is no comparison, or is "".
    """

    definitions: tuple[str, ...] = ()
    main: tuple[str, ...] = ()
    future: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    missing: str = ""


class _Missing(Exception):
    """Why the original cannot be called."""


def self_test(
    traced: Traced, captured: Captured, graph: fx.Graph, name: str, found: Signature, given: Sequence[Given]
) -> SelfTest:
    """The comparison of the generated function `name` with the user's."""
    if any(_is_random(n) for n in graph.nodes):
        return _absent("it draws random numbers, which are others in the original")
    try:
        outside = [g for g in given if g.outside]
        arguments = _Arguments(traced, graph, captured, found, outside)
        text = arguments.text()
        subject = _subject(traced, found)
        names = arguments.names
    except _Missing as why:
        return _absent(str(why))
    objects = "{" + ", ".join(f'"{k}": {v}' for k, v in names.items()) + "}"
    result = f"{subject}, {objects}" if names else subject
    definition, future = original(traced.ran, traced.request.package, result)
    receiver = _receiver(traced, found)
    compare = [WIDER, COMPARE_WIDER] if _casts(graph) else [COMPARE]
    helpers = [*([SHAKEN] if isinstance(found.receiver, nn.Module) else []), TENSORS, RESULTS, DOUBLED, *compare]
    lines = main(name, receiver, bool(names), [g.expression for g in outside])
    parts = [text, *helpers]
    if re.search(rf"^def {name}\(", "\n".join([definition, *parts]), re.M):  # ours make way for the user's
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
"""What the comparison imports; the first where it keeps casts from rounding."""


def _absent(why: str) -> SelfTest:
    return SelfTest(main=(f'print("not compared with the original: {why}")',), missing=why)


def _casts(graph: fx.Graph) -> bool:
    """Whether a function casts to a half precision that not all of its inputs have, or to one for a while."""
    values = [(n, v.dtype) for n in graph.nodes if isinstance(v := n.meta.get("val"), torch.Tensor)]
    given = {dtype for n, dtype in values if n.op == "placeholder" and dtype.is_floating_point}
    dtypes = {n: dtype for n, dtype in values if n.op == "call_function" and dtype.is_floating_point}
    if any(given != {dtype} for dtype in {*dtypes.values()} & _HALF):
        return True
    rounded: set[fx.Node] = set()
    for node, dtype in dtypes.items():
        sources = [n for n in node.all_input_nodes if n in dtypes]
        if any(n in rounded for n in sources) or (dtype in _HALF and any(dtypes[n] not in _HALF for n in sources)):
            rounded.add(node)
        if node in rounded and dtype not in _HALF:
            return True
    return False


_HALF = {torch.float16, torch.bfloat16}


def _is_random(node: fx.Node) -> bool:
    target: Any = node.target
    tags = target.tags if isinstance(target, torch._ops.OpOverload) else ()
    dropped = [
        node.args[i] if i < len(node.args) else node.kwargs.get(a.name, a.default_value)
        for i, a in enumerate(target._schema.arguments if tags else ())
        if a.name == "dropout_p"
    ]
    if dropped == [0.0]:
        return False
    seeds = ("inductor_random", "inductor_seed", "inductor_lookup_seed", "inductor_randint")
    return torch.Tag.nondeterministic_seeded in tags or any(s in str(target) for s in seeds)


def _subject(traced: Traced, found: Signature) -> str:
    """The user's function, or the object that it is a method of, as an expression in its file."""
    request = traced.request
    if found.receiver is None:
        return request.name
    owner = request.name if request.kind == "module" else request.name.rpartition(".")[0]
    if not owner:
        raise _Missing("the original is a method of an object that is made elsewhere")
    if request.kind == "module" and not isinstance(found.receiver, nn.Module):
        raise _Missing("the original is no module")
    made = [(i.name.removeprefix("init."), i.spec) for i in traced.inputs if i.name.startswith("init.")]
    if not _is_class(traced, owner):
        return owner
    values = ", ".join(f"{_keyword(n)}{_expression(spec)}" for n, spec in made)
    mode = ".eval()" if isinstance(found.receiver, nn.Module) and not found.receiver.training else ""
    return f"{owner}({values}){mode}"


def _is_class(traced: Traced, name: str) -> bool:
    tree = ast.parse(traced.ran)
    return "." in name or any(isinstance(s, ast.ClassDef) and s.name == name for s in ast.walk(tree))


def _keyword(name: str) -> str:
    return f"{name}=" if name.isidentifier() else ""


def _expression(spec: str) -> str:
    """What an input's description stands for, if it is Python. Raises _Missing."""
    try:
        tree = ast.parse(spec, mode="eval")
    except SyntaxError:
        raise _Missing(f"what it was made with cannot be written down: {spec}") from None
    return ast.unparse(tree).replace("'", '"')


def _receiver(traced: Traced, found: Signature) -> str:
    """How the original is called on an object: as a module, or by the method's name."""
    if found.receiver is None:
        return ""
    return "__call__" if traced.request.kind == "module" else traced.request.name.rpartition(".")[2]


@dataclass
class _Arguments:
    """The function that makes arguments; `names` are what it needs of the user's file, by the name it uses."""

    traced: Traced
    graph: fx.Graph
    captured: Captured
    found: Signature
    outside: Sequence[Given]
    names: dict[str, str] = field(default_factory=dict[str, str])
    variables: list[tuple[str, torch.Tensor]] = field(default_factory=list[tuple[str, torch.Tensor]])

    def text(self) -> str:
        """The definition."""
        known = self.captured.names.inputs if self.captured.names is not None else {}
        self.nodes = {
            id(known[n.name].tensor): n for n in self.graph.nodes if n.op == "placeholder" and n.name in known
        }
        self.namer = Namer()
        for word in ("seed", "device", "names", "module", "copy", "shaken"):
            self.namer.unique(word)
        self.lines: list[str] = []
        call = self.traced.call
        positional = [self.value(v, self._path(i)) for i, v in enumerate(call.args)]
        by_name = {k: self.value(v, k) for k, v in call.kwargs.items()}
        for given in self.outside:
            self.names[given.expression] = given.outside
            by_name[given.expression] = f'names["{given.expression}"]'
        receiver = self.found.receiver
        if isinstance(receiver, nn.Module):
            positional.insert(0, f"shaken(module){'.requires_grad_(False)' if self.traced.captured.refused else ''}")
        elif receiver is not None:
            positional.insert(0, "copy.deepcopy(module)")
        taken = ["seed", "device"]
        taken += ["module"] if receiver is not None else []
        taken += ["names"] if self.names else []
        args = f"({', '.join(positional)}{',' if len(positional) == 1 else ''})"
        kwargs = "{" + ", ".join(f'"{k}": {v}' for k, v in by_name.items()) + "}"
        lines = [
            f"def arguments({', '.join(taken)}):",
            '    """Fresh random arguments, positional ones and others, like those the kernels are made for."""',
            "    torch.manual_seed(seed)",
            *(f"    {line}" for line in self.lines),
            f"    return {args}, {kwargs}",
        ]
        return "\n".join(lines)

    def _path(self, number: int) -> str:
        plain = [n for n, _ in self.found.values]
        return plain[min(number, len(plain) - 1)] if plain else "value"

    def value(self, value: Any, path: str) -> str:
        """An expression for an argument like this one; tensors become variables."""
        if isinstance(value, torch.Tensor):
            known = next((n for n, t in self.variables if t is value), None)
            if known is not None:
                return known
            variable = self.namer.unique(identifier(path))
            grad = value.requires_grad and not self.traced.captured.refused
            self.lines.append(f"{variable} = {random_tensor(value, self.nodes.get(id(value)), grad)}")
            self.variables.append((variable, value))
            return variable
        text = literal(value)
        if text is not None:
            return text
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            parts = zip(value._fields, value, strict=True)  # pyright: ignore[reportAttributeAccessIssue]
            return f"{self._class(value)}({', '.join(f'{n}={self.value(v, n)}' for n, v in parts)})"
        if isinstance(value, (list, tuple)):
            parts = [self.value(v, f"{path}_{n}") for n, v in enumerate(value)]
            if isinstance(value, list):
                return f"[{', '.join(parts)}]"
            return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        if isinstance(value, Mapping):
            pairs = [f"{literal(k) or repr(k)}: {self.value(v, str(k))}" for k, v in value.items()]
            return "{" + ", ".join(pairs) + "}"
        if dataclasses.is_dataclass(value) and not isinstance(value, (type, nn.Module)):
            fields = [f.name for f in dataclasses.fields(value) if f.init]
            return f"{self._class(value)}({', '.join(f'{n}={self.value(getattr(value, n), n)}' for n in fields)})"
        spec = next((i.spec for i in self.traced.inputs if i.name == path), "")
        text = _expression(spec) if spec else ""
        if not text:
            raise _Missing(f"{path} is an object that cannot be written down")
        self.names[identifier(path)] = text
        return f'names["{identifier(path)}"]'

    def _class(self, value: Any) -> str:
        name = type(value).__qualname__
        if type(value).__module__ != self.traced.request.module or "<" in name:
            raise _Missing(f"{name} is a class of another file")
        self.names[name] = name
        return f'names["{name}"]'


def random_tensor(tensor: torch.Tensor, node: fx.Node | None, grad: bool) -> str:
    """An expression for a random tensor like an input, which `node` stands for, with a gradient or not."""
    sizes = [size_hint(s) for s in tensor.shape]
    strides = [size_hint(s) for s in tensor.stride()]
    plain = [1 if stride == 0 else size for size, stride in zip(sizes, strides, strict=True)]
    shape = literal(tuple(plain if plain != sizes else sizes))
    dtype = tensor.dtype
    made = "rand" if node is not None and is_positive(node) else "randn"
    dense = tensor.is_contiguous() or plain != sizes
    if dtype.is_floating_point or dtype.is_complex:
        native = dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16) or dtype.is_complex
        kind = "" if dtype is torch.float32 else f", dtype={dtype}"
        text = f"torch.{made}({shape}{kind if native else ''}, device=device"
        if native and dense and plain == sizes:
            return f"{text}{', requires_grad=True' if grad else ''})"
        text += ")" if native else f").to({dtype})"
    elif dtype is torch.bool:
        text = f"torch.rand({shape}, device=device) < 0.5"
        text = text if dense and plain == sizes else f"({text})"
    else:
        high = highest(node) if node is not None else 2
        kind = "" if dtype is torch.int64 else f", dtype={dtype}"
        text = f"torch.randint({high}, {shape}{kind}, device=device)"
    if plain != sizes:
        text = f"{text}.expand({literal(tuple(sizes))})"
    elif not dense:
        laid = f"torch.empty_strided({literal(tuple(sizes))}, {literal(tuple(strides))}, dtype={dtype}, device=device)"
        text = f"{laid}.copy_({text})"
    return f"{text}.requires_grad_()" if grad else text
