"""Handle the differences between versions of torch by capability. Only this file knows them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from tempfile import TemporaryDirectory
from traceback import FrameSummary
from types import CodeType, SimpleNamespace
from typing import Any, Literal
from unittest import mock

import sympy  # pyright: ignore[reportMissingTypeStubs]
import torch
import torch.fx.traceback as fx_traceback
from sympy.printing.str import StrPrinter  # pyright: ignore[reportMissingTypeStubs]
from torch._dispatch.python import enable_python_dispatcher as enable_python_dispatcher
from torch._dynamo.source import ConstantSource as ConstantSource
from torch._functorch.aot_autograd import aot_function as aot_function
from torch._functorch.partitioners import OpTypes as OpTypes
from torch._functorch.partitioners import default_partition as default_partition
from torch._functorch.partitioners import get_default_op_list as default_op_types
from torch._functorch.partitioners import min_cut_rematerialization_partition as min_cut_partition
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, GuardOnDataDependentSymNode, ShapeEnv
from torch.utils._sympy.functions import FloorDiv, Max, Mod, PythonMod
from torch.utils._sympy.printers import PythonPrinter as SymbolPrinter

try:
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
except ImportError:  # merged into one class in a later torch
    from torch._subclasses.fake_tensor import UnsupportedFakeTensorException as DataDependentOutputException

    DynamicOutputShapeException = DataDependentOutputException

__all__ = [
    "DATA_DEPENDENT",
    "HAS_ANNOTATE",
    "HAS_COLUMNS",
    "BreakReason",
    "CompiledGuard",
    "ConstantSource",
    "DimDynamic",
    "FakeTensor",
    "FakeTensorMode",
    "FloorDiv",
    "Max",
    "Mod",
    "PythonMod",
    "ShapeEnv",
    "StrPrinter",
    "SymbolPrinter",
    "annotate",
    "annotation",
    "aot_function",
    "as_if_compiling",
    "both_graphs",
    "default_op_types",
    "default_partition",
    "descriptor",
    "enable_python_dispatcher",
    "ends_at",
    "exact_positions",
    "guards_of",
    "is_unsafe_in_cuda_graph",
    "kept_meta",
    "launches_analyzed_once",
    "memory_budget",
    "min_cut_partition",
    "options_of",
    "output_code",
    "page_of_break",
    "placeholder_source",
    "preserve_node_meta",
    "report_layouts",
    "sympy",
    "tensors_of_launch",
    "uncached",
    "unwrapped",
    "watched_breaks",
    "watched_recompilations",
    "with_meta",
    "without_compilation",
    "without_cpu_libraries",
    "without_functionalization",
    "wrappers_of_inputs",
]

HAS_COLUMNS = sys.version_info >= (3, 11)
"""True if frames know the column of the expression that they run."""

DATA_DEPENDENT: tuple[type[BaseException], ...] = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    GuardOnDataDependentSymNode,
)
"""The exceptions that torch raises when code asks a fake tensor for a value."""

_annotate: Callable[[dict[str, Any]], AbstractContextManager[None]] | None = getattr(fx_traceback, "annotate", None)

HAS_ANNOTATE = _annotate is not None
"""True if FX nodes carry annotations through AOTAutograd; without, only `stack_trace` lines are known."""


def annotate(data: dict[str, Any]) -> AbstractContextManager[None]:
    """Attach `data` to every FX node that is traced inside; does nothing if torch does not support it."""
    return _annotate(data) if _annotate is not None else nullcontext()


def preserve_node_meta() -> AbstractContextManager[Any]:
    """Keep annotations and stack traces on the nodes of a trace."""
    return fx_traceback.preserve_node_meta()


def without_compilation() -> AbstractContextManager[Any]:
    """Do not generate Python for graphs that nobody runs; does nothing if torch has no lazy graph modules."""
    try:
        from torch.fx._lazy_graph_module import _use_lazy_graph_module
    except ImportError:
        return nullcontext()
    return _use_lazy_graph_module(True)


@contextmanager
def tolerant_tensorification() -> Generator[None, None, None]:
    """Leave symbolic numbers in a graph if PyTorch fails to make tensors of them: its pass only knows symbols whose
    size the graph reads before. Does nothing if torch has no such pass.
    """
    try:
        from torch._functorch._aot_autograd import graph_compile

        tensorify = graph_compile.tensorify_python_scalars
    except (ImportError, AttributeError):
        yield
        return

    def tolerant(*args: Any) -> None:
        with suppress(KeyError):
            tensorify(*args)

    with mock.patch.object(graph_compile, "tensorify_python_scalars", tolerant):
        yield


def without_functionalization() -> dict[str, Any] | None:
    """Return the option of `aot_function` that keeps views and in-place operations; None if torch has none."""
    name = "disable_functionalization"
    return {name: True} if name in signature(aot_function).parameters else None


def wrappers_of_inputs() -> tuple[Any, Any]:
    """Return AOTAutograd's wrappers of duplicated inputs, and of aliased views, which it replaces by their bases.

    Raises ImportError if this torch has others.
    """
    from torch._functorch._aot_autograd.runtime_wrappers import AOTDedupeWrapper, AOTSyntheticBaseWrapper

    return AOTDedupeWrapper, AOTSyntheticBaseWrapper


@contextmanager
def kept_meta(key: str) -> Generator[None, None, None]:
    """Make nodes that are traced inside keep the value that is attached to them under `key`."""
    import torch.fx.proxy

    fields: list[str] | None = getattr(torch.fx.proxy, "_COPY_META_FIELDS", None)
    if fields is None:
        yield
        return
    with mock.patch.object(torch.fx.proxy, "_COPY_META_FIELDS", [*fields, key]):
        yield


@contextmanager
def with_meta(key: str, value: Any) -> Generator[None, None, None]:
    """Attach `value` to nodes under `key` inside, if `kept_meta` makes them keep it."""
    meta = fx_traceback.current_meta
    before = meta.get(key)
    meta[key] = value
    try:
        yield
    finally:
        if before is None:
            meta.pop(key, None)
        else:
            meta[key] = before


def annotation(node: torch.fx.Node, key: str) -> Any:
    """Return the value that `annotate` attached to `node` under `key`, or None."""
    return (node.meta.get("custom") or {}).get(key)


def descriptor(node: torch.fx.Node) -> Any:
    """Return AOTAutograd's description of a placeholder or of an output node's values, or None if torch has none."""
    return node.meta.get("desc")


def placeholder_source(node: torch.fx.Node) -> str:
    """Return the source of a placeholder by Dynamo (`L['x']`), or "" if this torch does not keep it."""
    source = getattr(node, "_dynamo_source", None) or getattr(node.meta.get("grapharg"), "source", None)
    name = getattr(source, "name", "")
    return str(name() if callable(name) else name)


@contextmanager
def exact_positions() -> Generator[None, None, None]:
    """Make the stacks that Dynamo prints inside mark the expressions of the running instructions.

    One torch leaves out the line on which an expression ends, and others leave out columns altogether.
    """
    from torch._dynamo.symbolic_convert import InstructionTranslatorBase
    from torch._guards import TracingContext

    running: list[Any] = [None]

    def step(self: Any, *args: Any) -> Any:
        running[0] = self
        return original(self, *args)

    def marked(method: Callable[[Any], Any], translator_of: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def summary(self: Any) -> Any:
            frame = method(self)
            positions = getattr(getattr(translator_of(self), "current_instruction", None), "positions", None)
            if frame is not None and positions is not None and positions.lineno == frame.lineno:
                frame.colno, frame.end_colno = positions.col_offset, positions.end_col_offset
                frame.end_lineno = positions.end_lineno
            return frame

        return summary

    original = InstructionTranslatorBase.step
    places: list[tuple[type, str, Callable[[Any], Any]]] = [
        (InstructionTranslatorBase, "frame_summary", lambda translator: translator),
        (TracingContext, "_populate_loc_in_frame_summary", lambda context: running[0]),
    ]
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(InstructionTranslatorBase, "step", step))
        for owner, name, translator_of in places if HAS_COLUMNS else ():
            if (method := getattr(owner, name, None)) is not None:
                stack.enter_context(mock.patch.object(owner, name, marked(method, translator_of)))
        yield


@dataclass(frozen=True)
class BreakReason:
    """Describe why Dynamo breaks a graph: the `kind` by PyTorch's name, and the details of this case.

    `stack` are the frames of the user's program, outermost first; `skipped` are the functions that are not compiled at
    all.
    """

    kind: str
    explanation: str
    hints: tuple[str, ...]
    stack: tuple[FrameSummary, ...]
    skipped: tuple[str, ...] = ()


@contextmanager
def watched_breaks(on_break: Callable[[BreakReason], None]) -> Generator[None, None, None]:
    """Call `on_break` inside whenever Dynamo logs a graph break."""
    from torch._dynamo import exc, graph_break_hints
    from torch._dynamo.resume_execution import TORCH_DYNAMO_RESUME_IN_PREFIX
    from torch._dynamo.symbolic_convert import InstructionTranslatorBase

    general = {hint for hints in vars(graph_break_hints).values() if isinstance(hints, list) for hint in hints}
    formatted: dict[str, tuple[str, str, tuple[str, ...]]] = {}

    def formatting(kind: str, context: str, explanation: str, hints: list[str]) -> str:
        text = format_message(kind, context, explanation, hints)
        formatted[text] = kind, explanation, tuple(hint for hint in hints if hint not in general)
        return text

    def logging(translator: Any, *args: Any, **kwargs: Any) -> Any:
        bound = signature(log).bind(translator, *args, **kwargs).arguments
        error = bound.get("exc")
        told = str(error)
        reasons = [parts for text, parts in formatted.items() if text in told]
        kind, explanation, hints = reasons[0] if reasons else (type(error).__name__, told, ())
        name = translator.f_code.co_name
        if name.startswith(TORCH_DYNAMO_RESUME_IN_PREFIX):  # the rest of a function after a break
            name = name.removeprefix(f"{TORCH_DYNAMO_RESUME_IN_PREFIX}_").rpartition("_at_")[0]
        skipped = (name,) if getattr(error, "skip_frame", False) else ()
        stack = tuple(getattr(error, "real_stack", None) or (translator.frame_summary(),))
        on_break(BreakReason(kind, explanation, hints, stack, skipped))
        return log(translator, *args, **kwargs)

    format_message, log = exc.format_graph_break_message, InstructionTranslatorBase.log_graph_break
    with (
        mock.patch.object(exc, "format_graph_break_message", formatting),
        mock.patch.object(InstructionTranslatorBase, "log_graph_break", logging),
    ):
        yield


@dataclass(frozen=True)
class CompiledGuard:
    """Hold a guard of compiled code: its `kind` by PyTorch's name, and its `conditions` as expressions of Python.

    `stack` are the frames of the user's code that need it, outermost first; empty if PyTorch does not know them.
    """

    kind: str
    source: str
    conditions: tuple[str, ...]
    stack: tuple[FrameSummary, ...]


@contextmanager
def watched_recompilations(
    on_recompilation: Callable[[CodeType, Mapping[str, Any], list[Any]], None],
) -> Generator[None, None, None]:
    """Call `on_recompilation` inside whenever Dynamo compiles a frame again: with its code, its variables, and the
    guard managers of its earlier compilations, the latest first.
    """
    from torch._dynamo import convert_frame, eval_frame

    names = ("get_and_maybe_log_recompilation_reasons", "get_and_maybe_log_recompilation_reason")
    name = next(name for name in names if hasattr(convert_frame, name))
    find_reasons = getattr(convert_frame, name)

    def finding(entries: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
        reasons = find_reasons(entries, frame, *args, **kwargs)
        compiled = entries if isinstance(entries, list) else eval_frame._debug_get_cache_entry_list(frame.f_code)
        on_recompilation(frame.f_code, frame.f_locals, [entry.guard_manager for entry in compiled])
        return reasons

    with mock.patch.object(convert_frame, name, finding):
        yield


def guards_of(exported: Any) -> tuple[CompiledGuard, ...]:
    """Return the guards that `torch._dynamo.optimize` passes to its `guard_export_fn`."""
    guards: list[CompiledGuard] = []
    for guard in exported:
        kind = guard.inner_create_fn().__name__
        source = str(guard.name() if callable(guard.name) else guard.name)
        guards.append(CompiledGuard(kind, source, tuple(guard.code_list or ()), tuple(guard.user_stack or ())))
    return tuple(guards)


def is_unsafe_in_cuda_graph(node: torch.fx.Node) -> bool:
    """Return True if Inductor does not capture an operation in a CUDA graph, as far as this torch can tell."""
    from torch._inductor import utils
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    is_unsafe = getattr(utils, "is_cudagraph_unsafe_fx_node", None)
    value = node.meta.get("val")
    depends_on_values = value is not None and bool(free_unbacked_symbols(value))
    return depends_on_values or (is_unsafe is not None and bool(is_unsafe(node)))


def ends_at(graph: Any) -> tuple[str, int] | None:
    """Return the file and the line of the graph break that ends a graph of Dynamo; None if no break does."""
    reason = getattr(graph, "compile_subgraph_reason", None)
    stack = reason.user_stack if reason is not None and reason.graph_break else ()
    return (stack[-1].filename, stack[-1].lineno) if stack else None


def page_of_break(kind: str) -> tuple[str, str]:
    """Return PyTorch's number for a kind of graph break and the URL of its page; "" without one."""
    from torch._dynamo import exc

    find = getattr(exc, "get_gbid_documentation_link", None)
    url = (find(kind) if find is not None else None) or ""
    return url.rpartition("/")[2].partition(".")[0].upper(), url


def output_code(lowering: Any) -> str:
    """Return the Python that Inductor generates for a lowered graph."""
    code = lowering.codegen()[0]
    return str(getattr(code, "value", code))


def report_layouts(lowering: Any) -> None:
    """Report the layouts of a lowered forward graph's results to AOTAutograd, as Inductor does after compiling it: the
    backward graph is compiled for inputs with these layouts.
    """
    from torch._inductor.utils import set_tracing_context_output_strides  # pyright: ignore[reportUnknownVariableType]
    from torch.fx.experimental.symbolic_shapes import SymExprPrinter, free_unbacked_symbols

    strides: list[tuple[str, ...] | None] = []
    for output in lowering.graph_outputs or ():
        is_tensor = hasattr(output, "has_tensor_output") and output.has_tensor_output()
        stride = output.get_layout().stride if is_tensor else ()
        is_fixed = is_tensor and not free_unbacked_symbols(stride)
        strides.append(tuple(map(SymExprPrinter().doprint, stride)) if is_fixed else None)
    compiled: Any = SimpleNamespace(output_strides=strides)
    set_tracing_context_output_strides(lowering.example_inputs, compiled)


_OPTIONS = {
    "partition": ("_functorch", ("activation_memory_budget", "aggressive_recomputation", "recompute_views")),
    "inductor": ("_inductor", ("pattern_matcher", "joint_graph_constant_folding", "fallback_random", "freezing")),
}


def options_of(step: Literal["partition", "inductor"]) -> str:
    """Return the main options of a step of the compiler, as ` (activation_memory_budget=1.0, …)`."""
    package, names = _OPTIONS[step]
    config = import_module(f"torch.{package}.config")
    options = [f"{name}={getattr(config, name)!r}" for name in names if hasattr(config, name)]
    return f" ({', '.join(options)})" if options else ""


def memory_budget(budget: float) -> AbstractContextManager[Any]:
    """Limit the min-cut partitioner inside to a share, between 0 and 1, of the memory that it would use."""
    import torch._functorch.config as functorch_config

    return functorch_config.patch({"activation_memory_budget": budget})


@contextmanager
def without_cpu_libraries() -> Generator[None, None, None]:
    """Do not ask whether the libraries for convolutions on a CPU are fast for tensors of these sizes."""
    enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)  # `torch.backends.mkldnn.flags` sets others, too, which may warn
    try:
        with torch.backends.nnpack.flags(enabled=False):
            yield
    finally:
        torch._C._set_mkldnn_enabled(enabled)


@contextmanager
def uncached() -> Generator[None, None, None]:
    """Make Inductor compile inside without its caches, in this process, and in a folder that is removed afterwards."""
    import torch._functorch.config as functorch_config
    import torch._inductor.config as inductor_config

    wanted = {"force_disable_caches": True, "fx_graph_cache": False, "compile_threads": 1}
    inductor = {name: value for name, value in wanted.items() if hasattr(inductor_config, name)}
    aot = {"enable_autograd_cache": False} if hasattr(functorch_config, "enable_autograd_cache") else {}
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(ignore_cleanup_errors=True))
        stack.enter_context(mock.patch.dict(os.environ, {"TORCHINDUCTOR_CACHE_DIR": folder}))
        stack.enter_context(inductor_config.patch(inductor))
        stack.enter_context(functorch_config.patch(aot))
        yield


def both_graphs() -> AbstractContextManager[Any]:
    """Make AOTAutograd compile the backward graph together with the forward inside; does nothing without support."""
    import torch._functorch.config as functorch_config

    name = "force_non_lazy_backward_lowering"
    return functorch_config.patch({name: True}) if hasattr(functorch_config, name) else nullcontext()


@contextmanager
def as_if_compiling() -> Generator[None, None, None]:
    """Make `torch.compiler.is_compiling()` and `is_exporting()` true inside, if this torch has them."""
    flags = [f for f in ("_is_compiling_flag", "_is_exporting_flag") if hasattr(torch.compiler, f)]
    before = {flag: getattr(torch.compiler, flag) for flag in flags}
    try:
        for flag in flags:
            setattr(torch.compiler, flag, True)
        yield
    finally:
        for flag, value in before.items():
            setattr(torch.compiler, flag, value)


def unwrapped(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the tensor inside a wrapper of functorch or of functionalization; None for any other."""
    if torch._is_functional_tensor(tensor):
        return torch._from_functional_tensor(tensor)
    elem = getattr(tensor, "elem", None)
    if isinstance(elem, torch.Tensor):
        return elem
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):  # pyright: ignore[reportAttributeAccessIssue]
        return torch._C._functorch.get_unwrapped(tensor)  # pyright: ignore[reportAttributeAccessIssue]
    return None


def tensors_of_launch(
    kernel: Any, arguments: dict[str, Any], descriptors: Any
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the arguments that a Triton kernel reads, and those that it writes; none if this torch cannot tell."""
    from torch._higher_order_ops import triton_kernel_wrap

    identify = getattr(triton_kernel_wrap, "identify_accessed_tensors", None)
    if identify is None:
        return (), ()
    accesses = identify(kernel, dict(arguments), descriptors).read_writes
    return tuple(one.name for one in accesses.reads), tuple(one.name for one in accesses.writes)


@contextmanager
def launches_analyzed_once() -> Generator[None, None, None]:
    """Cache the analysis of a Triton kernel's writes inside, by the types and constants of its arguments."""
    from torch._higher_order_ops import triton_kernel_wrap

    results: dict[Any, Any] = {}

    def once(identify: Callable[..., Any]) -> Callable[..., Any]:
        def identified(kernel: Any, arguments: dict[str, Any], *rest: Any) -> Any:
            kinds = [(n, v.dtype if isinstance(v, torch.Tensor) else repr(v)) for n, v in arguments.items()]
            key = (identify, id(kernel), tuple(kinds), repr(rest))
            if key not in results:
                results[key] = identify(kernel, arguments, *rest)
            return results[key]

        return identified

    with ExitStack() as stack:
        for name in ("identify_accessed_tensors", "identify_mutated_tensors"):
            if (identify := getattr(triton_kernel_wrap, name, None)) is not None:
                stack.enter_context(mock.patch.object(triton_kernel_wrap, name, once(identify)))
        yield
