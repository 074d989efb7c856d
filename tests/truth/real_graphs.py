"""Run small programs for real, with one function or module of each compiled by `torch.compile`, and print its graphs.

Reads a JSON list of `{"target", "program", "files"}` from standard input. `program` is the file that runs, and the file
`user.py` defines the target. Prints, as a JSON list in the same order, the graphs that AOTAutograd makes of the first
call that backward runs through, or of the first call if backward runs through none. Each program runs in a fork of
this process, which imports nothing of fx-lsp.
"""

from __future__ import annotations

import ast
import contextlib
import json
import math
import operator
import os
import sys
import tempfile
import traceback
import types
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition

Node = torch.fx.Node
SHORT_DTYPES = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u", "complex": "c"}
INSERTED = "__compiled_target__"
INDEX = "index of the call"


@dataclass
class Graphs:
    """Hold the operations of the graphs of a call, and the tensors saved for backward, as `f32[4, 8] 128 bytes`.

    `backward` is None if the call has only an inference graph.
    """

    forward: dict[str, int] = field(default_factory=dict[str, int])
    backward: dict[str, int] | None = None
    saved: dict[str, int] = field(default_factory=dict[str, int])
    is_differentiated: bool = False


class Recorder:
    """Compile a target with AOTAutograd, and record the graphs of each of its calls that is compiled."""

    def __init__(self) -> None:
        self.calls: list[Graphs] = []
        backend = aot_autograd(
            fw_compiler=self._forward,
            bw_compiler=self._backward,
            inference_compiler=self._inference,
            partition_fn=self._partition,
            keep_inference_input_mutations=True,  # as Inductor has it
        )
        self._compile: Any = torch.compile(  # pyright: ignore[reportUnknownMemberType]
            backend=backend, fullgraph=True, dynamic=False
        )

    def compiled(self, target: Any) -> Any:
        """Return the target with its calls compiled."""
        if not isinstance(target, type):
            return self._compile(target)
        target.forward = self._compile(target.forward)  # type: ignore[attr-defined]
        return target

    @property
    def answer(self) -> Graphs:
        """Return the graphs of the first differentiated call, or else those of the first call."""
        return next((call for call in self.calls if call.is_differentiated), self.calls[0])

    def _partition(self, joint: Any, inputs: Any, **options: Any) -> Any:
        forward, backward = min_cut_rematerialization_partition(joint, inputs, **options)
        values = next(node for node in reversed(forward.graph.nodes) if node.op == "output").args[0]
        saved = [node.meta["val"] for node in values[options["num_fwd_outputs"] :] if isinstance(node, Node)]
        tensors = [described(value) for value in saved if isinstance(value, torch.Tensor)]
        backward.meta[INDEX] = len(self.calls)
        self.calls.append(Graphs({}, {}, dict(Counter(tensors))))
        return forward, backward

    def _forward(self, graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        self.calls[-1].forward = operations(graph)
        return graph

    def _backward(self, graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        index: int = graph.meta[INDEX]  # backward may be compiled when it runs, after other calls
        call = self.calls[index]
        call.backward = operations(graph)

        def run(*arguments: Any) -> Any:
            call.is_differentiated = True
            return graph(*arguments)

        return run

    def _inference(self, graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        self.calls.append(Graphs(operations(graph)))
        return graph


def operations(graph: torch.fx.GraphModule) -> dict[str, int]:
    """Return the names of the operations of a graph, with their numbers; picking from a tuple is none."""
    targets = [node.target for node in graph.graph.nodes if node.op == "call_function"]
    return dict(Counter(str(target) for target in targets if target is not operator.getitem))


def described(tensor: torch.Tensor) -> str:
    """Return the dtype, shape and bytes of a tensor, and its strides if it is not contiguous.

    An expanded dimension has one element in memory.
    """
    dtype = str(tensor.dtype).removeprefix("torch.")
    kind = dtype.rstrip("0123456789")
    short = "b8" if dtype == "bool" else dtype.replace(kind, SHORT_DTYPES[kind])
    sizes = (size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
    strides = "" if tensor.is_contiguous() else tensor.stride()
    return f"{short}{list(tensor.shape)}{strides} {math.prod(sizes) * tensor.element_size()} bytes"


def run(target: str, program: str, files: dict[str, str]) -> Graphs:
    """Run a program in a folder with `files`. Raises what it raises, and IndexError if it does not call the target."""
    recorder = Recorder()
    for name, text in files.items():
        Path(name).write_text(text, encoding="utf-8")
    sys.path.insert(0, os.getcwd())
    sys.argv = [program]
    modules = {"user.py": "user"} | {program: "__main__"}
    for name, module_name in modules.items():
        module = sys.modules[module_name] = types.ModuleType(module_name)
        module.__dict__.update({"__file__": os.path.abspath(name), INSERTED: recorder.compiled})
        tree = ast.parse(files[name])
        if name == "user.py":
            insert_after(tree, target)
        exec(compile(tree, os.path.abspath(name), "exec"), module.__dict__)
    return recorder.answer


def insert_after(tree: ast.Module, target: str) -> None:
    """Insert the statement that compiles the target after its definition."""
    number = next(n for n, node in enumerate(tree.body) if getattr(node, "name", None) == target)
    (statement,) = ast.parse(f"{target} = {INSERTED}({target})").body
    tree.body.insert(number + 1, statement)


def in_fork(target: str, program: str, files: dict[str, str]) -> dict[str, Any]:
    """Return the graphs of a program that runs in a child of this process, or `{"error": …}`."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        with os.fdopen(write, "w") as out, tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                with contextlib.redirect_stdout(sys.stderr):
                    answer = asdict(run(target, program, files))
            except BaseException:
                answer = {"error": traceback.format_exc()}
            json.dump(answer, out)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        answer = json.load(stream)
    os.waitpid(pid, 0)
    return answer


def main(programs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the graphs of all programs."""
    torch._dynamo.config.trace_autograd_ops = True
    torch._dynamo.config.enable_dynamo_decompositions = False  # the operations are those that eager PyTorch calls
    Recorder().compiled(torch.sin)(torch.ones(2))  # so that each child finds the compiler warm
    torch._dynamo.reset()
    return [in_fork(**program) for program in programs]


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))
