"""The file: kernels, their operators, the function that a user calls, and a check against the original."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import fx

from fx_lsp.choices import Engine
from fx_lsp.codegen.helpers import HELPERS, with_needed
from fx_lsp.codegen.index import expression
from fx_lsp.codegen.kernel import Line
from fx_lsp.codegen.layout import WIDTH, laid_out, statements
from fx_lsp.codegen.program import Launch, Program
from fx_lsp.codegen.wrapper import AUTOTUNED, Body, tuning, tuple_text

Name = Callable[[fx.Node], str]
Block = list[Line]
"""A definition at the top level of a file, or statements that belong together there."""


@dataclass(frozen=True)
class Subject:
    """What a file is made for.

    `name` is what the user calls it and `signature` its parameters as they are written; `inputs` are expressions of
    them, one for each tensor of the graph; `checks` lines that refuse other arguments. Of the `outputs` results, the
    first are new values of inputs: `changed` are expressions for those, each with whether it has a gradient that must
    not notice. `result` makes of `out[0]`, `out[1]`, … what the user's function returns ("out": all of them).
    `tangents` are the results whose gradients backward takes, in order; None where that is every float. `described` are
    lines about the inputs, `imports` and `definitions` what the result needs, `tests` definitions that `main` needs,
    the lines that compare the function with the original.
    """

    name: str
    signature: str
    inputs: tuple[str, ...]
    outputs: int
    checks: tuple[str, ...] = ()
    changed: tuple[tuple[str, bool], ...] = ()
    result: str = "out[0]"
    tangents: tuple[int, ...] | None = None
    described: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    definitions: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    main: tuple[str, ...] = ()


@dataclass(frozen=True)
class Generated:
    """The text of a file, and for each of its lines the operation that it computes, or None."""

    text: str
    nodes: tuple[fx.Node | None, ...]
    programs: tuple[Program, ...]


def file_of(
    subject: Subject,
    forward: Program,
    backward: Program | None,
    name: Name,
    aside: Mapping[int, fx.Node],
    engine: Engine = "fx-lsp",
) -> Generated:
    """The file for a function with its forward and backward programs; `aside` are results that are views. What has no
    kernels is compiled by Inductor where that is the engine."""
    programs = [forward, *([backward] if backward is not None else [])]
    launches = [s for p in programs for s in p.steps if isinstance(s, Launch)]
    parts = _Parts(subject, forward, backward, name, aside, engine)
    blocks = [_head(subject, launches, parts), *_kernels(subject, launches)]
    blocks += parts.operator("forward", forward)
    if backward is not None:
        blocks += [*parts.operator("backward", backward), parts.function(backward)]
    if any(line.startswith("check(") for line in subject.checks):
        blocks.append(_plain(CHECK))
    blocks.append(parts.entry())
    blocks += [_plain(test) for test in subject.tests]
    if subject.main:
        blocks.append(
            _plain("\n".join(['if __name__ == "__main__":', *(f"    {line}".rstrip() for line in subject.main)]))
        )
    lines = _formatted([line for block in blocks for line in (Line(""), Line(""), *block)][2:])
    return Generated("\n".join(line.text for line in lines) + "\n", tuple(line.node for line in lines), tuple(programs))


def reserved(name: str) -> list[str]:
    """What the file for a function calls things: no variable may have these names."""
    own = ["autotuned", "check", "ctx", "device", "launch", "meta", "namedtuple", "os", "SimpleNamespace", "sys"]
    own += ["tl", "torch", "triton", "triton_op", "wrap_triton"]
    return [*own, name, f"{name}_forward", f"{name}_backward", *HELPERS]


def _plain(text: str) -> Block:
    return [Line(line) for line in text.strip("\n").split("\n")]


def _formatted(lines: Sequence[Line]) -> list[Line]:
    """The lines as ruff would lay them out."""
    found: list[Line] = []
    done = 0
    for statement in statements([line.text for line in lines]):
        found += lines[done : statement.start]
        done = statement.end
        node = next((line.node for line in lines[statement.start : done] if line.node is not None), None)
        if statement.text is None:
            found += lines[statement.start : done]
        elif statement.text.startswith("@"):  # its configurations stay one below the other
            found += [part for line in lines[statement.start : done] for part in _element(line)]
        else:
            found += [Line(text, node) for text in laid_out(statement.text, statement.indent)]
    return [*found, *lines[done:]]


def _element(line: Line) -> list[Line]:
    """One element of a call that has one on each line, broken over several where it is too long."""
    text = line.text.strip()
    if len(line.text) <= WIDTH or not text.endswith("),"):
        return [line]
    *ahead, last = laid_out(text[:-1], len(line.text) - len(line.text.lstrip()))
    return [*(Line(part, line.node) for part in ahead), Line(f"{last},", line.node)]


def _head(subject: Subject, launches: Sequence[Launch], parts: _Parts) -> Block:
    kinds = "forward and backward" if parts.backward is not None else "forward"
    what = "Triton kernels" if launches else "operations of PyTorch"
    if parts.engine == "inductor":
        what = "operations of PyTorch for Inductor to compile"
    title = f'"""{subject.name} as {what}: {kinds}.'
    lines = [title, "", *subject.described, '"""', ""] if subject.described else [f'{title}"""', ""]
    tuned = any(tuning(launch.kernel) for launch in launches)
    used = "\n".join((*subject.main, *subject.tests))
    future = [i for i in subject.imports if i.startswith("from __future__")]
    own = [i for i in subject.imports if i.startswith("from torch")]
    modules = [m for m in ("copy", "inspect", "os", "sys") if f"{m}." in used or (m == "os" and tuned)]
    standard = [f"import {m}" for m in modules] + [i for i in subject.imports if i not in (*future, *own)]
    lines += [*future, *([""] if future else []), *standard, *([""] if standard else []), "import torch"]
    if launches or "triton." in used:
        lines.append("import triton")
    if launches:
        lines.append("import triton.language as tl")
    registers = parts.has_operators and parts.engine == "fx-lsp"
    needed = (["triton_op"] if registers else []) + (["wrap_triton"] if launches else [])
    if needed:
        lines.append(f"from torch.library import {', '.join(needed)}")
    lines += own
    if subject.definitions:
        lines += ["", *subject.definitions]
    return [Line(line) for line in lines]


def _kernels(subject: Subject, launches: Sequence[Launch]) -> list[Block]:
    """Helper functions and kernels; a helper makes way where the user's function has its name."""
    blocks: list[Block] = []
    if any(tuning(launch.kernel) for launch in launches):
        blocks.append(_plain(AUTOTUNED))
    blocks += [_plain(helper) for helper in with_needed([h for launch in launches for h in launch.kernel.helpers])]
    for launch in launches:
        decorators = [Line(line) for line in (*tuning(launch.kernel), "@triton.jit")]
        blocks.append([*decorators, *launch.kernel.lines])
    if subject.name not in HELPERS:
        return blocks
    taken = re.compile(rf"(?<![\w.]){subject.name}(?=[(),])")
    return [[Line(taken.sub(f"{subject.name}_", line.text), line.node) for line in block] for block in blocks]


@dataclass
class _Parts:
    """What the definitions of a file share.

    `inside` are the results that an operator computes, `aside` those that are views of inputs or of other results.
    """

    subject: Subject
    forward: Program
    backward: Program | None
    name: Name
    aside: Mapping[int, fx.Node]
    engine: Engine

    def __post_init__(self) -> None:
        self.results = [self.aside.get(k, r) for k, r in enumerate(self.forward.results[: self.subject.outputs])]
        self.inside = [k for k, r in enumerate(self.results) if r is not None and k not in self.aside]
        self.inputs = _tensors(self.forward, self.name)
        self.title = f"_{''.join(p[:1].upper() + p[1:] for p in self.subject.name.split('_'))}"
        self.has_operators = any(_made(p) for p in (self.forward, self.backward) if p is not None)

    def _has_tangent(self, position: int) -> bool:
        if self.backward is None or self.subject.tangents is None:
            return self.backward is not None
        return position in self.subject.tangents

    def operator(self, which: str, program: Program) -> list[Block]:
        """The operator that runs a program; none where there is nothing to compute."""
        made, parameters = _made(program), _tensors(program, self.name)
        if not made:
            return []
        returns = "torch.Tensor" if len(made) == 1 else f"tuple[{', '.join(['torch.Tensor'] * len(made))}]"
        args = ", ".join(f"{p}: torch.Tensor" for p in parameters.values())
        device = f"{next(iter(parameters.values()))}.device" if parameters else "device"
        body = Body(program, dict(parameters), self.name, device)
        registered = f'@triton_op("{self.subject.name}_triton::{which}", mutates_args={{}})'
        lines = [
            registered if self.engine == "fx-lsp" else "@torch.compile(fullgraph=True)",
            f"def {self.subject.name}_{which}({args}) -> {returns}:",
            *([] if parameters else ['    device = "cuda" if torch.cuda.is_available() else "cpu"']),
            *(f"    {line}" for line in _without_unused([*body.statements(), *_returned(body, made)])),
        ]
        return [[Line(line) for line in lines]]

    def _call(self, which: str, program: Program, arguments: dict[fx.Node, str]) -> tuple[list[str], Body]:
        """The lines that call an operator, and the names of its results."""
        made = _made(program)
        device = f"{next(iter(arguments.values()))}.device" if arguments else ""
        body = Body(program, dict(arguments), self.name, device)
        for node in made:
            body.names[node] = self.name(node)
        if not made:
            return [], body
        names = ", ".join(body.names[n] for n in made)
        return [f"{names} = {self.subject.name}_{which}({', '.join(arguments.values())})"], body

    def function(self, backward: Program) -> Block:
        """The autograd function."""
        lines, body = self._call("forward", self.forward, self.inputs)
        by_name = {n.name: n for n in self.forward.results if n is not None}
        parameters = _tensors(backward, self.name)
        saved = [p for p in parameters if p.name in by_name]
        tangents = [p for p in parameters if p.name not in by_name]
        shown = {k: body.reference(r) for k in self.inside if (r := self.results[k]) is not None}
        floats = [k for k in self.inside if _is_float(self.results[k])]
        wanted = list(self.subject.tangents) if self.subject.tangents is not None else floats
        fixed = [shown[k] for k in self.inside if k not in wanted or k not in floats]
        kept = [body.reference(by_name[p.name]) for p in saved]
        lines = _sized(
            body,
            [
                *lines,
                *([f"ctx.save_for_backward({', '.join(kept)})"] if kept else []),
                *([f"ctx.mark_non_differentiable({', '.join(dict.fromkeys(fixed))})"] if fixed else []),
                f"return {', '.join(shown.values())}",
            ],
        )
        given = {k: f"_{k}" for k in self.inside}
        given |= {k: self.name(t) for k, t in zip(wanted, tangents, strict=False) if k in given}
        calls, body = self._call("backward", backward, parameters)
        symbols = sum(1 for n in self.forward.inputs if n not in self.inputs)
        gradients = [body.reference(r) if r is not None else "None" for r in backward.results[symbols:]]
        names = ", ".join(self.name(p) for p in saved)
        read = [f"({names},) = ctx.saved_tensors" if len(saved) == 1 else f"{names} = ctx.saved_tensors"]
        dense = [line for t in tangents for line in _dense(t, self.name(t))]
        behind = _sized(body, [*dense, *calls, f"return {', '.join(gradients)}"])
        behind = [*(read if saved else []), *behind]
        title = [f"class {self.title}(torch.autograd.Function):"]
        ahead = [f"def forward({', '.join(['ctx', *self.inputs.values()])}):", *(f"    {line}" for line in lines)]
        back = [f"def backward({', '.join(['ctx', *given.values()])}):", *(f"    {line}" for line in behind)]
        inner = ["@staticmethod", *ahead, "", "@staticmethod", *back]
        return [Line(line) for line in (*title, *(f"    {line}".rstrip() for line in inner))]

    def entry(self) -> Block:
        """The function that the user calls."""
        subject, made = self.subject, _made(self.forward)
        device = f"{subject.inputs[0]}.device" if subject.inputs else '"cuda" if torch.cuda.is_available() else "cpu"'
        body = Body(self.forward, dict(zip(self.inputs, subject.inputs, strict=True)), self.name, device)
        values, called, lines = ", ".join(subject.inputs), "", list[str]()
        if self.inside:
            results = [r for k in self.inside if (r := self.results[k]) is not None]
            named = results if self.backward is not None else made
            call = f"{self.title}.apply" if self.backward is not None else f"{subject.name}_forward"
            body.names.update({n: self.name(n) for n in named})
            called = f"{call}({values})"
            lines.append(f"{', '.join(self.name(n) for n in named)} = {called}")
            if self.backward is None and any(_is_float(n) for n in self.inputs):
                lines = ["with torch.no_grad():", f"    {lines[0]}"]
        for (changed, hidden), node in zip(subject.changed, self.results, strict=False):
            line = f"{changed}.copy_({_text(body, node)})"
            lines += ["with torch.no_grad():", f"    {line}"] if hidden else [line]
        for (changed, _), node in zip(subject.changed, self.results, strict=False):
            again = [k for k in range(len(subject.changed), len(self.results)) if self.results[k] is node]
            if node is not None and node.op != "placeholder" and not any(map(self._has_tangent, again)):
                body.names[node] = changed
        shown = [_text(body, r) for r in self.results]
        result = ", ".join(shown) if subject.result == "out" else _filled(subject.result, shown)
        if lines == [f"{result} = {called}"]:
            lines, result = [], called
        lines = [*subject.checks, *_sized(body, [*lines, f"return {result}"])]
        return [Line(f"def {subject.name}({subject.signature}):"), *(Line(f"    {line}") for line in lines)]


def _returned(body: Body, nodes: Sequence[fx.Node]) -> list[str]:
    """The line that returns nodes, behind the lines that this adds to a body."""
    count = len(body.lines)
    line = f"return {', '.join(body.reference(n) for n in nodes)}"
    return [*body.lines[count:], line]


def _text(body: Body, node: fx.Node | None) -> str:
    return "None" if node is None else body.reference(node)


def _filled(result: str, shown: Sequence[str]) -> str:
    """A result with the texts of its parts; a tuple of several needs no brackets behind `return`."""
    text = re.sub(r"\bout\[(\d+)\]", lambda found: shown[int(found[1])], result)
    bare = re.fullmatch(r"\(([^()]+, )+[^()]+\)", result)
    return text[1:-1] if bare else text


def _sized(body: Body, lines: Sequence[str]) -> list[str]:
    """Lines with what has to stand before them: sizes and constants that they use."""
    constants, body.lines = list(body.lines), []
    body.sizes()
    return _without_unused([*body.lines, *constants, *lines])


def _without_unused(lines: Sequence[str]) -> list[str]:
    """The lines but for sizes that no other line mentions."""
    text = "\n".join(lines)
    sizes = {line: found[1] for line in lines if (found := _SIZE.match(line))}
    return [line for line in lines if line not in sizes or len(re.findall(rf"\b{sizes[line]}\b", text)) > 1]


_SIZE = re.compile(r"(\w+) = [^()]+\.shape\[\d+\]$")


def _dense(tangent: fx.Node, name: str) -> list[str]:
    """Lines that lay out a gradient as the kernels take it."""
    value = tangent.meta["val"]
    if value.is_contiguous():
        return [f"{name} = {name}.contiguous()"]
    if value.dim() == 4 and value.is_contiguous(memory_format=torch.channels_last):
        return [f"{name} = {name}.contiguous(memory_format=torch.channels_last)"]
    strides = tuple_text(tuple(expression(s) for s in value.stride()))
    copied = f"torch.empty_strided({name}.shape, {strides}, dtype={name}.dtype, device={name}.device).copy_({name})"
    return [f"if {name}.stride() != {strides}:", f"    {name} = {copied}"]


def _tensors(program: Program, name: Name) -> dict[fx.Node, str]:
    """The tensors among the inputs of a program, and what its operator calls them."""
    return {n: name(n) for n in program.inputs if isinstance(n.meta.get("val"), torch.Tensor)}


def _is_float(node: fx.Node | None) -> bool:
    value = None if node is None else node.meta.get("val")
    return isinstance(value, torch.Tensor) and (value.dtype.is_floating_point or value.dtype.is_complex)


def _made(program: Program) -> list[fx.Node]:
    """The results that an operator returns: tensors that it makes itself, each once."""
    made = {n for s in program.steps for n in (s.writes if isinstance(s, Launch) else (s,))}
    bases = [list(_views(r, made))[-1] for r in program.results if r is not None]
    return list(dict.fromkeys(n for n in bases if n in made or _is_part(n, made)))


def _views(node: fx.Node, made: Collection[fx.Node]) -> Iterator[fx.Node]:
    """A node, and what it is a view of, to the tensor or the part of a call's result that the program makes."""
    yield node
    while node not in made and not _is_part(node, made):
        if node.op != "call_function" or not node.args or not isinstance(node.args[0], fx.Node):
            return
        node = node.args[0]
        yield node


def _is_part(node: fx.Node, made: Collection[fx.Node]) -> bool:
    return node.target is operator.getitem and node.args[0] in made


CHECK = '''
def check(tensor, name, dtype, shape, strides=None, device=None, gradient=True):
    """Refuses a tensor that the kernels are not made for; None stands for anything."""
    if not isinstance(tensor, torch.Tensor) or tensor.dtype != dtype:
        found = getattr(tensor, "dtype", type(tensor).__name__)
        raise TypeError(f"{name} must be a tensor of {dtype}, not {found}")
    if len(shape) != tensor.dim() or any(
        size not in (None, found) for size, found in zip(shape, tensor.shape)
    ):
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(f"{name} must have the shape ({wanted}), not {tuple(tensor.shape)}")
    if strides is None and not tensor.is_contiguous():
        raise ValueError(f"{name} must be contiguous: pass {name}.contiguous()")
    if strides is not None and any(
        stride not in (None, found) for stride, found in zip(strides, tensor.stride())
    ):
        raise ValueError(f"{name} must have the strides {strides}, not {tensor.stride()}")
    if device is not None and tensor.device != device:
        raise ValueError(f"{name} must be on {device}, not on {tensor.device}")
    if not gradient and tensor.requires_grad and torch.is_grad_enabled():
        raise ValueError(f"{name} gets no gradient from these kernels: pass {name}.detach()")
'''
