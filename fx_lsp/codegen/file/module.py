"""The file: kernels, their operators, the function that a user calls, and a check against the original."""

from __future__ import annotations

import builtins
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import fx

from fx_lsp.choices import Engine
from fx_lsp.codegen.file.format import laid_out, statements
from fx_lsp.codegen.file.functions import CHECKS, Block, Functions, Name, Subject, checker
from fx_lsp.codegen.file.host_code import not_deterministic, tuning
from fx_lsp.codegen.file.runtime import ALERT, AUTOTUNED, CHECK, LAUNCH, OPERATOR, OVERWRITING, RESETTING, SETTINGS, TMA
from fx_lsp.codegen.graph.unsupported import Unsupported
from fx_lsp.codegen.ir.kernel import Launch, Line
from fx_lsp.codegen.ir.text import WIDTH
from fx_lsp.codegen.triton.helpers import HELPERS, with_needed
from fx_lsp.codegen.triton.program import Program


@dataclass(frozen=True)
class Generated:
    """The text of a file, and for each of its lines the operation that it computes, or None."""

    text: str
    nodes: tuple[fx.Node | None, ...]
    programs: tuple[Program, ...]

    def calls(self) -> list[tuple[int, Unsupported]]:
        """What is said of operations that stay calls, in order, each with the line (from 1) of its call."""
        known = {call.node: call for program in self.programs for call in program.calls}
        first: dict[fx.Node, int] = {}
        for number, (node, line) in enumerate(zip(self.nodes, self.text.splitlines(), strict=True), start=1):
            if node is not None and node in known and "torch.ops." in line:
                first.setdefault(node, number)
        return [(number, known[node]) for node, number in first.items()]


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
    parts = Functions(subject, forward, backward, name, aside, engine)
    kernels = _kernels(subject, launches)
    blocks: list[Block] = []
    if parts.has_operators and engine == "fx-lsp":
        operator = OVERWRITING if forward.overwritten else OPERATOR
        blocks += [_plain(part) for part in operator.strip().split("\n\n\n")]
    if launches:
        blocks.append(_plain(LAUNCH))
    if any(launch.kernel.described for launch in launches):
        blocks += [_plain(part) for part in TMA.strip().split("\n\n\n")]
    blocks += parts.operator("forward", forward)
    if backward is not None:
        blocks += [*parts.operator("backward", backward), parts.function(backward)]
    if any(not_deterministic(p) for p in programs):
        blocks.append(_plain(ALERT))
    if any(line.startswith(f"{CHECKS}(") for line in subject.checks):
        blocks.append(_plain(CHECK.replace(f"def {CHECKS}(", f"def {checker(subject)}(")))
    if subject.settings:
        blocks += [_plain("\n".join(["SETTINGS = {", *(f"    {s}," for s in subject.settings), "}"])), _plain(SETTINGS)]
    blocks.append(parts.entry())
    blocks += [_plain(test) for test in subject.tests]
    if subject.main:
        blocks.append(
            _plain("\n".join(['if __name__ == "__main__":', *(f"    {line}".rstrip() for line in subject.main)]))
        )
    blocks = [*kernels, *_apart(blocks, subject.name)]
    blocks.insert(0, _head(subject, launches, parts, blocks))
    lines = _formatted([line for block in blocks for line in (Line(""), Line(""), *block)][2:])
    return Generated("\n".join(line.text for line in lines) + "\n", tuple(line.node for line in lines), tuple(programs))


def reserved(name: str) -> list[str]:
    """What the file for a function calls things: no variable may have these names."""
    own = ["alert_not_deterministic", "as_operator", "autotuned", CHECKS, "ctx", "device", "functools", "is_plain"]
    own += ["aligned", "check_settings", "launch", "meta", "multiprocessors", "namedtuple", "os", "workspace"]
    own += ["SETTINGS", "SimpleNamespace", "sys", "tl", "torch", "triton", "triton_op", "warnings", "wrap_triton"]
    return [*own, name, f"{name}_forward", f"{name}_backward", *HELPERS]


def _apart(blocks: Sequence[Block], name: str) -> list[Block]:
    """Code that calls functions of Python, where what is generated has the name of one; the user's may be another."""
    if not hasattr(builtins, name):
        return list(blocks)
    called = re.compile(rf"(?<![\w.])(?<!def ){name}(?=\()")
    own = re.compile(rf" +def {name}\(")
    return [
        block
        if any(own.match(line.text) for line in block)
        else [Line(called.sub(f"builtins.{name}", line.text), line.node) for line in block]
        for block in blocks
    ]


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
    if len(line.text) <= WIDTH or not text.endswith(("),", "],")):
        return [line]
    if text.endswith("],"):
        name, _, items = text.removesuffix("],").partition("[")
        inside = [f"        {item}," for item in items.split(", ")]
        return [Line(part, line.node) for part in (f"    {name}[", *inside, "    ],")]
    *ahead, last = laid_out(text[:-1], len(line.text) - len(line.text.lstrip()))
    return [*(Line(part, line.node) for part in ahead), Line(f"{last},", line.node)]


_MODULES = ("builtins", "copy", "functools", "inspect", "os", "sys", "warnings")
"""What files may need of Python's library."""


def _head(subject: Subject, launches: Sequence[Launch], parts: Functions, blocks: Sequence[Block]) -> Block:
    kinds = "forward and backward" if parts.backward is not None else "forward"
    what = "Triton kernels" if launches else "operations of PyTorch"
    if parts.engine == "inductor":
        what = "operations of PyTorch for Inductor to compile"
    title = f'"""{subject.name} as {what}: {kinds}.'
    lines = [title, "", *subject.described, '"""', ""] if subject.described else [f'{title}"""', ""]
    used = "\n".join(line.text for block in blocks for line in block if not line.text.lstrip().startswith("#"))
    future = [i for i in subject.imports if i.startswith("from __future__")]
    own = [i for i in subject.imports if i.startswith("from torch")]
    modules = [m for m in _MODULES if re.search(rf"(?<![\w.]){m}\.", used)]
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
        resets = any((k.adds or k.overwrites) and tuning(k) for k in (launch.kernel for launch in launches))
        blocks.append(_plain(RESETTING if resets else AUTOTUNED))
    blocks += [_plain(helper) for helper in with_needed([h for launch in launches for h in launch.kernel.helpers])]
    for launch in launches:
        decorators = [Line(line) for line in (*tuning(launch.kernel), "@triton.jit")]
        blocks.append([*decorators, *launch.kernel.lines])
    if subject.name not in HELPERS:
        return blocks
    taken = re.compile(rf"(?<![\w.]){subject.name}(?=[(),])")
    return [[Line(taken.sub(f"{subject.name}_", line.text), line.node) for line in block] for block in blocks]
