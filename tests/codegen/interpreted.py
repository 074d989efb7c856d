"""Generates the file of a function, runs it under Triton's interpreter, and compares it with the function itself."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import torch.library
from functorch.compile import aot_function
from torch import fx
from torch._subclasses import FakeTensorMode

from fx_lsp.choices import Choices
from fx_lsp.codegen.file.functions import FileSpec
from fx_lsp.codegen.file.module import GeneratedFile
from fx_lsp.codegen.generate import generate
from fx_lsp.codegen.graph.decompositions import decompositions
from fx_lsp.codegen.graph.query import is_tangent
from fx_lsp.codegen.ir.kernel import Naming
from fx_lsp.codegen.pipeline import Graphs, Rewrite, partition
from fx_lsp.numerics import interpreter  # it tells Triton to interpret, before any kernel

interpreter.repair()

DEFAULT = Choices()
PLAIN = Naming(lambda node: node.name, lambda node: None, lambda node: "")
TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 2e-3, torch.float32: 1e-5, torch.float64: 1e-9}
_loaded = count()
_folder = tempfile.TemporaryDirectory(prefix="generated")


class _Done(BaseException):
    pass


def hold(rewrite: Rewrite, graphs: Graphs, broken: Sequence[str]) -> None:
    """Fail where a rewrite breaks what has to hold after it."""
    assert not broken, f"{rewrite.name}: {'; '.join(broken)}"


@dataclass(frozen=True)
class Captured:
    """The graphs of a function. Of the results of forward, the first `outputs` are not for backward, and those that the
    function returns are `returned`; backward takes the gradients of `tangents`. The first results are new values of the
    inputs `changed`.
    """

    graphs: Graphs
    forward: fx.Graph
    backward: fx.Graph | None
    outputs: int
    returned: tuple[int, ...]
    tangents: tuple[int, ...]
    changed: tuple[int, ...]


def captured(function: Callable[..., Any], inputs: Sequence[torch.Tensor], choices: Choices = DEFAULT) -> Captured:
    """The graphs of `function(*inputs)`, which takes tensors and returns a tensor or several."""
    graphs = Graphs(choices, watch=hold)
    outputs: list[int] = []

    def compile_(module: Any, example: Any) -> Any:
        graphs.joint = module.graph
        raise _Done

    def parted(joint: Any, example: Any, **options: Any) -> Any:
        partition(graphs, joint, example, **options)
        outputs.append(options["num_fwd_outputs"])
        raise _Done

    mode = FakeTensorMode()
    fakes = [mode.from_tensor(i.detach()).requires_grad_(i.requires_grad) for i in inputs]
    compiled = aot_function(function, compile_, compile_, parted, decompositions())
    with mode, suppress(_Done):
        compiled(*fakes)
    forward, backward = graphs.forward or graphs.joint, graphs.backward
    assert forward is not None
    output = next(n for n in reversed(forward.nodes) if n.op == "output")
    kinds = list(output.meta["desc"])
    returned = tuple(k for k, d in enumerate(kinds) if type(d).__name__ == "PlainAOTOutput")
    changed = tuple(d.mutated_input.idx for d in kinds if type(d).__name__.startswith("InputMutation"))
    takes = [n.meta["desc"] for n in backward.nodes if is_tangent(n)] if backward is not None else []
    tangents = tuple(kinds.index(d.output) for d in takes)
    return Captured(graphs, forward, backward, outputs[0] if outputs else len(kinds), returned, tangents, changed)


def generated(found: Captured, name: str = "f", choices: Choices = DEFAULT) -> GeneratedFile:
    """The file for a function."""
    inputs = [n for n in found.forward.nodes if n.op == "placeholder"]
    names = [f"x{i}" for i in range(len(inputs))]
    result = "out" if len(found.returned) == found.outputs else f"({''.join(f'out[{k}], ' for k in found.returned)})"
    tangents = found.tangents if found.backward is not None else None
    changed = tuple((names[number], False) for number in found.changed)
    signature = ", ".join(names)
    subject = FileSpec(name, signature, tuple(names), found.outputs, changed=changed, result=result, tangents=tangents)
    return generate(subject, replace(found.graphs, choices=choices), PLAIN, {})


def floats(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape).to(dtype).requires_grad_()


def below(limit: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, limit, shape)


def rotated(x: torch.Tensor) -> torch.Tensor:
    """The halves of each row, in the other order."""
    left, right = x.chunk(2, dim=-1)
    return torch.cat((-right, left), dim=-1)


class _Poisoned:
    """`torch` for a generated file: memory that it allocates holds NaN, or a number that stands out."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def empty(self, *args: Any, **options: Any) -> torch.Tensor:
        return _poison(torch.empty(*args, **options))

    def empty_strided(self, *args: Any, **options: Any) -> torch.Tensor:
        return _poison(torch.empty_strided(*args, **options))


def kernels_in(found: GeneratedFile) -> list[str]:
    """The text of each kernel of a file, from its `def` on."""
    return found.text.partition("\n\n\ndef is_plain(")[0].split("@triton.jit\n")[1:]


def named_kernels(found: GeneratedFile) -> dict[str, str]:
    """The kernels of the file of `f` by name, each from its name on, without the functions that they call."""
    parts = [part.removeprefix("def ").partition("\n\n\n")[0] for part in kernels_in(found)]
    return {part.partition("(")[0]: part for part in parts if part.startswith("f_")}


def _poison(fresh: torch.Tensor) -> torch.Tensor:
    if fresh.dtype is torch.bool:
        return fresh.view(torch.uint8).fill_(0x5A).view(torch.bool)
    return fresh.fill_(float("nan") if fresh.is_floating_point() or fresh.is_complex() else 0x5A)


def loaded(file: GeneratedFile, operators: bool = False) -> ModuleType:
    """The file as a module whose fresh tensors are poisoned.

    Without `operators`, which take a while to register, those of the file are plain functions.
    """
    number = next(_loaded)
    path = Path(_folder.name, f"generated_{os.getpid()}_{number}.py")
    path.write_text(file.text.replace("_triton::", f"_triton_{number}::"))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if operators:
        spec.loader.exec_module(module)
    else:
        operator = SimpleNamespace(register_fake=lambda function: None)
        with patch.object(torch.library, "custom_op", lambda *_, **__: operator):
            spec.loader.exec_module(module)
    module.torch = _Poisoned()
    return module


def results(
    function: Callable[..., Any], inputs: Sequence[torch.Tensor], differentiable: Sequence[int] | None = None
) -> tuple[list[torch.Tensor | None], list[int]]:
    """The outputs of a function, then the gradients of its inputs for random gradients of the outputs with those
    numbers, or of all that have one; and which those are."""
    out = function(*inputs)
    outputs = [o for o in (out if isinstance(out, (tuple, list)) else [out]) if isinstance(o, torch.Tensor)]
    wanted = [i for i in inputs if i.requires_grad]
    numbers = [n for n, o in enumerate(outputs) if o.requires_grad] if differentiable is None else list(differentiable)
    gradients: Sequence[torch.Tensor | None] = ()
    if numbers and wanted:
        torch.manual_seed(0)
        given = [torch.randn(outputs[n].shape, dtype=torch.float64).to(outputs[n].dtype) for n in numbers]
        gradients = torch.autograd.grad([outputs[n] for n in numbers], wanted, given, allow_unused=True)
    return [*outputs, *gradients], numbers


def exact(value: torch.Tensor) -> torch.Tensor:
    """An input in float64."""
    return value.detach().double().requires_grad_(value.requires_grad) if value.is_floating_point() else value


def error(found: torch.Tensor, right: torch.Tensor) -> float:
    """The greatest difference, relative to the greatest right value; infinite where NaN and infinity are elsewhere."""
    found, right = _numbers(found), _numbers(right)
    finite = torch.isfinite(right)
    same = torch.equal(torch.isnan(found), torch.isnan(right)) and torch.equal(
        found[torch.isinf(right)], right[torch.isinf(right)]
    )
    if not same or not bool(torch.isfinite(found[finite]).all()):
        return float("inf")
    if not finite.any():
        return 0.0
    return float((found - right)[finite].abs().max() / (right[finite].abs().max() + 1e-6))


def _numbers(value: torch.Tensor) -> torch.Tensor:
    value = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
    return value.detach().double()


def wrong(function: Callable[..., Any], inputs: Sequence[torch.Tensor], choices: Choices = DEFAULT) -> list[str]:
    """What is wrong with the file of a function, in forward and backward."""
    return compared(loaded(generated(captured(function, inputs, choices), choices=choices)).f, function, inputs)


def checked(function: Callable[..., Any], inputs: Sequence[torch.Tensor], choices: Choices = DEFAULT) -> GeneratedFile:
    """The file of a function, once it was found right."""
    file = generated(captured(function, inputs, choices), choices=choices)
    assert compared(loaded(file).f, function, inputs) == []
    return file


def compared(found: Callable[..., Any], function: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> list[str]:
    """How `found` differs from the function in float64, by more than a tolerance and four times what eager differs.

    Where eager is far from float64, either is right: the function is not continuous, it depends on the dtype, or eager
    has instructions of this processor that know no infinity.
    """
    before = [i.detach().clone() for i in inputs]
    eager, differentiable = results(function, inputs)
    got, _ = results(found, inputs, differentiable)
    problems = [f"input {n} was written to" for n, (i, b) in enumerate(zip(inputs, before, strict=True)) if error(i, b)]
    right, _ = results(function, [exact(i) for i in inputs], differentiable)
    for number, (a, b, c) in enumerate(zip(got, eager, right, strict=True)):
        if a is None or b is None:
            if (a is None) != (b is None) and any(v is not None and v.any() for v in (a, b)):
                problems.append(f"result {number} is {'missing' if a is None else 'there'}")
            continue
        if a.shape != b.shape or a.dtype != b.dtype:
            problems.append(f"result {number} is {a.dtype}{list(a.shape)}, not {b.dtype}{list(b.shape)}")
            continue
        far = error(b, c) if c is not None and c.shape == b.shape else 1.0
        near = far < (0.5 if a.dtype.itemsize == 2 else 0.05)
        distances = [error(a, v) for v in (b, c) if v is not None and v.shape == a.shape]
        distance = distances[-1] if near else min(distances)
        allowed = max(TOLERANCE.get(a.dtype, 0.0), 4 * far if near else 0.0)
        if c is not None and c.shape == b.shape and c.numel() and _numbers(c).abs().max() < 1e-6:
            distance, allowed = (float(_numbers(v).abs().max()) for v in (a, b))
            allowed = 4 * allowed + 1e-6
        if not distance <= allowed:
            problems.append(f"result {number} is off by {distance:.2e}, eager by {far:.2e}")
    return problems
