"""Assemble the file: kernels, their operators, the user's function, and a comparison with the original."""

from __future__ import annotations

import builtins
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import fx

from fx_lsp.codegen.file.format import long_lines
from fx_lsp.codegen.file.functions import (
    CHECK_FUNCTION,
    ORIGINALS,
    Definition,
    FileFunctions,
    FileSpec,
    check_function_name,
)
from fx_lsp.codegen.file.host_code import not_deterministic, tunings
from fx_lsp.codegen.file.runtime import (
    ALERT,
    AUTOTUNED,
    CHECK,
    CHECK_STRIDES,
    COMPILED,
    CONSTANTS,
    IS_PLAIN,
    LAUNCH,
    LAUNCH_WITH_OFFSETS,
    OPERATOR,
    OVERWRITING,
    SETTINGS,
    TMA,
)
from fx_lsp.codegen.graph.unsupported import Unsupported
from fx_lsp.codegen.ir.kernel import INDEX, KernelLaunch
from fx_lsp.codegen.ir.scopes import names_from_outside, rename_calls, rename_definition
from fx_lsp.codegen.ir.statement import CodeLine, names_used, rename
from fx_lsp.codegen.triton.helpers import HELPERS, LIBRARY, with_needed
from fx_lsp.codegen.triton.program import Program
from fx_lsp.codegen.triton.regions import CompiledRegion


@dataclass(frozen=True)
class GeneratedFile:
    """The text of a file, and for each of its lines the node that it computes, or None."""

    text: str
    nodes: tuple[fx.Node | None, ...]
    programs: tuple[Program, ...]

    def calls(self) -> list[tuple[int, Unsupported]]:
        """Return the reasons why operations fall back to PyTorch, in order, each with the line (from 1) of its call."""
        calls = {call.node: call for program in self.programs for call in program.calls}
        first: dict[fx.Node, int] = {}
        for number, (node, line) in enumerate(zip(self.nodes, self.text.splitlines(), strict=True), start=1):
            if node is not None and node in calls and "torch.ops." in line:
                first.setdefault(node, number)
        return [(number, calls[node]) for node, number in first.items()]


def assemble_file(parts: FileFunctions) -> GeneratedFile:
    """Return the file of a function with its forward and backward programs.

    Raises ValueError if it has to call the original, which needs objects of its program.
    """
    subject, programs = parts.subject, parts.programs
    if parts.engine in ORIGINALS:
        return _file_of_original(subject, *ORIGINALS[parts.engine])
    launches = [s for p in programs for s in p.steps if isinstance(s, KernelLaunch)]
    kernels = _kernels(subject, launches)
    blocks = [*parts.compiled(parts.forward), *parts.operator("forward", parts.forward)]
    if parts.backward is not None:
        blocks += [*parts.compiled(parts.backward), *parts.operator("backward", parts.backward)]
        blocks.append(parts.function(parts.backward))
    blocks = [*_runtime_blocks(parts, launches), *blocks]
    if any(not_deterministic(p) for p in programs):
        blocks.append(_code_block(ALERT))
    blocks += [*_constant_blocks(parts.constants), *_check_blocks(parts)]
    blocks.append(parts.entry())
    blocks += [_code_block(test) for test in subject.tests]
    if subject.main:
        blocks.append(
            _code_block("\n".join(['if __name__ == "__main__":', *(f"    {line}".rstrip() for line in subject.main)]))
        )
    blocks = [*kernels, *_qualify_builtins(blocks, subject.name)]
    blocks.insert(0, _head(subject, launches, parts, blocks))
    lines = _format_lines([line for block in blocks for line in (CodeLine(""), CodeLine(""), *block)][2:])
    return GeneratedFile(
        "\n".join(line.text for line in lines) + "\n", tuple(line.node for line in lines), tuple(programs)
    )


def _file_of_original(subject: FileSpec, call: str, title: str) -> GeneratedFile:
    """Return the file of a function that is the original."""
    if not subject.original:
        raise ValueError("a file cannot call the original: it is a method, or it is not compared")
    head = [f'"""{subject.name} {title}.', "", *subject.described, '"""', ""]
    head += [*subject.imports, *(["import torch"] if "import torch" not in subject.imports else [])]
    blocks = [*subject.tests, f"{subject.name} = {call.format(subject.original)}"]
    blocks.append("\n".join(['if __name__ == "__main__":', *(f"    {line}".rstrip() for line in subject.main)]))
    text = "\n\n\n".join(["\n".join(head), *(block.strip("\n") for block in blocks)]) + "\n"
    lines = _format_lines([CodeLine(line) for line in text.splitlines()])
    return GeneratedFile("\n".join(line.text for line in lines) + "\n", tuple(line.node for line in lines), ())


def _runtime_blocks(parts: FileFunctions, launches: Sequence[KernelLaunch]) -> list[Definition]:
    """Return the definitions that register operators and launch kernels."""
    texts: list[str] = []
    if parts.has_operators and parts.engine == "fx-lsp":
        texts += [IS_PLAIN, OVERWRITING if parts.forward.overwritten else OPERATOR]
    if any(isinstance(step, CompiledRegion) for p in parts.programs for step in p.steps):
        texts.append(COMPILED)
    if launches:
        wide = any(INDEX in (p.name for p in launch.kernel.parameters) for launch in launches)
        texts.append(LAUNCH_WITH_OFFSETS if wide else LAUNCH)
    if any(launch.kernel.described for launch in launches):
        texts.append(TMA)
    return [_code_block(part) for text in texts for part in text.strip().split("\n\n\n")]


def _constant_blocks(constants: Mapping[str, str]) -> list[Definition]:
    """Return the table of the constant tensors that operators read, and the functions that create them."""
    if not constants:
        return []
    table = ", ".join(f'"{name}": {text}' for text, name in constants.items())
    return [_code_block(part) for part in (f"CONSTANTS = {{{table}}}", *CONSTANTS.strip().split("\n\n\n"))]


def _check_blocks(parts: FileFunctions) -> list[Definition]:
    """Return the definitions that reject other arguments, and modules with other settings."""
    blocks: list[Definition] = []
    subject = parts.subject
    if subject.accepted:
        columns = "# name, dtype, sizes, strides (None: contiguous), gradient, may be copied"
        blocks.append(_code_block(f"{columns}\nINPUTS = [{', '.join(parts.accepted_inputs())}]"))
        strided = any(accepted.strides != "None" for accepted in subject.accepted)
        checked = rename_definition(CHECK_STRIDES if strided else CHECK, check_function_name(subject))
        blocks.append(_code_block(checked))
    if subject.settings:
        blocks.append(_code_block(f"SETTINGS = {{{', '.join(subject.settings)}}}"))
        blocks.append(_code_block(SETTINGS))
    return blocks


def reserved_names(name: str) -> list[str]:
    """Return the names that the file of a function uses itself. No variable may have these names."""
    own = [
        "alert_not_deterministic",
        "as_operator",
        "autotuned",
        CHECK_FUNCTION,
        "compiled",
        "config",
        "constant_tensor",
        "CONSTANTS",
        "created_tensor",
        "ctx",
        "device",
        "functools",
        "is_plain",
    ]
    own += ["aligned", "check_settings", "first_launch", "INPUTS", "launch"]
    own += ["LAUNCHES", "math", "meta", "multiprocessors", "namedtuple", "os", "workspace", LIBRARY]
    own += ["SETTINGS", "SimpleNamespace", "Tensor", "tl", "torch", "triton", "custom_op", "tree_leaves", "warnings"]
    return [*own, name, f"{name}_forward", f"{name}_backward", *HELPERS]


def _qualify_builtins(blocks: Sequence[Definition], name: str) -> list[Definition]:
    """Return code that calls builtins explicitly if the generated function has the name of a builtin."""
    if not hasattr(builtins, name):
        return list(blocks)
    return [_rename_calls_in(block, name, f"builtins.{name}") for block in blocks]


def _rename_calls_in(block: Definition, old: str, new: str) -> Definition:
    """Return a definition with calls of `old` replaced by calls of `new`."""
    lines = rename_calls("\n".join(line.text for line in block), old, new).split("\n")
    return [CodeLine(text, line.node) for text, line in zip(lines, block, strict=True)]


def _code_block(text: str) -> Definition:
    return [CodeLine(line) for line in text.strip("\n").split("\n")]


def _format_lines(lines: Sequence[CodeLine]) -> list[CodeLine]:
    """Return the lines with long statements broken."""
    formatted, done = list[CodeLine](), 0
    for place, texts in long_lines([line.text for line in lines]):
        formatted += [*lines[done:place], *(CodeLine(text, lines[place].node) for text in texts)]
        done = place + 1
    return [*formatted, *lines[done:]]


_MODULES = ("builtins", "copy", "functools", "inspect", "math", "os", "sys", "warnings")
"""The modules of the standard library that files may import."""


def _head(
    subject: FileSpec, launches: Sequence[KernelLaunch], parts: FileFunctions, blocks: Sequence[Definition]
) -> Definition:
    kinds = "forward and backward" if parts.backward is not None else "forward"
    what = "Triton kernels" if launches else "operations of PyTorch"
    if parts.engine != "fx-lsp":
        what = "operations of PyTorch for Inductor to compile"
    title = f'"""{subject.name} as {what}: {kinds}.'
    lines = [title, "", *subject.described, '"""', ""] if subject.described else [f'{title}"""', ""]
    used = frozenset[str]().union(*(names_from_outside("\n".join(line.text for line in block)) for block in blocks))
    lines += _import_lines(subject, launches, parts, used)
    if subject.definitions:
        lines += ["", *subject.definitions]
    return [CodeLine(line) for line in lines]


def _import_lines(
    subject: FileSpec, launches: Sequence[KernelLaunch], parts: FileFunctions, used: Collection[str]
) -> list[str]:
    """Return the imports of a file. `used` are the names that it does not define."""
    future = [i for i in subject.imports if i.startswith("from __future__")]
    own = [i for i in subject.imports if i.startswith("from torch")]
    modules = [m for m in _MODULES if m in used]
    standard = [f"import {m}" for m in modules] + [i for i in subject.imports if i not in (*future, *own)]
    lines = [*future, *([""] if future else []), *standard, *([""] if standard else []), "import torch"]
    if launches or "triton" in used:
        lines.append("import triton")
    if launches:
        lines.append("import triton.language as tl")
    if LIBRARY in used:
        own.append(f"from triton.language.extra import {LIBRARY}")
    lines += ["from torch import Tensor"] if parts.has_operators else []
    if parts.has_operators and parts.engine == "fx-lsp":
        lines.append("from torch.library import custom_op")
    return [*lines, *own]


def _kernels(subject: FileSpec, launches: Sequence[KernelLaunch]) -> list[Definition]:
    """Return helper functions and kernels. A helper is renamed if the user's function has its name."""
    kernels = list({launch.kernel.name: launch.kernel for launch in launches}.values())
    shared, decorators = tunings(kernels, reserved=[subject.name])
    blocks = [_code_block(part) for part in AUTOTUNED.strip().split("\n\n\n") if decorators]
    blocks += [_code_block("\n".join(shared))] if shared else []
    used = frozenset[str]().union(*(names_used(kernel.body) for kernel in kernels))
    renamed = {subject.name: f"{subject.name}_"} if subject.name in HELPERS else {}
    for name in with_needed(used):
        helper = _code_block(rename_definition(HELPERS[name], renamed.get(name, name)))
        blocks.append(_rename_calls_in(helper, subject.name, renamed.get(subject.name, subject.name)))
    for kernel in kernels:
        tuned = [decorators[kernel.name]] if kernel.name in decorators else []
        lines = replace(kernel, body=rename(kernel.body, renamed)).printed()
        blocks.append([*map(CodeLine, tuned), CodeLine("@triton.jit"), *lines])
    return blocks
