"""The Python code around the kernels: it allocates buffers, launches kernels, and calls operations left in ATen."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain, count
from textwrap import wrap
from typing import Any

import sympy
import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from fx_lsp.codegen.file.format import literal
from fx_lsp.codegen.graph.query import constant_of, is_empty, is_view
from fx_lsp.codegen.ir.index import Coords, Index, contiguous_strides, expression
from fx_lsp.codegen.ir.kernel import Kernel, KernelLaunch
from fx_lsp.codegen.ir.node_facts import facts_of
from fx_lsp.codegen.ir.statement import CodeComment, Evaluate, Statement, assign, names_used
from fx_lsp.codegen.ir.text import LINE_WIDTH, index_text, parse_expression, size_text
from fx_lsp.codegen.ir.tile import Config
from fx_lsp.codegen.ir.values import Buffer
from fx_lsp.codegen.triton.program import Program
from fx_lsp.codegen.triton.regions import CompiledRegion, writes_of

MAX_CONSTANT = 1024
"""The largest number of elements of a constant that is written into a file."""


class CannotWrite(Exception):
    """`node` cannot be part of a generated file; `why` is the reason."""

    def __init__(self, node: fx.Node, why: str) -> None:
        super().__init__(why)
        self.node, self.why = node, why


@dataclass
class FunctionBody:
    """The statements of a function that runs a program.

    `names` maps nodes to variables, at first those of the parameters. `inline` maps sizes without a variable to
    expressions. `known` are the sizes that have a variable. `constants` maps constant tensors of the file, as text, to
    their names there; without it, each call creates them. `views` are the methods of views, by operation. `writes` has
    the memory that each launch writes into.
    """

    program: Program
    names: dict[fx.Node, str]
    name: Callable[[fx.Node], str]
    device: str
    statements: list[Statement] = field(default_factory=list[Statement])
    said: set[str] = field(default_factory=set[str])
    said_last: str = ""
    known: set[str] = field(default_factory=set[str])
    has_workspace: bool = False
    inline: Mapping[Any, str] = field(default_factory=dict[Any, str])
    constants: dict[str, str] | None = None
    views: Mapping[str, str] = field(default_factory=lambda: VIEW_METHODS)
    writes: dict[Statement, list[str]] = field(default_factory=dict[Statement, "list[str]"])

    def write_steps(self) -> None:
        """Write the statements that run the program, except the final return."""
        self.sizes()
        self.names.update({new: self.names[old] for new, old in self.program.overwritten.items()})
        for step in self.program.steps:
            match step:
                case KernelLaunch():
                    self._launch(step)
                case CompiledRegion():
                    self._call_region(step)
                case _:
                    self._call(step)

    def sizes(self) -> None:
        """Write the sizes that are known from now on, each from a tensor that has it."""
        for node, text in list(self.names.items()):
            self._sizes_of(node.meta.get("val"), text)

    def _sizes_of(self, value: Any, text: str) -> None:
        for number, part in enumerate(value if isinstance(value, (tuple, list)) else ()):
            self._sizes_of(part, f"{text}[{number}]")
        for dim, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            expr = expression(size)
            if expr.is_Symbol and expr.name not in self.known | names_used(self.statements):
                self.known.add(expr.name)
                self._define(expr.name, f"{text}.shape[{dim}]")

    def _launch(self, step: KernelLaunch) -> None:
        kernel, self.said_last = step.kernel, ""
        for node in (n for n in step.writes if n not in self.names):
            buffer = self.program.buffers[node]
            self.names[node] = self.name(node)
            self._define(self.names[node], allocation(buffer, self.device, node in step.nodes_of(step.kernel.adds)))
        pointers = [self._pointer(n, step) for n in (*step.reads, *(w for w in step.writes if w not in step.reads))]
        if kernel.described and not self.has_workspace:
            self.has_workspace = True
            self._evaluate("triton.set_allocator(workspace)")
        args = [*pointers, *(size_text(v) for v in step.sizes.values()), *fixed_blocks(kernel)]
        out = self.names[step.writes[0]]
        self._evaluate(f"launch({', '.join([kernel.name, grid_text(kernel, out), *args])})")
        self.writes[self.statements[-1]] = [self.names[n] for n in step.writes]

    def _call_region(self, step: CompiledRegion) -> None:
        reads, self.said_last = [self.reference(n) for n in step.reads], ""
        self.names.update({n: self.name(n) for n in step.writes})
        sizes = region_sizes(step)
        called = f"{step.name}({', '.join([*reads, *sizes])})"
        self.statements.append(assign([self.names[n] for n in step.writes], called))
        self.writes[self.statements[-1]] = []

    def _pointer(self, node: fx.Node, step: KernelLaunch) -> str:
        """Return the argument for a tensor. Tensors not allocated here are aligned, because TMA requires it."""
        text = self.reference(node)
        own = any(node in writes_of(s) for s in self.program.steps if not isinstance(s, fx.Node))
        described = node in step.nodes_of(step.kernel.described)
        return f"aligned({text})" if described and not own else text

    def _call(self, node: fx.Node) -> None:
        if is_empty(node):
            self.names[node] = self.name(node)
            self._define(self.names[node], allocation(self.program.buffers[node], self.device))
            return
        args = [self.argument(a) for a in node.args]
        args += [f"{k}={self.argument(v)}" for k, v in node.kwargs.items()]
        self.names[node] = self.name(node)
        self._explain(node)
        self._define(self.names[node], f"torch.ops.{node.target}({', '.join(args)})", node)
        self._sizes_of(node.meta.get("val"), self.names[node])

    def _explain(self, node: fx.Node) -> None:
        """Write a comment with the reason for a call. A reason that was given before is shortened or left out."""
        why = next((c for c in self.program.calls if c.node is node), None)
        if why is None or why.comment == self.said_last:
            return
        text = why.reminder if why.comment in self.said else why.comment
        self.comment(text)
        self.said.add(why.comment)
        self.said_last = why.comment

    def comment(self, text: str) -> None:
        """Write a comment, over several lines if it is long."""
        for part in wrap(text, LINE_WIDTH - len("    # "), break_long_words=False, break_on_hyphens=False):
            self.statements.append(CodeComment(part))

    def _define(self, name: str, value: str, node: fx.Node | None = None) -> None:
        self.statements.append(assign(name, value, node))

    def _evaluate(self, call: str) -> None:
        self.statements.append(Evaluate(parse_expression(call)))

    def reference(self, node: fx.Node) -> str:
        """Return the expression of a node that is in memory, or of a view of one."""
        if node in self.names:
            return self.names[node]
        if node.target is operator.getitem:
            source: Any = node.args[0]
            return f"{self.reference(source)}[{node.args[1]}]"
        if facts_of(node).in_place:
            return self.argument(node.args[0])
        if node.op == "call_function" and is_view(node):
            args = [self.argument(a) for a in node.args]
            args += [f"{k}={self.argument(v)}" for k, v in node.kwargs.items()]
            method = self.views.get(str(node.target))
            if method:
                return f"{args[0]}.{method}({', '.join(args[1:])})"
            return f"torch.ops.{node.target}({', '.join(args)})"
        constant = constant_of(node)
        if constant is None or constant.numel() > MAX_CONSTANT:
            what = "a constant that is too large to write in the file" if constant is not None else "nowhere in memory"
            raise CannotWrite(node, f"{node.target} is {what}")
        self.names[node] = self.name(node)
        self._define(self.names[node], self._constant(self.names[node], constant))
        return self.names[node]

    def _constant(self, name: str, constant: torch.Tensor) -> str:
        """Return the expression of a constant tensor with a name."""
        values = constant.tolist()
        text = literal(values) or repr(values)
        if self.constants is None:
            return f"torch.tensor({text}, dtype={constant.dtype}, device={self.device})"
        text = f"({text}, {constant.dtype})"
        while name in self.constants.values() and text not in self.constants:
            name += "_"
        return f'constant_tensor("{self.constants.setdefault(text, name)}", {self.device})'

    def argument(self, value: Any) -> str:
        """Return an argument of a call as source text."""
        if isinstance(value, fx.Node):
            fake = value.meta.get("val")
            if isinstance(fake, (torch.SymInt, torch.SymFloat)):
                return index_text(expression(fake), self.inline, {})
            return self.reference(value)
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(self.argument(v) for v in value)}]"
        if isinstance(value, torch.device):
            return self.device
        if isinstance(value, torch.SymInt):
            return index_text(expression(value), self.inline, {})
        return literal(value) or repr(value)


VIEW_METHODS = {
    "aten.view.default": "view",
    "aten.permute.default": "permute",
    "aten.t.default": "t",
    "aten.transpose.int": "transpose",
    "aten.expand.default": "expand",
    "aten.unsqueeze.default": "unsqueeze",
    "aten.squeeze.dim": "squeeze",
    "aten.select.int": "select",
}


def region_sizes(region: CompiledRegion) -> list[str]:
    """Return the symbolic sizes in the operations of a region, which are arguments of its function."""
    nodes = (*region.nodes, *region.reads)
    operands = [i.meta.get("val") for n in nodes for i in n.all_input_nodes]
    return sorted(symbols_in([*operands, *tree_leaves([(n.meta.get("val"), n.args, n.kwargs) for n in nodes])]))


def symbols_in(values: Iterable[Any]) -> set[str]:
    """Return the names of the symbols in numbers and in the shapes of tensors."""
    sizes = [s for v in values for s in (v.shape if isinstance(v, torch.Tensor) else [v])]
    symbolic = (expression(s) for s in sizes if isinstance(s, (torch.SymInt, torch.SymFloat, sympy.Basic)))
    return {s.name for size in symbolic for s in size.free_symbols}


def not_deterministic(program: Program) -> bool:
    """Return True if a program sums floating-point numbers in an undefined order."""
    launches = [s for s in program.steps if isinstance(s, KernelLaunch) and s.kernel.adds]
    return any(program.buffers[n].dtype.is_floating_point for s in launches for n in s.nodes_of(s.kernel.adds))


def tuple_text(sizes: Coords) -> str:
    """Return sizes as the source of a tuple."""
    inside = ", ".join(size_text(s) for s in sizes)
    return f"({inside},)" if len(sizes) == 1 else f"({inside})"


def allocation(buffer: Buffer, device: str, zero: bool = False) -> str:
    """Return the call that allocates a buffer."""
    options = f"dtype={buffer.dtype}, device={device}"
    if all(
        sympy.expand(a - b) == 0 or s == 1
        for a, b, s in zip(buffer.strides, contiguous_strides(buffer.shape), buffer.shape, strict=True)
    ):
        sizes = ", ".join(map(size_text, buffer.shape)) or "()"  # a tuple takes longer
        return f"torch.{'zeros' if zero else 'empty'}({sizes}, {options})"
    zeroed = ".zero_()" if zero else ""
    return f"torch.empty_strided({tuple_text(buffer.shape)}, {tuple_text(buffer.strides)}, {options}){zeroed}"


def _blocks_text(size: Index, block: str) -> str:
    """Return the number of blocks that cover a size, as source. `triton.cdiv` takes as long as a launch."""
    text = size_text(size)
    return f"-(-{text} // {block})" if text.isalnum() else f"-(-({text}) // {block})"


def grid_text(kernel: Kernel, out: str) -> str:
    """Return the launch grid of a kernel that writes `out`, as source."""
    chosen = {n for c in kernel.tile.configs[1:] for n, _ in c.blocks}
    parts: list[str] = []
    depends = False
    for dim in kernel.tile.grid:
        if dim.block == 1:
            parts.append(size_text(dim.size))
        elif dim.block_name in chosen:
            depends = True
            parts.append(_blocks_text(dim.size, f'meta["{dim.block_name}"]'))
        else:
            block = dict(kernel.tile.configs[0].blocks).get(dim.block_name, dim.block)
            parts.append(_blocks_text(dim.size, str(block)))
    if kernel.described:
        parts = [f"min(multiprocessors({out}.device), {' * '.join(parts)})"]
    inside = ", ".join(parts) or "1"
    text = f"({inside},)" if len(parts) <= 1 else f"({inside})"
    return f"lambda meta: {text}" if depends else text


def fixed_blocks(kernel: Kernel) -> list[str]:
    """Return the block sizes that no configuration chooses, as keyword arguments of a launch."""
    tuned = tuned_names(kernel)
    first = dict(kernel.tile.configs[0].blocks)
    blocks = [
        f"{d.block_name}={first.get(d.block_name, d.block)}"
        for d in kernel.tile.dims
        if d.block > 1 and d.block_name not in tuned
    ]
    first_config, *others = kernel.tile.configs
    return blocks if others else [*blocks, f"num_warps={first_config.warps}"]


def tuned_names(kernel: Kernel) -> set[str]:
    """Return the names of the block sizes that the configurations choose."""
    first, *others = kernel.tile.configs
    return {n for c in (first, *others) for n in dict(c.blocks)} if others else set()


def tunings(kernels: Iterable[Kernel], reserved: Collection[str] = ()) -> tuple[list[str], dict[str, str]]:
    """Return the lines of the lists of configurations that several kernels share, and the decorators by kernel.

    A kernel with only one configuration has no decorator. The names of the lists are none of the `reserved`.
    """
    tuned = [kernel for kernel in kernels if len(kernel.tile.configs) > 1]
    counts = Counter(kernel.tile.configs for kernel in tuned)
    names: dict[tuple[Config, ...], str] = {}
    for configs in (configs for configs, uses in counts.items() if uses > 1):
        words = [name for name, _ in configs[0].blocks] or ["WARPS"]
        wish = "_".join([*words, "CONFIGS"])
        others = {*reserved, *names.values()}
        names[configs] = next(n for n in chain([wish], map(f"{wish}_{{}}".format, count(1))) if n not in others)
    lists = [f"{name} = [{_configs_text(configs)}]" for configs, name in names.items()]
    texts = {c: f"*{names[c]}" if c in names else _configs_text(c) for c in counts}
    return lists, {kernel.name: _tuning(kernel, texts[kernel.tile.configs]) for kernel in tuned}


def _configs_text(configs: Iterable[Config]) -> str:
    """Return configurations as the source of arguments."""
    parts: list[str] = []
    for config in configs:
        options = [*config.blocks, ("num_warps", config.warps)]
        options += [("num_stages", config.stages)] if config.stages else []
        parts.append(f"config({', '.join(f'{name}={value}' for name, value in options)})")
    return ", ".join(parts)


def _tuning(kernel: Kernel, configs: str) -> str:
    """Return the autotune decorator of a kernel. It tunes once for all values of a symbolic size."""
    key = [s for s, size in kernel.sizes.items() if s in ("M", "N", "K") and size.is_Integer]
    zeroed, restored = ([f"{n}_ptr" for n in names] for names in (kernel.adds, kernel.overwrites))
    options = [f"key={literal(key)}", *([f"reset_to_zero={literal(zeroed)}"] if zeroed else [])]
    options += [f"restore_value={literal(restored)}"] if restored else []
    return f"@autotuned({', '.join([configs, *options])})"
