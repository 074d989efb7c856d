"""Generates the file of a function, runs it under Triton's interpreter, and compares it with the function itself."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import torch
from functorch.compile import aot_function, min_cut_rematerialization_partition
from torch._subclasses import FakeTensorMode

from fx_lsp.codegen.emit import Naming
from fx_lsp.codegen.file import Generated, Subject
from fx_lsp.codegen.generate import decompositions, generate

PLAIN = Naming(lambda node: node.name, lambda node: None, lambda node: "")
TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 2e-3, torch.float32: 1e-5, torch.float64: 1e-9}
_loaded = count()


class _Done(BaseException):
    pass


def generated(function: Callable[..., Any], inputs: Sequence[torch.Tensor], name: str = "f") -> Generated:
    """The file for `function(*inputs)`, which takes tensors and returns a tensor or several."""
    graphs: list[Any] = []
    outputs: list[int] = []

    def compile_(module: Any, example: Any) -> Any:
        graphs.append(module.graph)
        raise _Done

    def partition(joint: Any, example: Any, **options: Any) -> Any:
        forward, backward = min_cut_rematerialization_partition(joint, example, **options)
        outputs.append(options["num_fwd_outputs"])
        graphs.extend((forward.graph, backward.graph))
        raise _Done

    mode = FakeTensorMode()
    fakes = [mode.from_tensor(i.detach()).requires_grad_(i.requires_grad) for i in inputs]
    compiled = aot_function(function, compile_, compile_, partition, decompositions())
    with mode, suppress(_Done):
        compiled(*fakes)
    names = [f"x{i}" for i in range(len(inputs))]
    results = next(n for n in reversed(graphs[0].nodes) if n.op == "output").args[0]
    subject = Subject(name, ", ".join(names), tuple(names), outputs[0] if outputs else len(results), result="out")
    return generate(subject, graphs[0], graphs[1] if len(graphs) > 1 else None, PLAIN)


def loaded(file: Generated) -> ModuleType:
    """The file as a module, with operators of its own."""
    number = next(_loaded)
    path = Path(tempfile.mkdtemp()) / f"generated_{number}.py"
    path.write_text(file.text.replace("_triton::", f"_triton_{number}::"))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def results(function: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
    """The outputs of a function, and the gradients of its inputs for random gradients of those."""
    out = function(*inputs)
    outputs = [o for o in (out if isinstance(out, (tuple, list)) else [out]) if isinstance(o, torch.Tensor)]
    differentiable = [o for o in outputs if o.requires_grad]
    wanted = [i for i in inputs if i.requires_grad]
    gradients: Sequence[torch.Tensor | None] = ()
    if differentiable and wanted:
        torch.manual_seed(0)
        given = [torch.randn(o.shape, dtype=torch.float64).to(o.dtype) for o in differentiable]
        gradients = torch.autograd.grad(differentiable, wanted, given, allow_unused=True)
    return [*outputs, *gradients]


def exact(value: torch.Tensor) -> torch.Tensor:
    """An input in float64."""
    return value.detach().double().requires_grad_(value.requires_grad) if value.is_floating_point() else value


def error(found: torch.Tensor, right: torch.Tensor) -> float:
    """The greatest difference, relative to the greatest right value; infinite where NaN and infinity are elsewhere."""
    found, right = found.detach().double(), right.detach().double()
    finite = torch.isfinite(right)
    same = torch.equal(torch.isnan(found), torch.isnan(right)) and torch.equal(
        found[torch.isinf(right)], right[torch.isinf(right)]
    )
    if not same or not bool(torch.isfinite(found[finite]).all()):
        return float("inf")
    if not finite.any():
        return 0.0
    return float((found - right)[finite].abs().max() / (right[finite].abs().max() + 1e-6))


def wrong(function: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> list[str]:
    """What is wrong with the file of a function, against float64 and, where that is worse, four times eager's error."""
    module = loaded(generated(function, inputs))
    found = results(module.f, inputs)
    eager = results(function, inputs)
    right = results(function, [exact(i) for i in inputs])
    problems: list[str] = []
    for number, (a, b, c) in enumerate(zip(found, eager, right, strict=True)):
        if a is None or b is None or c is None:
            if (a is None) != (b is None) and not (b is None and a is not None and not a.any()):
                problems.append(f"result {number} is {'missing' if a is None else 'there'}")
            continue
        if a.shape != b.shape or a.dtype != b.dtype:
            problems.append(f"result {number} is {a.dtype}{list(a.shape)}, not {b.dtype}{list(b.shape)}")
            continue
        distance, allowed = error(a, c), max(TOLERANCE.get(a.dtype, 0.0), 4 * error(b, c))
        if not distance <= allowed:
            problems.append(f"result {number} is off by {distance:.2e}, eager by {error(b, c):.2e}")
    return problems
