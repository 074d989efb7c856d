"""What the figures are compared with: the same trace without fx-lsp. A program: `peers.py warm|logs TARGET N`."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import statistics
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

TARGETS = Path(__file__).parent / "targets"


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make(target: str) -> tuple[Any, tuple[Any, ...]]:
    """The callable and its arguments, with the shapes that fx-lsp traces the target with."""
    import torch

    if target == "small":
        function = load(TARGETS / "small.py").attention
        return function, tuple(torch.randn(2, 4, 64, 32, requires_grad=True) for _ in range(3))
    if target == "medium":
        from transformers import LlamaConfig
        from transformers.models.llama.modeling_llama import LlamaAttention

        module = LlamaAttention(LlamaConfig(), 0)
        hidden = torch.randn(4, 8, 4096, requires_grad=True)
        cos, sin = (torch.randn(4, 8, 128, requires_grad=True) for _ in range(2))
        return module, (hidden, (cos, sin))
    return load(TARGETS / "large.py").Decoder(), (torch.zeros(2, 64, dtype=torch.int64),)


class Done(BaseException):
    """Leaves AOTAutograd once both graphs are there."""


def trace(function: Any, args: tuple[Any, ...]) -> None:
    """AOTAutograd with the min-cut partitioner on fake tensors, parameters lifted, nothing compiled."""
    import torch
    from torch._functorch.aot_autograd import aot_function
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch.utils import _pytree as pytree

    state = dict(function.state_dict(keep_vars=True)) if isinstance(function, torch.nn.Module) else {}

    def flat(*tensors: Any) -> list[Any]:
        weights, inputs = tensors[: len(state)], pytree.tree_unflatten(list(tensors[len(state) :]), spec)
        with contextlib.ExitStack() as stack:
            if state:
                from torch.nn.utils.stateless import _reparametrize_module

                stack.enter_context(_reparametrize_module(function, dict(zip(state, weights, strict=True))))
            return [t for t in pytree.tree_leaves(function(*inputs)) if isinstance(t, torch.Tensor)]

    leaves, spec = pytree.tree_flatten(args)

    def stop(graph: Any, inputs: Any) -> Any:
        raise Done

    traced = aot_function(flat, stop, stop, partition_fn=min_cut_rematerialization_partition)
    with contextlib.suppress(Done):
        traced(*state.values(), *leaves)


def main() -> None:
    how, target, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    import torch
    from torch._subclasses import FakeTensorMode

    if how == "logs":
        function, args = make(target)
        result = torch.compile(function, backend="aot_eager")(*args)
        first = result[0] if isinstance(result, tuple) else result
        first.sum().backward()
        return
    with FakeTensorMode():
        function, args = make(target)
    trace(function, args)
    seconds: list[float] = []
    for _ in range(count):
        started = time.perf_counter()
        trace(function, args)
        seconds.append(time.perf_counter() - started)
    print(json.dumps({"p50": statistics.median(seconds), "runs": len(seconds)}))


if __name__ == "__main__":
    main()
