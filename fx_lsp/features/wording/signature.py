"""Write the traced call of a target as a Python signature."""

from __future__ import annotations

import re
from dataclasses import replace

from fx_lsp.features.wording.dimensions import SizeNames
from fx_lsp.features.wording.guesses import Guesses, marked
from fx_lsp.features.wording.text import is_tensor_spec, one_line
from fx_lsp.model import InputSpec, Target, Trace
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
