"""The functions of a file: operators that launch the kernels, the autograd function, and the user's entry point."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from fx_lsp.choices import Engine
from fx_lsp.codegen.file.host_code import (
    VIEW_METHODS,
    FunctionBody,
    not_deterministic,
    region_sizes,
    symbols_in,
    tuple_text,
)
from fx_lsp.codegen.file.needed import OperatorResult, with_conditions
from fx_lsp.codegen.graph.query import is_view, view_chain
from fx_lsp.codegen.graph.saved import SavedValues
from fx_lsp.codegen.ir.index import expression
from fx_lsp.codegen.ir.kernel import KernelLaunch
from fx_lsp.codegen.ir.statement import (
    Assign,
    Block,
    CodeLine,
    Evaluate,
    Statement,
    assign,
    names_used,
    print_statements,
    without_definitions,
)
from fx_lsp.codegen.ir.text import ascii_identifier, parse_expression, unparse
from fx_lsp.codegen.triton.program import Program
from fx_lsp.codegen.triton.regions import CompiledRegion, writes_of

Name = Callable[[fx.Node], str]
Definition = list[CodeLine]
"""A definition at the top level of a file, or top-level statements that belong together."""


@dataclass(frozen=True)
class AcceptedInput:
    """Describe the tensors that a file accepts as an input, by the text of its table.

    `strides` is "None" for a contiguous tensor. `gradient` is False if the kernels compute no gradient of it.
    """

    name: str
    dtype: str
    shape: str
    strides: str = "None"
    gradient: bool = True

    def row(self, read_only: bool) -> str:
        """Return the row of the input in the table. An input with other strides is copied if it is only read."""
        strides = ast.literal_eval(self.strides) or ()
        copied = read_only and None not in strides and 0 not in strides
        return f'("{self.name}", {self.dtype}, {self.shape}, {self.strides}, {self.gradient}, {copied})'


@dataclass(frozen=True)
class FileSpec:
    """The function that a file is generated for, and the text that the file contains about it.

    `name` is the public name of the function and `signature` its parameters as source. `inputs` are expressions of the
    parameters, one for each tensor of the graph, and `accepted` describes them, in the same order. `checks` are lines
    that reject other arguments, and `conditions` lines that reject tensors of other sizes.

    The first of the `outputs` results are new values of inputs. `changed` has the expressions of these inputs, each
    with a flag: whether the change must be hidden from its gradient. `result` is the user's return value in terms of
    `out[0]`, `out[1]`, … ("out" is all of them). `tangents` are the results whose gradients backward takes, in order,
    or None for every float.

    `described` are lines about the inputs. `imports` and `definitions` are those that the result needs; `tests` are
    definitions that `main` needs, the lines that compare the function with the original; `original` is the expression
    of the latter, "" if a call of it needs objects of its program. `settings` are the required settings of the parts of
    a module, as items of a table.
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
    settings: tuple[str, ...] = ()
    accepted: tuple[AcceptedInput, ...] = ()
    conditions: tuple[str, ...] = ()
    original: str = ""

    @property
    def stem(self) -> str:
        """The prefix of the names of kernels and operators."""
        return ascii_identifier(self.name)


_COMPILES: Mapping[Engine, str] = {
    "inductor": "@torch.compile(fullgraph=True)",
    "max-autotune": '@torch.compile(fullgraph=True, mode="max-autotune-no-cudagraphs")',
}
"""The decorators of functions that Inductor compiles as a whole."""

ORIGINALS: Mapping[Engine, tuple[str, str]] = {
    "eager": ("{}", "as in eager PyTorch, the fastest"),
    "compile": ("torch.compile({})", "under torch.compile, the fastest"),
    "compile-max-autotune": (
        'torch.compile({}, mode="max-autotune-no-cudagraphs")',
        "under torch.compile in its mode max-autotune, the fastest",
    ),
}
"""The function of a file that calls the original, and what it is called, by the engine."""

MAX_ARGUMENTS = 50
"""The largest number of tensors that an operator takes one by one. PyTorch allows at most 64 arguments."""
CHECK_FUNCTION = "checked"
"""The default name of the function that checks tensors."""


def check_function_name(subject: FileSpec) -> str:
    """Return the name of the checking function in a file. It differs from the user's function and its parameters."""
    return _unused_name(CHECK_FUNCTION, {subject.name, *_parameter_names(subject)})


def _parameter_names(subject: FileSpec) -> list[str]:
    return [a.arg for a in ast.walk(ast.parse(f"def f({subject.signature}): ...")) if isinstance(a, ast.arg)]


@dataclass
class FileFunctions:
    """The definitions of a file, and the data that they share.

    `view_results` are the results that are views of inputs or of other results. `computed` are the results that an
    operator computes or whose gradient backward takes. `saved` are the values that forward saves for backward. With the
    Inductor engine, Inductor compiles operations without kernels. `sizes` are passed to an operator because none of its
    tensors has them. `constants` are the names of the constant tensors that operators read, by their text. `flags` say
    of inputs, by name, whether their gradient is needed; backward has them if it can leave something out.
    """

    subject: FileSpec
    forward: Program
    backward: Program | None
    name: Name
    view_results: Mapping[int, fx.Node]
    saved: SavedValues | None
    engine: Engine
    sizes: dict[str, list[str]] = field(default_factory=dict[str, "list[str]"])
    constants: dict[str, str] = field(default_factory=dict[str, str])
    flags: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        self.programs = [p for p in (self.forward, self.backward) if p is not None]
        results = [r if _is_tensor(r) else None for r in self.forward.results[: self.subject.outputs]]
        self.results = [self.view_results.get(k, r) for k, r in enumerate(results)]
        alone = {k for k in self.view_results if not self._has_tangent(k)}
        self.computed = [k for k, r in enumerate(self.results) if r is not None and k not in alone]
        self.inputs = _tensors(self.forward, self.name)
        self.title = f"_{''.join(p[:1].upper() + p[1:] for p in self.subject.stem.split('_'))}"
        self.has_operators = any(_operator_results(p) or p.overwritten for p in self.programs)

    def _has_tangent(self, position: int) -> bool:
        if self.backward is None or self.subject.tangents is None:
            return self.backward is not None
        return position in self.subject.tangents

    def operator(self, which: str, program: Program) -> list[Definition]:
        """Return the operator that runs a program, or an empty list if the program computes nothing."""
        results, parameters = _operator_results(program), _tensors(program, self.name)
        if not results and not program.overwritten:
            return []
        returns = "Tensor" if len(results) == 1 else f"tuple[{', '.join(['Tensor'] * len(results))}]"
        returns = returns if results else "None"
        device = f"{next(iter(parameters.values()))}.device" if parameters else "device"
        constants = self.constants if self.engine == "fx-lsp" else None  # Inductor has constants of its own
        body = FunctionBody(program, dict(parameters), self.name, device, constants=constants)
        body.write_steps()
        returned = [Evaluate(parse_expression(_listed(body, results)), None, "return")] if results else []
        inner = _without_unused_sizes(body, [*body.statements, *returned])
        if which == "backward" and results and parameters:
            inner = self._with_flags(body, inner[:-1], results)
        self.sizes[which] = _missing_sizes(program, body.known, inner)
        args, unpacked = self._operator_parameters(which, parameters)
        over = ", ".join(f'"{parameters[old]}"' for old in program.overwritten.values())
        over = f", overwrites=[{over}]" if over else ""
        registered = f'@as_operator("{self.subject.stem}_triton::{which}"{over})'
        lines = [
            registered if self.engine == "fx-lsp" else _COMPILES[self.engine],
            f"def {self.subject.stem}_{which}({', '.join(args)}) -> {returns}:",
            *unpacked,
            *([] if parameters else ['    device = "cuda" if torch.cuda.is_available() else "cpu"']),
        ]
        if not_deterministic(program):
            lines.append(f'    alert_not_deterministic("{self.subject.stem}_{which}")')
        return [[*map(CodeLine, lines), *print_statements(inner)]]

    def compiled(self, program: Program) -> list[Definition]:
        """Return the functions that Inductor compiles in place of kernels of a program."""
        return [self._region(program, step) for step in program.steps if isinstance(step, CompiledRegion)]

    def _region(self, program: Program, region: CompiledRegion) -> Definition:
        parameters = {n: self.name(n) for n in region.reads}
        calls = tuple(n for n in region.nodes if n.target is not operator.getitem and not is_view(n))
        own = Program(region.reads, calls, region.writes, program.buffers)
        device = f"{next(iter(parameters.values()))}.device"
        views = {**VIEW_METHODS, "aten.view.default": "reshape"}  # operations may lay their results out otherwise
        body = FunctionBody(own, dict(parameters), self.name, device, known=set(region_sizes(region)), views=views)
        body.comment(f"Inductor compiles it: {'; '.join(region.reasons)}" if region.reasons else "Inductor compiles it")
        body.write_steps()
        returned = Evaluate(parse_expression(_listed(body, region.writes)), None, "return")
        arguments = ", ".join([*parameters.values(), *region_sizes(region)])
        head = ["@compiled", f"def {region.name}({arguments}):"]
        return [*map(CodeLine, head), *print_statements([*body.statements, returned])]

    def _operator_parameters(self, which: str, tensors: Mapping[fx.Node, str]) -> tuple[list[str], list[str]]:
        """Return the parameters of an operator, and the lines that unpack those that are lists."""
        parameters, unpacked = [f"{p}: Tensor" for p in tensors.values()], list[Statement]()
        if len(tensors) > MAX_ARGUMENTS:
            parameters = ["tensors: list[Tensor]"]
            unpacked.append(_unpack(list(tensors.values()), "tensors"))
        parameters += [f"{s}: int" for s in self.sizes[which]]
        flags = self._flags(which)
        if _are_listed(tensors, flags):
            parameters.append("needs: list[bool]")
            unpacked.append(_unpack(flags, "needs"))
        else:
            parameters += [f"{f}: bool" for f in flags]
        return parameters, [line.text for line in print_statements(unpacked)]

    def _flags(self, which: str) -> list[str]:
        """Return the flags that an operator takes."""
        return list(self.flags.values()) if which == "backward" else []

    def _with_flags(
        self, body: FunctionBody, statements: Sequence[Statement], results: Sequence[fx.Node]
    ) -> list[Statement]:
        """Return the statements and the return of backward, which leave out what no needed gradient uses."""
        names = {*body.names.values(), *body.known}
        flags = {p: _unused_name(f"needs_{p}", names) for p in self.inputs.values()}
        bases, asking = _operator_bases(body.program), dict[fx.Node, list[str]]()
        for parameter, gradient in zip(self.inputs.values(), self._gradients(body.program), strict=True):
            if gradient in bases:
                asking.setdefault(bases[gradient], []).append(flags[parameter])
        listed = [OperatorResult(body.reference(r), tuple(asking.get(r, ()))) for r in results]
        first = next(n for n in body.program.inputs if n in body.names)
        empty = f"{body.names[first]}.new_empty(0)"
        conditional, used = with_conditions(statements, body.writes, listed, empty)
        self.flags = {p: flag for p, flag in flags.items() if flag in used}
        return conditional

    def _gradients(self, backward: Program) -> tuple[fx.Node | None, ...]:
        """Return the results of backward that are gradients of the tensors that forward takes, in their order."""
        return backward.results[len(self.forward.inputs) - len(self.inputs) :]

    def _call(
        self, which: str, program: Program, arguments: dict[fx.Node, str]
    ) -> tuple[list[Statement], FunctionBody, list[str]]:
        """Return the statements that call an operator, the body with its results, and the sizes without an argument.

        The statements include the sizes read from tensors before and after the call.
        """
        results = _operator_results(program)
        device = f"{next(iter(arguments.values()))}.device" if arguments else ""
        body = FunctionBody(program, dict(arguments), self.name, device)
        body.sizes()
        ahead, body.statements = body.statements, []
        missing = [s for s in self.sizes.get(which, ()) if s not in body.known]
        body.known.update(missing)
        if not results:
            return ahead, body, missing
        flags = self._flags(which)
        if not flags:  # a result that is not needed has other sizes
            body.names.update({node: self.name(node) for node in results})
            body.sizes()
        body.names.update({node: self.name(node) for node in results})
        behind, body.statements = body.statements, []
        names = [body.names[n] for n in results]
        tensors = ", ".join(arguments.values())
        tensors = f"[{tensors}]" if len(arguments) > MAX_ARGUMENTS else tensors
        needs = [f"[{', '.join(flags)}]"] if _are_listed(arguments, flags) else flags
        arguments_text = ", ".join([*([tensors] if arguments else []), *self.sizes[which], *needs])
        called = assign(names, f"{self.subject.stem}_{which}({arguments_text})")
        return [*ahead, called, *behind], body, missing

    def function(self, backward: Program) -> Definition:
        """Return the autograd function."""
        called, body, _ = self._call("forward", self.forward, self.inputs)
        assert self.saved is not None
        value_of = self.saved.by_input(self.forward.results)
        parameters = _tensors(backward, self.name)
        saved = [p for p in parameters if p in value_of]
        tangents = [p for p in parameters if p not in value_of]
        result_texts = {k: body.reference(r) for k in self.computed if (r := self.results[k]) is not None}
        saved_texts = self._saved_texts(body, [value_of[p] for p in saved])
        sizes, after, behind = self._backward_body(backward, parameters, tangents)
        save = f"ctx.save_for_backward({', '.join(saved_texts)})"
        before = [
            *called,
            *body.statements,
            *(assign(f"ctx.{s}", s) for s in sizes),
            *([Evaluate(parse_expression(save))] if saved_texts else []),
            *self._without_gradient(result_texts),
            Evaluate(parse_expression(", ".join(result_texts.values())), None, "return"),
        ]
        gradient_names = {k: f"_{k}" for k in self.computed}
        named = zip(self._differentiable(), tangents, strict=False)
        gradient_names |= {k: self.name(tangent) for k, tangent in named if k in gradient_names}
        after = [*self._backward_head(saved), *(assign(s, f"ctx.{s}") for s in sizes), *after]
        inner = " " * 8
        return [
            CodeLine(f"class {self.title}(torch.autograd.Function):"),
            CodeLine("    @staticmethod"),
            CodeLine(f"    def forward({', '.join(['ctx', *self.inputs.values()])}):"),
            *print_statements(_without_unused_sizes(body, before), inner),
            CodeLine(""),
            CodeLine("    @staticmethod"),
            CodeLine(f"    def backward({', '.join(['ctx', *gradient_names.values()])}):"),
            *print_statements(_without_unused_sizes(behind, after), inner),
        ]

    def _saved_texts(self, body: FunctionBody, saved: Sequence[fx.Node]) -> list[str]:
        """Return the values that forward saves. Inputs that the function changes are copied."""
        inputs = dict(zip(self.subject.inputs, self.inputs, strict=True))
        altered = {inputs[expression] for expression, _ in self.subject.changed}
        texts = [(node, body.reference(node)) for node in saved]
        return [f"{text}.clone()" if node in altered else text for node, text in texts]

    def _differentiable(self) -> list[int]:
        """Return the positions of the results whose gradients backward takes, in order."""
        if self.subject.tangents is not None:
            return list(self.subject.tangents)
        return [k for k in self.computed if _is_float(self.results[k])]

    def _without_gradient(self, result_texts: Mapping[int, str]) -> list[Statement]:
        """Return the statement that marks results without a gradient, in a list that is empty if there are none."""
        differentiable = {k for k in self._differentiable() if _is_float(self.results[k])}
        fixed = dict.fromkeys(result_texts[k] for k in self.computed if k not in differentiable)
        return [Evaluate(parse_expression(f"ctx.mark_non_differentiable({', '.join(fixed)})"))] if fixed else []

    def _backward_body(
        self, backward: Program, parameters: dict[fx.Node, str], tangents: Sequence[fx.Node]
    ) -> tuple[list[str], list[Statement], FunctionBody]:
        """Return the sizes that backward takes from forward, and the statements of backward after those that
        take them.
        """
        calls, behind, sizes = self._call("backward", backward, parameters)
        named = zip(self.inputs.values(), self._gradients(backward), strict=True)
        gradients = [_gradient_text(behind, r, self.flags.get(parameter)) for parameter, r in named]
        flags = [self.flags.get(p, "_") for p in self.inputs.values()]
        needs = [_unpack(flags, "ctx.needs_input_grad")] if self.flags else []
        dense = [_dense_gradient(t, self.name(t)) for t in tangents]
        returned = Evaluate(parse_expression(", ".join(gradients)), None, "return")
        after = [*dense, *needs, *calls, *behind.statements, returned]
        return [*sizes, *_missing_sizes(backward, behind.known, after)], after, behind

    def _backward_head(self, saved: Sequence[fx.Node]) -> list[Statement]:
        """Return the first statements of backward: they reject second derivatives and unpack the saved values."""
        once = f"{self.subject.name} does not support create_graph=True"
        condition = parse_expression("torch.is_grad_enabled() and not torch.compiler.is_compiling()")
        refusal = Evaluate(parse_expression(f'RuntimeError("{once}")'), None, "raise")
        names = [self.name(p) for p in saved]
        return [Block("if", condition, (refusal,)), *([_unpack(names, "ctx.saved_tensors")] if saved else [])]

    def entry(self) -> Definition:
        """Return the function that the user calls."""
        subject, operator_results = self.subject, _operator_results(self.forward)
        device = f"{subject.inputs[0]}.device" if subject.inputs else '"cuda" if torch.cuda.is_available() else "cpu"'
        body = FunctionBody(self.forward, dict(zip(self.inputs, subject.inputs, strict=True)), self.name, device)
        tensors = _unused_name("tensors", {*_parameter_names(subject), *map(self.name, body.program.buffers)})
        arguments = f"*{tensors}" if subject.accepted else ", ".join(subject.inputs)
        called, statements = self._operator_call(body, operator_results, arguments)
        quiet = bool(called) and self.backward is None and any(_is_float(n) for n in self.inputs)
        body.inline = _inline_sizes(body)
        body.names.update({new: body.names[old] for new, old in self.forward.overwritten.items()})
        statements += self._copies_to_inputs(body, quiet)
        result = _filled_result(subject.result, [parse_expression(_text(body, r)) for r in self.results])
        names = _names_of(result)
        if len(statements) == 1 and isinstance(statements[0], Assign) and list(statements[0].targets) == names:
            statements, result = [], statements[0].value
        if not statements or unparse(result) != "None":
            statements.append(Evaluate(result, None, "return"))
        if quiet:
            statements = [Block("with", parse_expression("torch.no_grad()"), tuple(statements))]
        lines = [CodeLine(f"    {line}") for line in self._checks(tensors if called else "")]
        lines += print_statements([*body.statements, *statements])
        return [CodeLine(f"def {subject.name}({subject.signature}):"), *lines]

    def _operator_call(
        self, body: FunctionBody, operator_results: Sequence[fx.Node], arguments: str
    ) -> tuple[str, list[Statement]]:
        """Return the call of the operator or autograd function, "" for none, and the statement that names its
        results.
        """
        if not self.computed:
            return "", []
        results = [r for k in self.computed if (r := self.results[k]) is not None]
        named = results if self.backward is not None else operator_results
        call = f"{self.title}.apply" if self.backward is not None else f"{self.subject.stem}_forward"
        body.names.update({n: self.name(n) for n in named})
        called = f"{call}({arguments})"
        return called, [assign([self.name(n) for n in named], called) if named else Evaluate(parse_expression(called))]

    def _checks(self, tensors: str) -> list[str]:
        """Return the lines that reject other arguments, and modules with other settings. They assign the inputs in the
        layout of the kernels to `tensors`, "" for no variable.
        """
        subject = self.subject
        checked = f"{check_function_name(subject)}({', '.join(subject.inputs)})"
        lines = [line for check in subject.checks for line in check.splitlines()]
        lines += [f"{tensors} = {checked}" if tensors else checked] if subject.accepted else []
        return [*lines, *subject.conditions, *(["check_settings(self, SETTINGS)"] if subject.settings else [])]

    def accepted_inputs(self) -> list[str]:
        """Return the rows of the table of accepted inputs."""
        subject = self.subject
        shared = {expression for expression, _ in subject.changed}
        bases = [node for result in self.results if result is not None for node in list(view_chain(result))[1:]]
        named = zip(self.inputs, subject.inputs, strict=True)
        shared |= {e for node, e in named if node in bases or node in self.forward.overwritten.values()}
        inputs = zip(subject.inputs, subject.accepted, strict=False)
        return [accepted.row(expression not in shared) for expression, accepted in inputs]

    def _copies_to_inputs(self, body: FunctionBody, quiet: bool) -> list[Statement]:
        """Return the statements that copy new values into inputs. The body then names these values by their inputs.

        `quiet` is True if no gradient is recorded in any case.
        """
        statements: list[Statement] = []
        for (changed, hidden), node in zip(self.subject.changed, self.results, strict=False):
            if node not in self.forward.overwritten:
                copy = Evaluate(parse_expression(f"{changed}.copy_({_text(body, node)})"))
                unrecorded = Block("with", parse_expression("torch.no_grad()"), (copy,))
                statements.append(unrecorded if hidden and not quiet else copy)
        for (changed, _), node in zip(self.subject.changed, self.results, strict=False):
            again = [k for k in range(len(self.subject.changed), len(self.results)) if self.results[k] is node]
            if node is not None and node.op != "placeholder" and not any(map(self._has_tangent, again)):
                body.names[node] = changed
        return statements


def _listed(body: FunctionBody, nodes: Sequence[fx.Node]) -> str:
    return ", ".join(body.reference(n) for n in nodes)


def _missing_sizes(program: Program, known_sizes: Collection[str], statements: Sequence[Statement]) -> list[str]:
    """Return the sizes that statements use and no tensor has."""
    called = [n for step in program.steps if isinstance(step, fx.Node) for n in step.all_input_nodes]
    values = [n.meta.get("val") for n in (*program.buffers, *program.inputs, *called)]
    values += [s for step in program.steps if isinstance(step, KernelLaunch) for s in step.sizes.values()]
    regions = [region_sizes(step) for step in program.steps if isinstance(step, CompiledRegion)]
    symbols = symbols_in(values).union(*regions)
    return sorted((symbols - set(known_sizes)) & names_used(statements))


def _inline_sizes(body: FunctionBody) -> dict[Any, str]:
    """Return for each size the expression of a tensor dimension that has it, such as `x.shape[0]`."""
    expressions: dict[Any, str] = {}
    for node, text in body.names.items():
        value = node.meta.get("val")
        for dim, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            expressions.setdefault(expression(size), f"{text}.shape[{dim}]")
    return expressions


def _text(body: FunctionBody, node: fx.Node | None) -> str:
    return "None" if node is None else body.reference(node)


class _ResultFiller(ast.NodeTransformer):
    """Replace `out[0]`, `out[1]`, … by expressions."""

    def __init__(self, parts: Sequence[ast.expr]) -> None:
        self._parts = {f"out[{number}]": part for number, part in enumerate(parts)}

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        return self._parts.get(ast.unparse(node)) or self.generic_visit(node)


def _filled_result(result: str, parts: list[ast.expr]) -> ast.expr:
    """Return a result with its parts filled in. The result "out" is all of them."""
    if result == "out":
        return parts[0] if len(parts) == 1 else ast.Tuple(parts, ast.Load())
    return _ResultFiller(parts).visit(ast.parse(result, mode="eval").body)


def _names_of(value: ast.expr) -> list[str]:
    """Return the names in a name or in a tuple of names, [] for any other expression."""
    items = value.elts if isinstance(value, ast.Tuple) and len(value.elts) > 1 else [value]
    names = [item.id for item in items if isinstance(item, ast.Name)]
    return names if len(names) == len(items) else []


def _without_unused_sizes(body: FunctionBody, statements: Sequence[Statement]) -> tuple[Statement, ...]:
    """Return statements without definitions of sizes that none of them uses. Those of one tensor share a statement."""
    used = without_definitions(statements, body.known - names_used(statements))
    return tuple(_unpacked_sizes(used))


def _unpacked_sizes(statements: Iterable[Statement]) -> Iterator[Statement]:
    """Yield statements with the sizes of successive dimensions of a tensor unpacked at once."""
    sizes: list[tuple[str, str, int]] = []
    for statement in statements:
        size = _defined_size(statement)
        if size is None or (sizes and size[1:] != (sizes[-1][1], sizes[-1][2] + 1)):
            yield from _sizes_statement(sizes)
            sizes = []
        if size is None:
            yield statement
        else:
            sizes.append(size)
    yield from _sizes_statement(sizes)


def _defined_size(statement: Statement) -> tuple[str, str, int] | None:
    """Return the name, the tensor and the dimension of a statement such as `n = x.shape[0]`, None for any other."""
    if not isinstance(statement, Assign) or statement.node is not None or len(statement.targets) != 1:
        return None
    text = re.fullmatch(r"(.+)\.shape\[(\d+)\]", unparse(statement.value))
    return (statement.targets[0], text[1], int(text[2])) if text else None


def _sizes_statement(sizes: Sequence[tuple[str, str, int]]) -> Iterator[Statement]:
    """Yield the statement that defines the sizes of successive dimensions of a tensor, if there are any."""
    if not sizes:
        return
    names = [name for name, _, _ in sizes]
    _, tensor, first = sizes[0]
    dims = f"{first or ''}:{first + len(sizes)}" if len(sizes) > 1 else str(first)
    yield assign(names, f"{tensor}.shape[{dims}]")


def _dense_gradient(tangent: fx.Node, name: str) -> Statement:
    """Return the statement that gives a gradient the memory layout that the kernels expect."""
    value = tangent.meta["val"]
    if value.is_contiguous():
        return assign(name, f"{name}.contiguous()")
    if value.dim() == 4 and value.is_contiguous(memory_format=torch.channels_last):
        return assign(name, f"{name}.contiguous(memory_format=torch.channels_last)")
    strides = tuple_text(tuple(expression(s) for s in value.stride()))
    copied = f"torch.empty_strided({name}.shape, {strides}, dtype={name}.dtype, device={name}.device).copy_({name})"
    return Block("if", parse_expression(f"{name}.stride() != {strides}"), (assign(name, copied),))


def _tensors(program: Program, name: Name) -> dict[fx.Node, str]:
    """Return the tensors among the inputs of a program, with the names of the operator's parameters."""
    return {n: name(n) for n in program.inputs if isinstance(n.meta.get("val"), torch.Tensor)}


def _unpack(names: Sequence[str], value: str) -> Assign:
    """Return the statement that unpacks a tuple or a list."""
    return assign([f"({names[0]},)"] if len(names) == 1 else names, value)


def _unused_name(wish: str, names: Collection[str]) -> str:
    while wish in names:
        wish += "_"
    return wish


def _are_listed(tensors: Collection[Any], flags: Collection[str]) -> bool:
    """Return True if an operator takes its flags as a list."""
    return bool(flags) and len(tensors) + len(flags) > MAX_ARGUMENTS


def _gradient_text(body: FunctionBody, gradient: fx.Node | None, flag: str | None) -> str:
    text = _text(body, gradient)
    return text if flag is None else f"{text} if {flag} else None"


def _is_tensor(node: fx.Node | None) -> bool:
    return node is not None and isinstance(node.meta.get("val"), torch.Tensor)


def _is_float(node: fx.Node | None) -> bool:
    value = None if node is None else node.meta.get("val")
    return isinstance(value, torch.Tensor) and (value.dtype.is_floating_point or value.dtype.is_complex)


def _operator_results(program: Program) -> list[fx.Node]:
    """Return the results that an operator returns: each tensor that it computes, once."""
    return list(dict.fromkeys(_operator_bases(program).values()))


def _operator_bases(program: Program) -> dict[fx.Node, fx.Node]:
    """Return the results of a program that an operator computes, with the tensors that they are or view."""
    computed = {n for step in program.steps for n in writes_of(step) if n.op != "placeholder"}
    results = [r for r in program.results if r is not None and not any(n in program.overwritten for n in view_chain(r))]
    bases = {r: list(_view_chain(r, computed))[-1] for r in results}
    return {r: n for r, n in bases.items() if n in computed or _is_part(n, computed)}


def _view_chain(node: fx.Node, computed: Collection[fx.Node]) -> Iterator[fx.Node]:
    """Yield a node and the nodes that it views, up to a tensor or part of a call's result that the program computes."""
    yield node
    while node not in computed and not _is_part(node, computed):
        if node.op != "call_function" or not node.args or not isinstance(node.args[0], fx.Node):
            return
        node = node.args[0]
        yield node


def _is_part(node: fx.Node, computed: Collection[fx.Node]) -> bool:
    """Return True if a node picks an item of a call's result, or of a list in it."""
    source: Any = node.args[0] if node.target is operator.getitem else None
    return source is not None and (source in computed or _is_part(source, computed))
