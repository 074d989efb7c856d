"""Describe the inputs of a trace: their values, their sources, and the traced call as a Python signature."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from fx_lsp.features.wording.dimensions import SizeNames
from fx_lsp.features.wording.guesses import Guesses, marked
from fx_lsp.features.wording.text import code, is_tensor_spec, one_line, plain
from fx_lsp.model import InputSpec, ObservedValue, Target, TargetVariant, Trace
from fx_lsp.specs import MODE

_ROOT = re.compile(r"[^\[.]+")
_INIT = "init."


def signature(target: Target, trace: Trace, width: int = 100, names: SizeNames | None = None) -> str:
    """Return `def f(x: ~f32[8, 128], n=4) -> ~f32[8, 128]`, one parameter per line if longer than `width`.

    For a module, the line of its constructor precedes that of `forward`; a graph has only a `forward`. Sizes are named
    by `names`.
    """
    names, guesses = names or SizeNames(trace, "numbers"), Guesses(trace.inputs)
    inputs = tuple(replace(i, spec=names.of_input(i)) for i in trace.inputs)
    outputs = tuple(guesses.marked(spec, names.of_output(spec)) for spec in trace.outputs)
    if target.kind == "graph":
        return _call("def forward", inputs, outputs, width)
    if target.kind != "module":
        arguments = tuple(i for i in inputs if i.name != MODE)
        return _call(f"def {target.name.rpartition('.')[2]}", arguments, outputs, width)
    built = tuple(i for i in inputs if i.name.startswith(_INIT))
    called = tuple(i for i in inputs if not i.name.startswith(_INIT) and i.name != MODE)
    return "\n".join(
        (
            _call(target.name, tuple(replace(i, name=i.name[len(_INIT) :]) for i in built), (), width),
            _call("def forward", called, outputs, width),
        )
    )


def parameter(name: str, specs: tuple[str, ...]) -> str:
    """Return `x: f32[8, 128]`, `n=4`, or `position_embeddings: (f32[8, 4], f32[8, 4])`."""
    if len(specs) == 1:
        spec = one_line(specs[0])
        return f"{name}: {spec}" if is_tensor_spec(spec) else f"{name}={spec}"
    return f"{name}: ({', '.join(one_line(s) for s in specs)})"


def _call(head: str, inputs: tuple[InputSpec, ...], outputs: tuple[str, ...], width: int) -> str:
    groups: dict[str, list[str]] = {}
    for item in inputs:
        root = _ROOT.match(item.name)
        groups.setdefault(root.group() if root else item.name, []).append(marked(item))
    parameters = [parameter(name, tuple(specs)) for name, specs in groups.items()]
    arrow = f" -> {_results(outputs)}" if outputs else ""
    line = f"{head}({', '.join(parameters)}){arrow}"
    if len(line) <= width or not parameters:
        return line
    return f"{head}(\n" + "".join(f"    {p},\n" for p in parameters) + f"){arrow}"


def _results(outputs: tuple[str, ...]) -> str:
    return outputs[0] if len(outputs) == 1 else f"({', '.join(outputs)})"


_SHOWN = 8
_ELEMENT = re.compile(r"(.*)\[\d+\]$")


def inputs_text(inputs: Iterable[InputSpec], names: SizeNames | None = None) -> str:
    """Return a Markdown list with a line for each source: "- `x: f32[8, 128]`, `n=4` · from the call at line 40"."""
    groups: dict[str, list[InputSpec]] = {}
    for item in inputs:
        groups.setdefault(source_text(item), []).append(item)
    return "\n".join(f"- {_names(items, names)} · {plain(source)}" for source, items in groups.items())


def input_text(item: InputSpec, names: SizeNames | None = None) -> str:
    """Return `x: f32[8, 128]`, or `n=4` for a non-tensor; `x: ~f32[8, 128]` if it is guessed."""
    joint = ": " if is_tensor_spec(item.spec) else "="
    return f"{item.name}{joint}{one_line(marked(item, names and names.of_input(item)))}"


def input_data(item: InputSpec) -> dict[str, str | bool]:
    """Return an input as data for scripts and clients."""
    data: dict[str, str | bool] = {
        "name": item.name,
        "spec": item.spec,
        "source": item.source,
        "guessed": item.guessed,
    }
    return data if item.requires_grad is None else {**data, "requires_grad": item.requires_grad}


def variant_title(variant: TargetVariant) -> str:
    """Return how a variant is called: `with targets`, `as called at line 14: eval()`."""
    match variant.kind:
        case "argument":
            return f"with {variant.name}"
        case "call":
            return f"as called at {variant.name}"
        case "gradients":
            return "as if every input required a gradient"


def source_text(item: InputSpec) -> str:
    """Return the source of an input: "from the call at line 40"."""
    detail = one_line(item.detail)
    words = {
        "comment": "from the `# fx:` comment",
        "settings": f"from {detail or 'the settings'}",
        "convention": f"from {detail or 'get_inputs()'}",
        "call site": f"from the call at {detail}" if detail else "from a call",
        "annotation": f"from {detail or 'its annotation'}",
    }
    if item.source in words:
        return words[item.source]
    origin = "guessed" if item.is_guess else item.source
    return f"{origin}, {detail}" if detail else origin


def _names(items: list[InputSpec], sizes: SizeNames | None) -> str:
    """Return the inputs of one source; equal elements of a container are listed once."""
    shown: dict[str, list[InputSpec]] = {}
    for item in items:
        element = _ELEMENT.match(item.name)
        shown.setdefault(f"{element[1]}[…]: {item.spec}" if element else item.name, []).append(item)
    names = [code(_range(same, sizes)) for same in shown.values()]
    rest = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + rest


def _range(same: list[InputSpec], names: SizeNames | None) -> str:
    """Return `xs[0]: f32[2]`, or `xs[0…31]: f32[2]` for elements with the same spec."""
    first, last = same[0], same[-1]
    if len(same) == 1:
        return input_text(first, names)
    end = last.name.rpartition("[")[2]
    return input_text(replace(first, name=f"{first.name[:-1]}…{end}"))


def with_variant(trace: Trace, variant: TargetVariant, values: Iterable[ObservedValue]) -> Trace:
    """Return a trace with the inputs of one of its variants, and these values."""
    return replace(trace, inputs=variant.inputs, values=tuple(values))


def variant_text(variant: TargetVariant) -> str:
    """Return the added argument of a variant: `with targets: ~i64[4, 8]`."""
    items = [item for item in variant.inputs if item.name.partition("[")[0] == variant.name]
    return f"with {', '.join(map(input_text, items)) or variant.name}"
