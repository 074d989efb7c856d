"""Guess values for parameters without a given value: from their annotation, their use, and their name."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import operator
import re
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace, UnionType
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from fx_lsp.specs import TensorSpec
from fx_lsp.tracer.inputs.plan.arrays import array_plans
from fx_lsp.tracer.inputs.plan.dims import shapes_in, sizes_of, words
from fx_lsp.tracer.inputs.plan.facts import Facts
from fx_lsp.tracer.inputs.plan.plans import (
    FROM_DOCSTRING,
    Plan,
    SequencePlan,
    TensorPlan,
    ValuePlan,
    fresh_sizes,
    value,
)
from fx_lsp.tracer.inputs.plan.signatures import hints_of, signature_of
from fx_lsp.tracer.run.tensors import short_name
from fx_lsp.tracer.source.likely_numbers import counts_something, number_named

INDEX_NAME = re.compile(r"(^|_)(ids?|idx|index|indices|labels?|tokens?|lengths|lens)$")
LENGTH_NAME = re.compile(r"(^|_)(lengths?|lens?)$")
CLASS_NAME = re.compile(r"(^|_)(idx|index|indices|labels?|targets?|lengths|lens)$")
VECTOR_NAME = re.compile(r"(^|_)(b|bias|beta|gamma|weight|scale|shift)$")
_ONE_INDEX = re.compile(r"^[a-z]$|(^|_)(idx|index|axis|dim|layer|level|step|stage|head|pos)\d?$")
"""Names of parameters that select one item, which may be a number or a tensor."""
MASK_NAME = re.compile(r"mask")
SIDES = (64, 32, 128, 96)
"""Sides of images and lengths of signals, which strides can halve often."""
IMAGE_NAME = re.compile(r"(^|_)(images?|imgs?|pixels?)(_values)?\d?$")
_FLAG = re.compile(r"^(use|is|has|with|do|no|return|add|apply|enable)_|bias$|affine$|causal|bidirectional|inplace")
TENSOR_ATTRIBUTES = frozenset(dir(torch.Tensor))
"""The attributes that a tensor has."""
MODULE_ATTRIBUTES = frozenset(name for name in dir(nn.Module) if name[0] != "_") - TENSOR_ATTRIBUTES
"""The attributes that a module has and no tensor: its parameters, its children, its mode."""
OF_MODULES_ALONE = MODULE_ATTRIBUTES - frozenset(dir(Optimizer))
"""Attributes of modules that are not read of optimizers either."""
LAYER = ValuePlan(lambda: nn.Linear(64, 64), "nn.Linear(64, 64)", "search")
"""A module with parameters."""
IDENTITY = ValuePlan(nn.Identity, "nn.Identity()", "search")
"""A module to call."""
RELU = value(torch.nn.functional.relu, "search")
"""A function to call."""


class FirstOfSeveral(nn.Module):
    """A module that returns the first of its arguments, `results` times: it accepts a tensor and any further
    arguments.
    """

    def __init__(self, results: int = 1) -> None:
        super().__init__()
        self.results = results

    def forward(self, x: Any, *others: Any, **named: Any) -> Any:
        """Return the first argument."""
        return x if self.results == 1 else (x,) * self.results

    def __repr__(self) -> str:
        """Return its source text."""
        return f"lambda x, *others, **named: {'x' if self.results == 1 else '(' + ', '.join('x' * self.results) + ')'}"


@dataclass
class Gives:
    """A callable that returns a tensor for any arguments: a model with unknown computations."""

    result: torch.Tensor

    def __call__(self, *args: Any, **named: Any) -> torch.Tensor:
        """Return the tensor."""
        return self.result


def _first_of(results: int) -> ValuePlan:
    return ValuePlan(lambda: FirstOfSeveral(results), repr(FirstOfSeveral(results)), "search")


def modules_called(facts: Facts) -> tuple[Plan, ...]:
    """Return two identity modules that can be called as the code calls those of a parameter."""
    called = facts.element or Facts()
    is_plain = called.arguments < 2 and "keywords" not in called.uses and called.results == 1
    return (IDENTITY if is_plain else _first_of(called.results),) * 2


_AXIS = re.compile(r"(^|_)(dims?|axis|axes)$")
_FLOATS: tuple[tuple[re.Pattern[str], float], ...] = tuple(
    (re.compile(pattern), number)
    for pattern, number in (
        (r"eps", 1e-5),
        (r"drop|^p$|(?<!log_)prob(?!s|abilities)", 0.1),
        (r"momentum", 0.1),
        (r"scale|temperature", 0.5),
    )
)


@dataclasses.dataclass(frozen=True)
class Context:
    """Hold the context of proposals besides the parameter; `named` are sizes by their written name. Tensors require
    `gradients` unless they are the batches of a loop.

    `fits` returns the configurations that a parameter may mean (`init.config` for a constructor), `complete` an
    instance of a class with numbers for the values that its author left open, `modules` the modules of the project
    that can be used as the code uses a parameter of a name, and `lent` the annotations of parameters with certain names
    elsewhere in the file.
    """

    module: ModuleType
    ranks: Sequence[int]
    construct: Callable[[type], Any]
    namespace: Callable[[Facts], Plan]
    constructing: bool = False
    gradients: bool = True
    named: dict[str, int] = dataclasses.field(default_factory=dict[str, int])
    fits: Callable[[str], Sequence[Plan]] = lambda parameter: ()
    complete: Callable[[type], Sequence[Plan]] = lambda cls: ()
    modules: Callable[[str, Facts], Sequence[Plan]] = lambda parameter, facts: ()
    lent: Callable[[Collection[str]], Mapping[str, Any]] = lambda names: {}


def proposals(
    parameter: inspect.Parameter, annotation: Any, facts: Facts, used_sizes: set[int], context: Context
) -> list[Plan]:
    """Return plans for one parameter, the most plausible first; never empty.

    A parameter with a default starts with it. `used_sizes` are those of other parameters.
    """
    plans: list[Plan] = []
    if parameter.default is not inspect.Parameter.empty:
        plans.append(value(parameter.default, "default"))
    plans += context.fits(f"init.{parameter.name}" if context.constructing else parameter.name)
    arrays = array_plans(annotation, facts, context.module)
    annotated = arrays or _from_annotation(annotation, parameter.name, facts, used_sizes, context)
    plans += annotated
    if not plans and not facts.uses:
        plans += _handed_on(facts, context.module)
    precise = bool(annotated) and _is_precise(annotation)
    if not precise:
        plans += _from_use(parameter.name, facts, used_sizes, context)
    precise = precise or "keywords" in facts.uses
    if not precise and any(parameter.default is nothing for nothing in (inspect.Parameter.empty, None)):
        keys = {_key(p) for p in plans}
        plans += [p for p in _anything(parameter.name, facts, used_sizes, context) if _key(p) not in keys]
    return plans or [value(None, "search")]


def _handed_on(facts: Facts, module: ModuleType) -> list[Plan]:
    """Return the defaults of the functions that receive a parameter, if it has no other use."""
    plans: list[Plan] = []
    for path, place in facts.handed:
        try:
            parameters = inspect.signature(operator.attrgetter(path)(module)).parameters
        except (AttributeError, TypeError, ValueError):  # missing, not a function, or without a signature
            continue
        names = [n for n, p in parameters.items() if p.kind is not inspect.Parameter.KEYWORD_ONLY]
        name = place if isinstance(place, str) else names[place] if place < len(names) else ""
        default = parameters[name].default if name in parameters else None
        if isinstance(default, (bool, int, float, str, tuple, torch.dtype)):
            plans.append(value(default, "search", f"the default of {path}"))
    return plans


def tensors(name: str, facts: Facts, used_sizes: set[int], context: Context) -> list[Plan]:
    """Return tensor plans for one parameter, one per plausible rank."""
    facts = _as_rows(facts)
    is_index, is_bounds = "index" in facts.uses, facts.element is not None and "count" in facts.element.uses
    by_name = "b8" if is_index and MASK_NAME.search(name) else "i64" if is_index or INDEX_NAME.search(name) else "f32"
    dtype = facts.dtype or ("i64" if is_bounds else by_name)
    ranks = [facts.rank] if facts.rank is not None else _likely_ranks(name, facts, dtype, context)
    others = used_sizes | set(facts.sizes.values())
    shapes = [(fresh_sizes(rank, others, features=dtype != "i64"), "") for rank in ranks]
    if facts.shape is not None:
        shapes.insert(0, (sizes_of(facts.shape, context.named, used_sizes), FROM_DOCSTRING))
    elif (facts.spatial or _are_images(name, facts)) and (spatial := facts.spatial or 2) + 2 in ranks:
        shapes.insert(0, (_image_sizes(3 if _are_images(name, facts) else None, spatial, others), ""))
    is_mask, has_dtype = MASK_NAME.search(name) is not None, facts.dtype is not None
    return [
        TensorPlan(
            TensorSpec(dtype, _demanded(sizes, facts, is_mask and not detail)),
            "search",
            detail,
            context.gradients and not is_mask,
            has_dtype,
            facts.rank is not None,
        )
        for sizes, detail in shapes
    ]


def _as_rows(facts: Facts) -> Facts:
    """Return the facts of a tensor whose rows are indices, if it is unpacked into such, or read by number: `rows,
    columns = edges`, `rows = edges[0]`.
    """
    are_indices = facts.element is not None and ("index" in facts.element.uses or facts.element.dtype == "i64")
    if not facts.item_count or not are_indices:
        return facts
    return dataclasses.replace(facts, rank=2, dtype="i64", sizes={0: facts.item_count}, element=None)


def _likely_ranks(name: str, facts: Facts, dtype: str, context: Context) -> list[int]:
    """Return the possible ranks of a tensor, the most likely first."""
    is_vector = "index" in facts.uses or (facts.element is not None and "count" in facts.element.uses)
    ranks = [r for r in context.ranks if r >= facts.min_rank] or [facts.min_rank]
    by_name = CLASS_NAME.search(name) or (VECTOR_NAME.search(name) and "operand" in facts.uses)
    usual = 1 if is_vector or by_name else 2
    if dtype == "i64" or usual == 1:
        ranks = sorted(ranks, key=lambda r: (r != usual, r))
    likely = facts.likely_rank or (4 if _are_images(name, facts) else None)
    if likely is not None:
        ranks = sorted({likely, *ranks}, key=lambda r: (r != likely, [*ranks, r].index(r)))
    return ranks


def _are_images(name: str, facts: Facts) -> bool:
    """Return True if a tensor is named like images, and no layer fixes the width of its features."""
    return IMAGE_NAME.search(name) is not None and -1 not in facts.sizes


def _image_sizes(channels: int | None, spatial: int, used_sizes: set[int]) -> tuple[int, ...]:
    """Return the sizes of a batch of images or signals, with sides unlike any size in use."""
    batch, any_channels = fresh_sizes(2, used_sizes, features=False)
    side = next((side for side in SIDES if side not in used_sizes), SIDES[0])
    return batch, channels or any_channels, *[side] * spatial


def _demanded(sizes: tuple[int, ...], facts: Facts, is_mask: bool) -> tuple[int, ...]:
    """Return the sizes with those that the code requires. A mask is the same for all channels and heads: [B, 1, T]."""
    changed = list(sizes)
    if is_mask and len(sizes) > 2:
        changed[1] = 1
    for index, size in facts.sizes.items():
        if -len(sizes) <= index < len(sizes):
            changed[index] = size
    for index, factor in facts.multiples.items():
        if -len(sizes) <= index < len(sizes):
            changed[index] = factor * max(-(-changed[index] // factor), 2)  # the other factor is more than one
    return tuple(changed)


def _from_annotation(annotation: Any, name: str, facts: Facts, used_sizes: set[int], context: Context) -> list[Plan]:
    if isinstance(annotation, typing.TypeVar):
        annotation = annotation.__bound__ or annotation.__name__
    if isinstance(annotation, str):
        return _from_text(annotation, name, facts, used_sizes, context)
    if annotation in (inspect.Parameter.empty, Any, None):
        return []
    if (written := _written_shape(annotation)) is not None:
        return _from_written(written, name, facts, used_sizes, context)
    origin = typing.get_origin(annotation) or annotation
    of_generic = next((rule for kind, rule in _OF_GENERICS if kind is origin), None)
    if of_generic is not None:
        return of_generic(annotation, name, facts, used_sizes, context)
    return _from_class(annotation, name, facts, used_sizes, context) if isinstance(annotation, type) else []


def _from_union(annotation: Any, name: str, facts: Facts, used_sizes: set[int], context: Context) -> list[Plan]:
    kinds = typing.get_args(annotation)
    chosen = [kind for kind in kinds if kind is not type(None)]
    plans = [plan for kind in chosen for plan in _from_annotation(kind, name, facts, used_sizes, context)]
    return [*plans, value(None, "annotation")] if len(chosen) < len(kinds) else plans


def _from_dict(annotation: Any, name: str, facts: Facts, used_sizes: set[int], context: Context) -> list[Plan]:
    return _named(name, facts, used_sizes, context) if facts.keys else [ValuePlan(dict, "{}", "search")]


def _written_shape(annotation: Any) -> tuple[str, str | None] | None:
    """Return the dimensions and the kind of dtype in an annotation of jaxtyping or `Annotated`; None without them."""
    dimensions = getattr(annotation, "dim_str", None)
    if isinstance(dimensions, str):
        return dimensions, getattr(annotation, "__name__", "").partition("[")[0]
    if typing.get_origin(annotation) is typing.Annotated:
        first, *rest = typing.get_args(annotation)
        if isinstance(first, type) and issubclass(first, torch.Tensor):
            return next(((text, None) for text in rest if isinstance(text, str)), None)
    return None


def _from_written(
    written: tuple[str, str | None], name: str, facts: Facts, used_sizes: set[int], context: Context
) -> list[Plan]:
    text, kind = written
    shape = next(iter(shapes_in(text)), None) or words(text)
    dtype = _DTYPES_BY_KIND.get(kind or "") or facts.dtype or ("i64" if INDEX_NAME.search(name) else "f32")
    sizes = sizes_of(shape, context.named, used_sizes)
    return [TensorPlan(TensorSpec(dtype, sizes), "annotation", grad=context.gradients, dtype_known=kind is not None)]


_DTYPES_BY_KIND = {"Bool": "b8", "Int": "i64", "Int64": "i64", "Int32": "i32", "Integer": "i64", "UInt8": "u8"} | {
    "Complex": "c64", "Float64": "f64", "Float16": "f16", "BFloat16": "bf16", "Float": "f32", "Float32": "f32"
}  # fmt: skip


def _from_class(annotation: type, name: str, facts: Facts, used_sizes: set[int], context: Context) -> list[Plan]:
    if issubclass(annotation, torch.Tensor):
        return tensors(name, facts, used_sizes, context)
    if annotation.__module__ == "torch" and annotation.__name__.endswith("Tensor"):
        dtype = short_name(getattr(annotation, "dtype", torch.float32))
        return tensors(name, dataclasses.replace(facts, dtype=dtype), used_sizes, context)
    if annotation is bool:
        return [value(False, "search"), value(True, "search")]
    if annotation is float:
        return [value(_float(name), "search")]
    if annotation is int:
        return [value(n, "search") for n in integers(name, facts, context)]
    if annotation is str:
        return _of_texts(facts, "")
    if annotation in (torch.dtype, torch.device):
        return [value(torch.float32 if annotation is torch.dtype else torch.device("cpu"), "search")]
    if annotation is torch.Size:
        return [value(torch.Size(fresh_sizes(2, used_sizes)), "search")]
    if issubclass(annotation, enum.Enum):
        return [value(member, "annotation") for member in annotation]
    if annotation in _CONTAINERS:
        of_project = _of_project(name, facts, context) if annotation is nn.Module else []
        return [*of_project, _container(annotation, facts)]
    if annotation.__module__ in ("builtins", "typing", "abc", "collections.abc"):
        return []
    if (holder := _holder_of_tensors(annotation, facts, used_sizes, context)) is not None:
        return [holder]
    return [*(_instance(kind, context) for kind in _concrete(annotation)), *context.complete(annotation)]


def _container(annotation: type, facts: Facts) -> ValuePlan:
    if annotation is nn.Module and "called" in facts.uses and facts.arguments > 1:
        return _first_of(facts.results)
    make, shown = _CONTAINERS[annotation]
    return ValuePlan(make, shown, "search")


def _of_texts(facts: Facts, other: str) -> list[Plan]:
    return [value(text, "search") for text in (*facts.literals, other) if isinstance(text, str)]


def _instance(cls: type, context: Context) -> ValuePlan:
    certain = needs_nothing(cls)
    return ValuePlan(lambda: context.construct(cls), f"{cls.__name__}()", "annotation", "", certain)


def _concrete(annotation: type) -> list[type]:
    """Return the class; for an abstract one, the first concrete subclasses."""
    if not _is_abstract(annotation):
        return [annotation]
    waiting, kinds = list(annotation.__subclasses__()), list[type]()
    while waiting:
        kind = waiting.pop(0)
        waiting += kind.__subclasses__()
        kinds += [kind] if not _is_abstract(kind) else []
    return kinds[:_MOST_KINDS] or [annotation]


_MOST_KINDS = 3
"""The most subclasses that are tried for an abstract class."""


def _is_abstract(cls: type) -> bool:
    """Return True if a method is declared abstract, whether Python enforces that or not."""
    return any(getattr(getattr(cls, name, None), "__isabstractmethod__", False) for name in dir(cls))


def needs_nothing(cls: type) -> bool:
    """Return True if an instance can be constructed without arguments, so that its author chose everything in it.

    False if a number is left open.
    """
    signature = signature_of(cls)
    parameters = signature.parameters.values() if signature is not None else ()
    required = (p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))
    return signature is not None and not any(required) and not open_numbers(cls)


def open_numbers(cls: type) -> tuple[str, ...]:
    """Return the whole-number parameters of a constructor that are left open: None or negative by default."""
    signature = signature_of(cls)
    hints = getattr(cls.__init__, "__annotations__", {})
    numbers = (p for p in (signature.parameters.values() if signature else ()) if hints.get(p.name) in (int, "int"))
    return tuple(p.name for p in numbers if p.default is None or (type(p.default) is int and p.default < 0))


_CONTAINERS: dict[type, tuple[Callable[[], nn.Module], str]] = {
    nn.Module: (nn.Identity, "nn.Identity()"),
    nn.ModuleList: (lambda: nn.ModuleList([nn.Identity(), nn.Identity()]), "nn.ModuleList([nn.Identity()] * 2)"),
    nn.ModuleDict: (lambda: nn.ModuleDict({"a": nn.Identity()}), "nn.ModuleDict({'a': nn.Identity()})"),
    nn.Sequential: (lambda: nn.Sequential(nn.Identity()), "nn.Sequential(nn.Identity())"),
}
"""Modules of any kind, and containers of them, with an item."""


def _from_sequence(annotation: Any, name: str, facts: Facts, used_sizes: set[int], context: Context) -> list[Plan]:
    kind, arguments = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    make = tuple if kind is tuple else list
    if not arguments:
        return []
    items = arguments
    if make is list or arguments[-1] is Ellipsis:
        kinds = tuple(a for a in arguments if a is not Ellipsis)
        items = kinds if _AXIS.search(name) else kinds * (facts.item_count or 2)  # no axis is named twice
    plans = [_from_annotation(a, name, facts.element or Facts(), used_sizes, context) for a in items]
    if not all(plans):
        return []
    return [SequencePlan(tuple(p[min(i, len(p) - 1)] for p in plans), make) for i in range(max(len(p) for p in plans))]


_OF_GENERICS: tuple[tuple[Any, Callable[[Any, str, Facts, set[int], Context], list[Plan]]], ...] = (
    (typing.Annotated, lambda annotation, *rest: _from_annotation(typing.get_args(annotation)[0], *rest)),
    *((kind, _from_union) for kind in (typing.Union, UnionType)),
    (typing.Literal, lambda annotation, *rest: [value(a, "annotation") for a in typing.get_args(annotation)]),
    *((kind, _from_sequence) for kind in (tuple, list, Sequence, Iterable)),
    (dict, _from_dict),
    *(
        (kind, lambda _, name, facts, used_sizes, context: _callables(name, facts, context)[:1])
        for kind in (typing.Callable, Callable)
    ),
)
"""The rules for generic annotations, by their origin."""


def _from_text(annotation: str, name: str, facts: Facts, used_sizes: set[int], context: Context) -> list[Plan]:
    """Return plans for an annotation that could not be evaluated: a tensor's or a number's, by its words."""
    words = set(re.findall(r"\w+", annotation))
    if words & {"Tensor", "FloatTensor", "tensor"}:
        return tensors(name, facts, used_sizes, context)
    if "LongTensor" in words:
        return tensors(name, dataclasses.replace(facts, dtype="i64"), used_sizes, context)
    plain = {"int": int, "float": float, "bool": bool, "str": str}
    chosen = next((plain[w] for w in plain if w in words), None)
    return _from_class(chosen, name, facts, used_sizes, context) if chosen else []


def _is_precise(annotation: Any) -> bool:
    if annotation in (inspect.Parameter.empty, Any, None):
        return False
    if not typing.get_args(annotation) and (typing.get_origin(annotation) or annotation) in (tuple, list, Sequence):
        return False
    return not _is_sequence_of_tensors(annotation)  # people write `tuple[Tensor]` and mean a tensor


def _is_sequence_of_tensors(annotation: Any) -> bool:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, UnionType):
        return any(map(_is_sequence_of_tensors, arguments))
    return origin in (tuple, list) and any(isinstance(a, type) and issubclass(a, torch.Tensor) for a in arguments)


def _from_use(name: str, facts: Facts, used_sizes: set[int], context: Context) -> list[Plan]:
    if "text" in facts.uses:
        return _of_texts(facts, "a b")
    others = facts.attributes - TENSOR_ATTRIBUTES - MODULE_ATTRIBUTES - facts.assigned
    if "called" in facts.uses and not _is_module(facts):
        callables = [_asked_for(others, facts, context)] if others else _callables(name, facts, context)
        return [*_of_project(name, facts, context), *callables]
    if modules := _modules(name, facts, context):
        return modules
    if objects := _objects(name, facts, used_sizes, context):
        return objects
    if context.constructing and (facts.length or "indexed" in facts.uses or facts.element is not None):
        return _several_numbers(name, facts, context)
    if "count" in facts.uses:
        return [value(n, "search") for n in integers(name, facts, context)]
    return [] if "tensor" in facts.uses else _from_use_of_values(name, facts, used_sizes, context)


def _from_use_of_values(name: str, facts: Facts, used_sizes: set[int], context: Context) -> list[Plan]:
    """Return plans for a parameter that is compared with literals, or iterated over."""
    if "compared" in facts.uses and facts.literals:
        return [value(literal, "search") for literal in facts.literals]
    if "iterated" not in facts.uses:
        return []
    if context.constructing:
        return _several_numbers(name, facts, context)
    first = tensors(name, Facts(), used_sizes, context)
    return [SequencePlan((plan,) * (facts.item_count or 2), list) for plan in first[:2]]


def _several_numbers(name: str, facts: Facts, context: Context) -> list[Plan]:
    """Return several numbers for that name, or lists of them if the elements are iterated over."""
    count = facts.item_count or 2
    numbers: list[Any] = integers(name, facts, context)[:2]
    if facts.element is not None and "iterated" in facts.element.uses:
        numbers = [[number, number] for number in numbers]
    make = list if "iterated" in facts.uses and not facts.length else tuple
    return [value(make([number] * count), "search") for number in numbers]


def _of_project(name: str, facts: Facts, context: Context) -> list[Plan]:
    """Return the modules of the project that can be used as the code uses a parameter.

    A constructor gets those whose authors chose everything in them: no call shows whether other numbers fit. One that
    calls its parameter builds layers with it.
    """
    if not context.constructing:
        return list(context.modules(name, facts))
    if "called" in facts.uses and "applied" not in facts.uses:
        return []
    modules = (plan for plan in context.modules(name, facts) if isinstance(plan, ValuePlan))
    return [plan for plan in modules if plan.certain or facts.called_parts]


def _modules(name: str, facts: Facts, context: Context) -> list[Plan]:
    """Return several modules, or those of the project that can be used so, or any if only common attributes are
    read.
    """
    if "modules" in facts.uses:
        return [SequencePlan(modules_called(facts), list)]
    of_project = _of_project(name, facts, context) if facts.called_parts or _is_module(facts) else []
    if not _is_module(facts):
        return of_project
    others = facts.attributes - TENSOR_ATTRIBUTES - MODULE_ATTRIBUTES - facts.assigned
    return [*of_project, _asked_for(others, facts, context) if others else LAYER]


def _asked_for(attributes: Collection[str], facts: Facts, context: Context) -> ValuePlan:
    """Return the plan for a module with a parameter and with the read attributes that not all modules have."""
    settings = context.namespace(Facts(attributes={*attributes}, parts=facts.parts))
    held: dict[str, Any] = vars(settings.make()) if isinstance(settings, ValuePlan) else {}
    held |= {name: part.literals[0] for name, part in facts.parts.items() if name in held and part.literals}
    shown = ", ".join(f"{name}={item!r}" for name, item in held.items())

    def make() -> nn.Module:
        module = FirstOfSeveral(facts.results)
        module.weight = nn.Parameter(torch.zeros(1))
        for name, item in held.items():
            setattr(module, name, item)
        return module

    return ValuePlan(make, f"({FirstOfSeveral(facts.results)!r}) with {shown}", "search")


def _objects(name: str, facts: Facts, in_use: set[int], context: Context) -> list[Plan]:
    """Return composite plans: a sequence of tensors of a known rank, or objects and dictionaries, or lists of them, if
    names are read of a parameter or of its elements.
    """
    if facts.length and facts.element is not None and _is_tensor_part(facts.element):
        if "tensor" in facts.uses:
            return []
        return [SequencePlan((tensors(name, facts.element, in_use, context)[0],) * facts.length)]
    if facts.element is not None and _is_named(facts.element):
        return [SequencePlan((plan,) * 2, list) for plan in _named(name, facts.element, in_use, context)]
    if "keywords" in facts.uses and not _is_named(facts):
        return [ValuePlan(dict, "{}", "search")]
    return _named(name, facts, in_use, context) if _is_named(facts) else []


def _is_named(facts: Facts) -> bool:
    return bool(facts.keys or facts.attributes - TENSOR_ATTRIBUTES)


def _named(name: str, facts: Facts, in_use: set[int], context: Context) -> list[Plan]:
    """Return objects with the attributes or keys that are read of a parameter: settings, or tensors by their names."""
    settings = context.namespace(facts)
    complete = context.complete(settings.cls) if isinstance(settings, ValuePlan) and settings.cls is not None else ()
    if context.constructing or _SETTINGS.search(name):
        return [settings, *complete]
    attributes = {a for a in facts.attributes if not a.startswith("__") and a not in DICT_METHODS}
    names = tuple(sorted(facts.keys | attributes))
    holds = bool(facts.keys) or any(_is_tensor_part(part) for part in facts.parts.values())
    kind: Callable[..., Any] = dict if not attributes - TENSOR_ATTRIBUTES else SimpleNamespace
    if isinstance(settings, ValuePlan) and settings.cls is not None:
        holder = _holder(settings.cls, facts, in_use, context)
    else:
        holder = _of_tensors(names, kind, facts, in_use, context)
    if holder is None:
        return [settings]
    return [holder, settings] if holds else [settings, holder]


def _is_tensor_part(facts: Facts) -> bool:
    """Return True if a part of a parameter is used like a tensor."""
    counted = facts.uses & {"count", "compared"}
    return bool(
        facts.dtype or facts.rank or facts.min_rank or facts.attributes & TENSOR_ATTRIBUTES or facts.handed
    ) or (bool(facts.uses & {"tensor", "operand", "index"}) and not counted)


def _of_tensors(
    names: Sequence[str], kind: Callable[..., Any], facts: Facts, in_use: set[int], context: Context
) -> SequencePlan:
    """Return an object or a dictionary with a tensor for each name, or another value if its use shows that."""
    items: list[Plan] = []
    used = set(in_use)
    for name in names:
        part = facts.parts.get(name, Facts())
        counted = part.uses and part.uses <= {"count", "compared"}
        plan = value(integers(name, part, context)[0], "search") if counted else tensors(name, part, used, context)[0]
        used |= {s for s in plan.spec.sizes if isinstance(s, int)} if isinstance(plan, TensorPlan) else set()
        items.append(plan)
    return SequencePlan(tuple(items), kind, tuple(names))


def _holder(cls: type, facts: Facts, in_use: set[int], context: Context) -> Plan | None:
    """Return an instance of a class that holds tensors, with one for each of its arguments; None for any other
    class.
    """
    signature = signature_of(cls)
    if signature is None or context.constructing:
        return None
    hints = hints_of(cls.__init__, context.module) or hints_of(cls, context.module)
    names: list[str] = []
    for name, parameter in signature.parameters.items():
        hint = hints.get(name, parameter.annotation)
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if _mentions_tensor(hint) or (hint is parameter.empty and parameter.default is parameter.empty):
            names.append(name)
        elif parameter.default is parameter.empty:
            return None
    return _of_tensors(names, cls, facts, in_use, context) if names else None


def _holder_of_tensors(cls: type, facts: Facts, in_use: set[int], context: Context) -> Plan | None:
    """Return an instance of a class whose constructor is annotated to take tensors; None for any other."""
    hints = hints_of(cls.__init__, context.module) or hints_of(cls, context.module)
    holds = any(map(_mentions_tensor, hints.values())) and not issubclass(cls, nn.Module)
    return _holder(cls, facts, in_use, context) if holds else None


def _mentions_tensor(annotation: Any) -> bool:
    """Return True for a tensor type, or an optional one."""
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) in (typing.Union, UnionType):
        return any(map(_mentions_tensor, arguments))
    return isinstance(annotation, type) and issubclass(annotation, torch.Tensor)


_SETTINGS = re.compile(r"(^|_)(cfg|conf|config|configs|configuration|settings|args|opts?|options|hparams|params)$")
"""Names of objects of settings."""
DICT_METHODS = frozenset({"get", "items", "keys", "pop", "setdefault", "update", "values"})
"""Methods of dictionaries, besides their items."""


def _is_module(facts: Facts) -> bool:
    """Return True if the read attributes of a parameter are those of modules and not of tensors."""
    attributes = facts.attributes - TENSOR_ATTRIBUTES - facts.assigned
    is_asked = bool(attributes & OF_MODULES_ALONE) and not facts.called_parts
    return bool(attributes) and (attributes <= MODULE_ATTRIBUTES or is_asked)


def _callables(name: str, facts: Facts, context: Context) -> list[Plan]:
    """Return functions and modules; for a constructor that calls them to build layers, classes of layers."""
    if context.constructing and "applied" not in facts.uses:
        layer = nn.LayerNorm if "norm" in name else nn.GELU if "act" in name else nn.Identity
        return [value(layer, "search"), value(nn.Identity, "search"), value(nn.Linear, "search")]
    if "keywords" in facts.uses or facts.results > 1 or facts.arguments > max(_OF_SEVERAL):
        return [_first_of(facts.results)]
    if facts.arguments in _OF_SEVERAL:
        return [value(_OF_SEVERAL[facts.arguments], "search")]
    return [IDENTITY, RELU] if context.constructing else [RELU, IDENTITY]


_OF_SEVERAL: dict[int, Callable[..., Any]] = {2: torch.add, 3: torch.addcmul}
"""Functions by their number of tensors."""


def makes(plan: Plan, thing: Any) -> bool:
    """Return True if a value is the one that a plan creates, or one of several; of modules, each run has its own."""
    if not isinstance(plan, ValuePlan):
        return False
    several = plan.make()
    parts = several if isinstance(several, list | tuple) else (several,)
    return any(type(part) is type(thing) and (part == thing or isinstance(part, nn.Module)) for part in parts)


def functions_for(plan: Plan, more: bool = False) -> list[Plan]:
    """Return plans for callables in place of a guess, as many as it has items; with `more` than one argument."""
    several = plan.make() if isinstance(plan, ValuePlan) else None
    count = len(several) if isinstance(several, list | tuple) else 0
    return [
        SequencePlan((function,) * count) if count else function
        for function in ((_first_of(1),) if more else (RELU, IDENTITY))
    ]


def giving(result: Plan) -> Plan:
    """Return a plan for a callable that returns its own tensor."""
    return SequencePlan((result,), Gives, ("result",))


def _anything(name: str, facts: Facts, used_sizes: set[int], context: Context) -> list[Plan]:
    as_tensors: list[Plan] = [*tensors(name, facts, used_sizes, context)]
    if context.constructing and "tensor" not in facts.uses:
        likely = integers(name, facts, context)
        numbers: list[Plan] = [value(n, "search") for n in likely[:3]]
        pair = value((likely[0],) * 2, "search")
        floats: list[Plan] = [value(_float(name), "search")]
        flags: list[Plan] = [value(flag, "search") for flag in (False, True)]
        first = flags if _FLAG.search(name) else floats if any(p.search(name) for p, _ in _FLOATS) else []
        return [*first, *numbers, pair, *floats, IDENTITY, *flags, *as_tensors]
    if facts.uses & {"tensor", "indexed"} or facts.rank or facts.min_rank or facts.dtype:
        return as_tensors
    if "index" in facts.uses:
        numbers = [value(n, "search") for n in (0, 1)]
        return [*numbers, *as_tensors] if _ONE_INDEX.search(name) else [*as_tensors, *numbers]
    numeric = [value(n, "search") for n in integers(name, facts, context)[:2]] + [value(_float(name), "search")]
    if any(p.search(name) for p, _ in _FLOATS):
        return [*reversed(numeric), *as_tensors]
    return [*numeric, *as_tensors] if counts_something(name) and len(name) > 2 else [*as_tensors, *numeric]


def integers(name: str, facts: Facts, context: Context) -> list[int]:
    """Return plausible integers for a parameter of that name, the most plausible first.

    `dim` is a size in a constructor and an axis in a function.
    """
    first = number_named(name)
    if not context.constructing and _AXIS.search(name):
        first = -1
    literals = [x for x in facts.literals if type(x) is int]
    return list(dict.fromkeys([first, *(x + 1 for x in literals), *literals, 2, 1, 0, 4, 8, 64]))


def _float(name: str) -> float:
    return next((x for pattern, x in _FLOATS if pattern.search(name)), 0.5)


def _key(plan: Plan) -> Any:
    if isinstance(plan, TensorPlan):
        return ("tensor", plan.spec.dtype, len(plan.spec.sizes))
    return plan.shown if isinstance(plan, ValuePlan) else plan
