"""The file: kernels, their operators, the function that a user calls, and a check against the original."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from fx_lsp.codegen.emit import Line
from fx_lsp.codegen.helpers import with_needed
from fx_lsp.codegen.program import Launch, Program
from fx_lsp.codegen.text import broken
from fx_lsp.codegen.wrapper import AUTOTUNED, Body, tuning


@dataclass(frozen=True)
class Subject:
    """What a file is made for.

    `name` is what the user calls it and `signature` its parameters as they are written; `inputs` are expressions of
    them, one for each tensor of the graph; `checks` lines that refuse other arguments. `result` makes of `out[0]`,
    `out[1]`, … what the user's function returns; `described` are lines about the inputs; `main` the lines that compare
    it with the original.
    """

    name: str
    signature: str
    inputs: tuple[str, ...]
    outputs: int
    checks: tuple[str, ...] = ()
    result: str = "out[0]"
    described: tuple[str, ...] = ()
    main: tuple[str, ...] = ()


@dataclass(frozen=True)
class Generated:
    """The text of a file, and for each of its lines the operation that it computes, or None."""

    text: str
    nodes: tuple[fx.Node | None, ...]
    programs: tuple[Program, ...]


@dataclass
class _Text:
    lines: list[Line] = field(default_factory=list[Line])

    def add(self, *lines: str) -> None:
        self.lines.extend(Line(line) for line in lines)


def file_of(subject: Subject, forward: Program, backward: Program | None, name: Callable[[fx.Node], str]) -> Generated:
    """The file for a function with its forward and backward programs."""
    text = _Text()
    programs = [forward, *([backward] if backward is not None else [])]
    launches = [s for p in programs for s in p.steps if isinstance(s, Launch)]
    text.add(f'"""{subject.name} as Triton kernels: {"forward and backward" if backward is not None else "forward"}.')
    if subject.described:
        text.add("", *subject.described)
    tuned = any(tuning(launch.kernel) for launch in launches)
    text.add('"""', "", *(["import os", ""] if tuned else []), "import torch")
    if launches:
        text.add("import triton", "import triton.language as tl")
    text.add("from torch.library import triton_op, wrap_triton", "")
    if tuned:
        text.add(*AUTOTUNED.split("\n"))
    for helper in with_needed([h for launch in launches for h in launch.kernel.helpers]):
        text.add("", *helper.split("\n"), "")
    for launch in launches:
        text.add("", *tuning(launch.kernel), "@triton.jit")
        text.lines.extend(launch.kernel.lines)
        text.add("")
    inputs = _parameters(forward, name)
    _operator(text, subject, "forward", forward, inputs, name)
    if backward is None:
        _inference(text, subject, forward, inputs, name)
    else:
        _operator(text, subject, "backward", backward, _parameters(backward, name), name)
        _function(text, subject, forward, backward, inputs, name)
    _entry(text, subject, backward is not None)
    if subject.main:
        text.add("", "", 'if __name__ == "__main__":', *(f"    {line}".rstrip() for line in subject.main))
    lines = _spaced(text.lines)
    return Generated("\n".join(line.text for line in lines) + "\n", tuple(line.node for line in lines), tuple(programs))


def _spaced(lines: Sequence[Line]) -> list[Line]:
    """Without more than two empty lines in a row."""
    found: list[Line] = []
    for line in lines:
        if not line.text and len(found) > 1 and not found[-1].text and not found[-2].text:
            continue
        found.append(line)
    return found


def _parameters(program: Program, name: Callable[[fx.Node], str]) -> dict[fx.Node, str]:
    """The tensors among the inputs of a program, and what its operator calls them."""
    return {n: name(n) for n in program.inputs if isinstance(n.meta.get("val"), torch.Tensor)}


def _made(program: Program) -> list[fx.Node]:
    """The results that an operator returns: tensors that it makes itself, each once."""
    made = {n for s in program.steps for n in (s.writes if isinstance(s, Launch) else (s,))}
    found: dict[fx.Node, None] = {}
    for result in program.results:
        if result is None:
            continue
        base = _base(result, made)
        if base is not None:
            found[base] = None
    return list(found)


def _base(node: fx.Node, made: set[fx.Node]) -> fx.Node | None:
    """The tensor that a result is a view of, if the program makes it."""
    while node not in made:
        if node.op != "call_function" or not isinstance(node.args[0], fx.Node):
            return None
        if isinstance(node.args[0].meta.get("val"), (tuple, list)) and node.args[0] in made:
            return node
        node = node.args[0]
    return node


def _operator(
    text: _Text,
    subject: Subject,
    which: str,
    program: Program,
    parameters: dict[fx.Node, str],
    name: Callable[[fx.Node], str],
) -> None:
    made = _made(program)
    if not made:
        return
    used = {k: v for k, v in parameters.items()}
    results = ", ".join(["torch.Tensor"] * len(made))
    returns = "torch.Tensor" if len(made) == 1 else f"tuple[{results}]"
    args = [f"{p}: torch.Tensor" for p in used.values()]
    title = f"{subject.name}_{which}"
    text.add("", f'@triton_op("{subject.name}_triton::{which}", mutates_args={{}})')
    text.add(*broken("", f"def {title}", args, f" -> {returns}:"))
    device = f"{next(iter(used.values()))}.device" if used else 'torch.device("cuda")'
    body = Body(program, dict(used), name, device)
    text.add(*(f"    {line}" for line in body.statements()))
    text.add(f"    return {', '.join(body.reference(n) for n in made)}", "")


def _call(
    subject: Subject, which: str, program: Program, parameters: dict[fx.Node, str], name: Callable[[fx.Node], str]
) -> tuple[list[str], Body]:
    """The lines that call an operator, and what its results are called then."""
    made = _made(program)
    body = Body(program, dict(parameters), name, "")
    body._sizes()  # pyright: ignore[reportPrivateUsage]
    lines = list(body.lines)
    for node in made:
        body.names[node] = name(node)
    if made:
        call = broken("", f"{', '.join(name(n) for n in made)} = {subject.name}_{which}", list(parameters.values()), "")
        lines += call
    return lines, body


def _function(
    text: _Text,
    subject: Subject,
    forward: Program,
    backward: Program,
    inputs: dict[fx.Node, str],
    name: Callable[[fx.Node], str],
) -> None:
    title = f"_{''.join(p.capitalize() for p in subject.name.split('_'))}"
    text.add("", f"class {title}(torch.autograd.Function):", "    @staticmethod")
    text.add(*broken("    ", "def forward", ["ctx", *inputs.values()], ":"))
    lines, body = _call(subject, "forward", forward, inputs, name)
    by_name = {n.name: n for n in forward.results if n is not None}
    saved = [p for p in _parameters(backward, name) if p.name in by_name]
    results = forward.results[: subject.outputs]
    text.add(*(f"        {line}" for line in lines))
    kept = [body.reference(by_name[p.name]) for p in saved]
    if kept:
        text.add(*broken("        ", "ctx.save_for_backward", kept, ""))
    fixed = [
        body.reference(r)
        for r in results
        if r is not None and not r.meta["val"].dtype.is_floating_point and not r.meta["val"].dtype.is_complex
    ]
    if fixed:
        text.add(f"        ctx.mark_non_differentiable({', '.join(fixed)})")
    shown = [body.reference(r) if r is not None else "None" for r in results]
    text.add(f"        return {', '.join(shown)}" + ("," if len(shown) == 1 else ""), "", "    @staticmethod")
    tangents = [p for p in _parameters(backward, name) if p.name not in by_name]
    floats = [
        i
        for i, r in enumerate(results)
        if r is not None and (r.meta["val"].dtype.is_floating_point or r.meta["val"].dtype.is_complex)
    ]
    given = ["_"] * len(results)
    for position, tangent in zip(floats, tangents, strict=False):
        given[position] = name(tangent)
    given = [g if g != "_" else f"_{i}" for i, g in enumerate(given)]
    text.add(*broken("    ", "def backward", ["ctx", *given], ":"))
    if saved:
        text.add(f"        {', '.join(name(p) for p in saved)}{',' if len(saved) == 1 else ''} = ctx.saved_tensors")
    lines, body = _call(subject, "backward", backward, _parameters(backward, name), name)
    strides = [f"{name(t)} = {name(t)}.contiguous()" for t in tangents if t.meta["val"].is_contiguous()]
    text.add(*(f"        {line}" for line in (*strides, *lines)))
    symbols = sum(1 for n in forward.inputs if not isinstance(n.meta.get("val"), torch.Tensor))
    gradients = [body.reference(r) if r is not None else "None" for r in backward.results[symbols:]]
    text.add(f"        return {', '.join(gradients)}", "")


def _inference(
    text: _Text, subject: Subject, forward: Program, inputs: dict[fx.Node, str], name: Callable[[fx.Node], str]
) -> None:
    text.add("", f"def _{subject.name}({', '.join(inputs.values())}):")
    lines, body = _call(subject, "forward", forward, inputs, name)
    text.add(*(f"    {line}" for line in lines))
    results = [body.reference(r) for r in forward.results[: subject.outputs] if r is not None]
    text.add(f"    return {', '.join(results)}" + ("," if len(results) == 1 else ""), "")


def _entry(text: _Text, subject: Subject, differentiable: bool) -> None:
    title = (
        f"_{''.join(p.capitalize() for p in subject.name.split('_'))}.apply" if differentiable else f"_{subject.name}"
    )
    text.add("", f"def {subject.name}({subject.signature}):")
    text.add(*(f"    {line}" for line in subject.checks))
    text.add(*broken("    ", f"out = {title}", list(subject.inputs), ""))
    text.add(f"    return {subject.result}")


def is_floating(value: Any) -> bool:
    """Whether a tensor may have a gradient."""
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())
