"""Compile and run the code that Inductor generates for a graph on the CPU, and record the value of each buffer."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import fx
from torch._inductor import config as inductor_config
from torch._inductor import ir
from torch._inductor.exc import CppCompileError
from torch._inductor.scheduler import Scheduler
from torch._inductor.virtualized import V
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from fx_lsp.sandbox.confinement import is_confined
from fx_lsp.tracer.capture.graphs import Names
from fx_lsp.tracer.failures.exceptions import sentence
from fx_lsp.tracer.stages.node_values import InputPool, NodeRun, Tensors, real_inputs, with_values

NO_COMPILER = (
    "traced code may not start all programs of the C++ compiler: the option `--allow-program` names what it may"
)

_OPTIONS = {
    "generate_intermediate_hooks": True,
    "allow_buffer_reuse": False,
    "inplace_buffers": False,
    "cpp.threads": 1,
    "cpp.vec_isa_ok": True,
    "cpp_cache_precompile_headers": False,
}
"""Options with which every buffer has its own memory, and code for the CPU runs in one thread, with the instructions
that the processor has by the system's description.
"""


def run_generated(
    lowering: Any, load: Callable[[Any], Any], graph: fx.Graph, names: Names, reference: tuple[InputPool, NodeRun]
) -> NodeRun:
    """Run the code of a lowered graph on the inputs of a run of that graph; `load` compiles and imports the code.

    The values are those of the buffers that the code has, under the names of the nodes that they hold, and the results.
    Any other value is empty.
    """
    pool, before = reference
    if before.trouble:
        return NodeRun(trouble=before.trouble)
    devices = sorted(device for device in lowering.device_types if device not in ("cpu", "meta"))
    if devices:
        return NodeRun(trouble=f"its code is for the device {devices[0]}")
    by_name = {node.name: names[node] for node in graph.nodes}
    buffers: dict[str, Tensors] = {}

    def record(name: str, value: Any) -> None:
        if name in by_name and isinstance(value, torch.Tensor):
            buffers[by_name[name]] = (value.detach().clone(),)

    try:
        with _recorded(record):
            module = load(lowering)
            with _disable_current_modes(), torch.random.fork_rng(devices=[]), torch.no_grad():
                inputs = [
                    v.clone() if isinstance(v, torch.Tensor) else v for v in real_inputs(graph, names, pool, before)
                ]
                torch.manual_seed(0)
                outputs = tree_leaves(module.call(inputs), is_leaf=lambda value: value is None)
    except Exception as error:
        may_not = is_confined() and isinstance(error, (PermissionError, CppCompileError))
        return NodeRun(trouble=NO_COMPILER if may_not else f"it cannot be compiled or run: {sentence(error)}")
    for name, value in zip(before.results, outputs, strict=False):
        if name and isinstance(value, torch.Tensor):
            buffers[name] = (value.detach(),)
    return with_values(before, buffers)


@contextmanager
def _recorded(record: Callable[[str, Any], None]) -> Generator[None, None, None]:
    """Pass each buffer of code that is generated and runs inside to `record`, with torch's name of its node."""
    from torch._inductor.cpu_vec_isa import VecISA
    from torch._inductor.hooks import intermediate_hook

    hooked: set[str] = set()
    free_buffers = Scheduler.free_buffers

    def free(scheduler: Any) -> None:
        for name in _complete(scheduler) - hooked:
            hooked.add(name)
            origin = scheduler.name_to_buf[name].node.get_origin_node()
            if origin is not None:
                V.graph.wrapper_code.writeline(f"run_intermediate_hooks({origin.name!r}, {name})")
        free_buffers(scheduler)

    with ExitStack() as stack:
        # instructions for narrow types are used where a program that is compiled and started says that they work
        stack.enter_context(mock.patch.object(VecISA, "check_build", lambda isa, code: False))
        stack.enter_context(mock.patch.object(Scheduler, "free_buffers", free))
        existing = inductor_config.shallow_copy_dict()
        stack.enter_context(inductor_config.patch({name: v for name, v in _OPTIONS.items() if name in existing}))
        stack.enter_context(intermediate_hook(record))
        yield


def _complete(scheduler: Any) -> set[str]:
    """Return the buffers of one tensor each that the code so far has computed, and that nothing writes to later."""
    removed, freed = V.graph.removed_buffers, V.graph.wrapper_code.freed
    written = {*scheduler.mutation_renames, *scheduler.mutation_real_name.values()}
    names = {n for n in scheduler.available_buffer_names if n in scheduler.name_to_buf} - removed - freed - written
    return {n for n in names if _is_tensor(scheduler.name_to_buf[n].node)}


def _is_tensor(buffer: Any) -> bool:
    layout = buffer.get_output_spec()
    return isinstance(layout, ir.Layout) and not isinstance(layout, ir.MutationLayoutSHOULDREMOVE)
