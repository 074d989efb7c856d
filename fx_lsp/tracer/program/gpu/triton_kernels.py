"""Capture launches of the user's Triton kernels without a GPU: each is one operation on its tensors.

PyTorch has that operation for `torch.compile` (`triton_kernel_wrapper_mutation`): it derives from the kernel's
intermediate representation which arguments are written. Triton generates that for a recent GPU, and compiles nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch.fx.node import base_types
from torch.overrides import handle_torch_function

from fx_lsp.tracer.compat import launches_analyzed_once
from fx_lsp.tracer.program.absences import AbsentError
from fx_lsp.tracer.program.gpu.torch_cuda import PROPERTIES


class _Driver:
    """Answer the queries of Triton and programs to the driver of a GPU."""

    def __init__(self, target: Any) -> None:
        self._target = target
        properties = {
            "max_shared_mem": PROPERTIES.shared_memory_per_block_optin,
            "max_num_regs": PROPERTIES.regs_per_multiprocessor,
            "multiprocessor_count": PROPERTIES.multi_processor_count,
            "warpSize": PROPERTIES.warp_size,
        }
        self.utils = SimpleNamespace(get_device_properties=lambda device: dict(properties))

    def get_current_target(self) -> Any:
        """Return the device that kernels are compiled for."""
        return self._target

    def get_active_torch_device(self) -> torch.device:
        """Return the device of tensors for kernels."""
        return torch.device("cuda", 0)

    def get_device_interface(self) -> ModuleType:
        """Return PyTorch's module for the device."""
        return torch.cuda

    def get_current_device(self) -> int:
        """Return the number of the device."""
        return 0

    def get_current_stream(self, device: Any = None) -> int:
        """Return the stream that kernels run on."""
        return 0

    def set_current_device(self, device: Any) -> None:
        """Do nothing: there is one device."""


@contextmanager
def triton_launches() -> Generator[None, None, None]:
    """Make a launch of a Triton kernel inside run nothing, and appear in graphs as one operation."""
    with ExitStack() as stack:
        with suppress(ImportError):
            compiler: Any = importlib.import_module("triton.backends.compiler")
            runtime: Any = importlib.import_module("triton.runtime")
            driver = _Driver(compiler.GPUTarget("cuda", 90, 32))
            stack.enter_context(mock.patch.object(runtime.JITFunction, "run", _run))
            stack.enter_context(mock.patch.object(runtime.Autotuner, "run", _run_first_configuration))
            stack.enter_context(mock.patch.object(runtime.driver, "_active", driver))
            stack.enter_context(launches_analyzed_once())
        yield


def _run_first_configuration(self: Any, *args: Any, **options: Any) -> Any:
    """Launch an autotuned kernel; any of its configurations gives the same result."""
    config = self.configs[0]
    values = {name: value for name, value in config.all_kwargs().items() if value is not None}
    if config.pre_hook is not None:
        config.pre_hook({**dict(zip(self.arg_names, args, strict=False)), **options, **values})
    return self.fn.run(*args, **{**values, **options})


def _run(self: Any, *args: Any, grid: Any, warmup: bool = False, **options: Any) -> Any:
    """Launch a kernel."""
    arguments = _arguments_of(self, args, options)
    _check_devices(self.__name__, arguments)
    if warmup:
        raise AbsentError(RuntimeError(f"the registers of {self.__name__} are unknown until it is compiled for a GPU"))
    for name in (parameter.name for parameter in self.params if parameter.is_constexpr):
        if isinstance(arguments[name], torch.SymInt):
            arguments[name] = int(arguments[name])
    sizes: Any = grid(arguments) if callable(grid) else grid
    blocks: tuple[Any, ...] = tuple(sizes)
    _launch(self, (*blocks, 1, 1)[:3], arguments)


def _arguments_of(kernel: Any, args: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of each of a kernel's parameters. Raises TypeError, like Triton, if they do not fit."""
    names = [parameter.name for parameter in kernel.params]
    if len(args) > len(names):
        raise TypeError(f"{kernel.__name__}() takes {len(names)} arguments but {len(args)} were given")
    values = dict(zip(names, args, strict=False))
    unknown = [name for name in options if name not in names and name not in _launch_options()]
    if unknown:
        raise KeyError(f"Keyword argument {unknown[0]} was specified but unrecognised")
    twice = [name for name in options if name in values]
    if twice:
        raise TypeError(f"{kernel.__name__}() got multiple values for argument '{twice[0]}'")
    values.update({name: value for name, value in options.items() if name in names})
    values.update({p.name: p.default for p in kernel.params if p.name not in values and p.has_default})
    missing = [name for name in names if name not in values]
    if missing:
        raise TypeError(f"{kernel.__name__}() missing {len(missing)} required arguments: {', '.join(missing)}")
    return {name: values[name] for name in names}


def _launch_options() -> frozenset[str]:
    """Return the names of the options for Triton's compiler that are not kernel parameters."""
    compiler: Any = importlib.import_module("triton.compiler.compiler")
    runtime: Any = importlib.import_module("triton.runtime")
    return frozenset(compiler.make_backend(runtime.driver.active.get_current_target()).parse_options({}).__dict__)


def _check_devices(name: str, arguments: Mapping[str, Any]) -> None:
    """Raise ValueError, like Triton, if one tensor is on the CPU and another on a GPU."""
    tensors = {key: value for key, value in arguments.items() if isinstance(value, torch.Tensor)}
    on_cpu = [key for key, tensor in tensors.items() if tensor.device.type == "cpu"]
    if on_cpu and len(on_cpu) < len(tensors):
        raise ValueError(f"{name}: pointer argument `{on_cpu[0]}` is a tensor on the CPU, which Triton cannot access")


def _launch(kernel: Any, grid: tuple[Any, ...], arguments: Mapping[str, Any]) -> None:
    """Call the operation that represents a launch."""
    if torch._C._is_torch_function_mode_enabled():
        handle_torch_function(_launch, (), kernel, grid, arguments)
        return
    from torch._higher_order_ops import triton_kernel_wrap as wrap

    descriptors: dict[str, Any] = {}
    tensors: dict[str, Any] = {}
    constants: dict[str, Any] = {}
    for name, value in arguments.items():
        if isinstance(getattr(value, "base", None), torch.Tensor) and hasattr(value, "block_shape"):
            descriptors[name] = wrap.create_tma_stable_metadata(value.block_shape)
            tensors[name] = value.base
        elif isinstance(value, base_types):
            tensors[name] = value
        else:
            constants[name] = value
    wrap.triton_kernel_wrapper_mutation(
        kernel_idx=wrap.kernel_side_table.add_kernel(kernel),
        constant_args_idx=wrap.kernel_side_table.add_constant_args(constants),
        grid=[grid],
        tma_descriptor_metadata=descriptors,
        kwargs=tensors,
    )
