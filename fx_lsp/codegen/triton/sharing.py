"""Share kernels: launches of kernels that differ only in names and in constant offsets use one kernel.

Steps of a loop with matrix multiplications are separate launches. Each step reads other tensors, or other parts of the
same tensors. An offset that differs between the steps becomes an argument.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import Any, TypeAlias

import sympy
from torch import fx

from fx_lsp.codegen.ir.index import Index
from fx_lsp.codegen.ir.kernel import Kernel, KernelLaunch, KernelParameter
from fx_lsp.codegen.ir.statement import (
    Assign,
    For,
    Statement,
    every_statement,
    names_used,
    print_statements,
    rename,
    with_expressions,
)
from fx_lsp.codegen.ir.text import name

Offset: TypeAlias = "Callable[[int], str | None]"
"""A function from the number of an address to the parameter that replaces its constant offset, or None."""


def share_kernels(steps: Sequence[KernelLaunch | fx.Node]) -> tuple[KernelLaunch | fx.Node, ...]:
    """Return the steps of a program with one kernel for all launches that differ only in names and offsets."""
    alike: dict[Any, list[int]] = {}
    addresses: dict[int, list[_Address]] = {}
    for place, step in enumerate(steps):
        if isinstance(step, KernelLaunch) and not step.kernel.overwrites:
            key, addresses[place] = _key(step.kernel)
            alike.setdefault(key, []).append(place)
    shared = list(steps)
    for places in alike.values():
        launches = [step for place in places if isinstance(step := steps[place], KernelLaunch)]
        if len(launches) > 1:
            for place, launch in zip(places, _shared(launches, [addresses[p] for p in places]), strict=True):
                shared[place] = launch
    return tuple(shared)


@dataclass(frozen=True)
class _Address:
    """An address in a kernel: a pointer, and the constant part of its offset."""

    pointer: str
    offset: Index


def _shared(launches: Sequence[KernelLaunch], addresses: Sequence[Sequence[_Address]]) -> list[KernelLaunch]:
    """Return launches of the first kernel, with the offsets that differ between the launches as arguments."""
    kernel = launches[0].kernel
    names = _defined(kernel) | names_used(kernel.body)
    parameters: dict[tuple[Index, ...], str] = {}
    by_address: dict[int, str] = {}
    for number, each in enumerate(zip(*addresses, strict=True)):
        offsets = tuple(a.offset for a in each)
        if len(set(offsets)) == 1:
            continue
        if offsets not in parameters:
            wish = f"{each[0].pointer.removesuffix('_ptr')}_offset"
            parameters[offsets] = next(n for n in chain([wish], map(f"{wish}_{{}}".format, count(1))) if n not in names)
            names.add(parameters[offsets])
        by_address[number] = parameters[offsets]
    if parameters:
        place = len(kernel.parameters) - sum(p.constant and p.name not in kernel.sizes for p in kernel.parameters)
        own = [*kernel.parameters[:place], *map(KernelParameter, parameters.values()), *kernel.parameters[place:]]
        body = _with_offsets(kernel, by_address.get)[0]
        kernel = replace(kernel, parameters=tuple(own), body=body)
    return [
        replace(launch, kernel=kernel, offsets={p: offsets[number] for offsets, p in parameters.items()})
        for number, launch in enumerate(launches)
    ]


def _key(kernel: Kernel) -> tuple[Any, list[_Address]]:
    """Return a key that kernels share if they differ only in names and constant offsets, and the addresses."""
    body, addresses = _with_offsets(kernel, "offset_{}".format)
    pointers = _pointers(kernel)
    names = dict.fromkeys([*pointers, *(n for s in every_statement(body) for n in _targets(s))])
    text = [line.text for line in print_statements(rename(body, {n: f"name_{k}" for k, n in enumerate(names)}))]
    buffers = [
        (b.dtype, *(b.name in marked for marked in (kernel.adds, kernel.described)))
        for b in (*kernel.reads, *kernel.writes)
    ]
    dims = [(d.size, d.role, d.block, d.variable, d.size_name, d.block_name) for d in kernel.tile.dims]
    others = tuple(p for p in kernel.parameters if p.name not in pointers)
    sizes = tuple(kernel.sizes.items())
    return (tuple(text), tuple(buffers), tuple(dims), kernel.tile.configs, others, sizes, len(pointers)), addresses


def _pointers(kernel: Kernel) -> list[str]:
    """Return the parameters of a kernel that are pointers."""
    own = {f"{b.name}_ptr" for b in (*kernel.reads, *kernel.writes)}
    return [p.name for p in kernel.parameters if p.name in own]


def _defined(kernel: Kernel) -> set[str]:
    """Return the names that a kernel defines."""
    return {p.name for p in kernel.parameters} | {n for s in every_statement(kernel.body) for n in _targets(s)}


def _targets(statement: Statement) -> tuple[str, ...]:
    """Return the names that a statement defines."""
    if isinstance(statement, Assign):
        return statement.targets
    return (statement.variable,) if isinstance(statement, For) else ()


def _with_offsets(kernel: Kernel, offset: Offset) -> tuple[tuple[Statement, ...], list[_Address]]:
    """Return the body of a kernel with constant offsets replaced by parameters, and all addresses in their order."""
    sizes = {s: v for s, v in kernel.sizes.items() if v.is_Integer}
    editor = _OffsetEditor(frozenset(_pointers(kernel)), sizes, offset)
    return with_expressions(kernel.body, editor.edit), editor.addresses


@dataclass
class _OffsetEditor(ast.NodeTransformer):
    """Replace the constant offsets of addresses."""

    pointers: Collection[str]
    sizes: Mapping[str, Index]
    offset: Offset
    addresses: list[_Address] = field(default_factory=list[_Address])

    def edit(self, expression: ast.expr) -> ast.expr:
        """Return an expression with the offsets in it replaced."""
        return self.visit(ast.parse(ast.unparse(expression), mode="eval").body)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._address(node) if node.id in self.pointers else node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        first, *_ = _terms(node)
        if isinstance(first[1], ast.Name) and first[1].id in self.pointers:
            return self._address(node)
        return self.generic_visit(node)

    def _address(self, node: ast.expr) -> ast.expr:
        """Return an address with its constant offset replaced."""
        pointer, *terms = _terms(node)
        constants = [self._number(term) for _, term in terms]
        total: Index = sympy.Integer(0)
        for (sign, _), number in zip(terms, constants, strict=True):
            total += sign * number if number is not None else 0
        self.addresses.append(_Address(ast.unparse(pointer[1]), total))
        parameter = self.offset(len(self.addresses) - 1)
        if parameter is None:
            return node
        address = pointer[1]
        for (sign, term), number in zip(terms, constants, strict=True):
            if number is None:
                address = ast.BinOp(address, ast.Add() if sign > 0 else ast.Sub(), term)
        return ast.BinOp(address, ast.Add(), name(parameter))

    def _number(self, term: ast.expr) -> Index | None:
        """Return the value of a term that is constant, or None."""
        if isinstance(term, ast.Constant) and type(term.value) is int:
            return sympy.Integer(term.value)
        if isinstance(term, ast.Name):
            return self.sizes.get(term.id)
        if isinstance(term, ast.BinOp) and isinstance(term.op, ast.Mult):
            left, right = self._number(term.left), self._number(term.right)
            return left * right if left is not None and right is not None else None
        return None


def _terms(node: ast.expr) -> list[tuple[int, ast.expr]]:
    """Return the terms of a sum, each with its sign."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, (ast.Add, ast.Sub)):
        return [(1, node)]
    sign = 1 if isinstance(node.op, ast.Add) else -1
    return [*_terms(node.left), *((sign * s, term) for s, term in _terms(node.right))]
