"""Generate the results of the library from callables: AOTAutograd's graphs, or the model that an editor shows."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from fx_lsp.model import InputSpec, Stage, StageInfo, Trace
from fx_lsp.tracer.capture.aot import Captured, CaptureOptions, capture, stages
from fx_lsp.tracer.capture.graphs import saved_values
from fx_lsp.tracer.compat import min_cut_partition
from fx_lsp.tracer.failures.exceptions import failure_of, needs_value
from fx_lsp.tracer.library.fake_call import FakeCall, Options, check_result, tracing, with_results_apart
from fx_lsp.tracer.library.runnable_graphs import forward_and_backward_graphs, inference_graph
from fx_lsp.tracer.run.call import RUN_CODE, Call, tensors_in
from fx_lsp.tracer.run.observation import Run, Statements, watched_run
from fx_lsp.tracer.run.tensors import spec_of
from fx_lsp.tracer.stages.ledger import count_ops


def inference(fn: Callable[..., Any], example_inputs: Sequence[Any], options: Options) -> torch.fx.Graph:
    """Return the inference graph of `fn`. Raises ValueError if there is none, and the errors of `fn`."""
    _rehearse(fn, example_inputs, options, differentiate=False)
    with tracing(fn, example_inputs, options, differentiate=False, rehearsed=True) as fake_call:
        captured = _captured(fake_call, with_results_apart(fake_call), options)
        if captured.inference is None:
            raise ValueError(f"no graph was captured of {fake_call.origin.name}")
        return inference_graph(captured)


def forward_and_backward(
    fn: Callable[..., Any], example_inputs: Sequence[Any], options: Options
) -> tuple[torch.fx.Graph, torch.fx.Graph]:
    """Return both graphs of `fn`. Raises ValueError if there are none, and the errors of `fn`."""
    _rehearse(fn, example_inputs, options, differentiate=True)
    with tracing(fn, example_inputs, options, differentiate=True, rehearsed=True) as fake_call:
        name = fake_call.origin.name
        arguments = [tensor for _, tensor in fake_call.call.arguments()]
        if not any(tensor.requires_grad for tensor in [*arguments, *(h.tensor for h in fake_call.call.held())]):
            raise ValueError(f"nothing is differentiable: no input or parameter of {name} requires a gradient")
        captured = _captured(fake_call, with_results_apart(fake_call), options)
        if captured.inference is not None:
            raise ValueError(
                f"nothing is differentiable: no result of {name} depends on an input that requires a gradient "
                "(tensors that are not inputs are constants: pass them as inputs, or pass their module)"
            )
        if captured.forward is None or captured.backward is None:
            raise ValueError(f"no graph was captured of {name}")
        return forward_and_backward_graphs(captured, fake_call.apart)


def traced(fn: Callable[..., Any], inputs: Sequence[Any], options: Options) -> tuple[Trace, tuple[Stage, ...]]:
    """Return the model of a call and its stages, as for an editor.

    Raises ValueError, and the errors of `fn` and AOTAutograd.
    """
    started = time.perf_counter()
    run, touched = _watched(fn, inputs, options)
    with tracing(fn, inputs, options, differentiate=True, rehearsed=True) as fake_call, fake_call.lifted(touched):
        try:
            captured = _captured(fake_call, fake_call.call, options, unrolled=False)
        except RuntimeError as error:
            captured = _captured(fake_call, fake_call.call, options, unrolled=False, differentiate=False)
            captured.refuse(error)
        shown = tuple(stages(captured))
        assert captured.names is not None
        saved = saved_values(captured.saved, captured.backward, captured.names) if captured.backward is not None else []
        symbols = fake_call.conditions.symbols
        results = shown[0] if captured.inference is not None else shown[1]
        specs = {node.name: node.spec for node in results.nodes}
        trace = Trace(
            target=fake_call.origin.target,
            inputs=tuple(_input_specs(fake_call.call)),
            stages=tuple(StageInfo(s.name, count_ops(s), len(s.nodes)) for s in shown),
            saved=tuple(saved),
            values=tuple(run.values),
            outputs=tuple(specs.get(name) or "" for name in results.nodes[-1].inputs[: len(captured.outputs)]),
            seconds=time.perf_counter() - started,
            torch=torch.__version__,
            notes=captured.notes,
            remarks=symbols.remarks() if symbols is not None else (),
            refused=captured.refused,
        )
    return trace, shown


def _rehearse(fn: Callable[..., Any], example_inputs: Sequence[Any], options: Options, differentiate: bool) -> None:
    """Run `fn` on fake tensors, to raise its errors directly, and to check its results and writes."""
    with tracing(fn, example_inputs, options, differentiate, rehearsed=False) as fake_call:
        with _explained(fake_call), fake_call.refusing_shared_writes(), fake_call.mode:
            result = fake_call.call.run()
        check_result(result, fake_call.origin.name)


def _watched(fn: Callable[..., Any], inputs: Sequence[Any], options: Options) -> tuple[Run, frozenset[int]]:
    """Run `fn`; return the values of its expressions, and the ids of the real tensors that the code reads itself."""
    with tracing(fn, inputs, options, differentiate=True, rehearsed=False) as fake_call:
        fake_call.stand_ins.writable = True
        origin = fake_call.origin
        statements = Statements(origin.tree, origin.file) if sys.gettrace() is None else None  # debuggers trace as well
        with fake_call.refusing_shared_writes(), fake_call.mode:
            run = watched_run(fake_call.sources, fake_call.call.run, RUN_CODE, statements)
        if run.error is not None:
            with _explained(fake_call):
                raise run.error
        return run, frozenset(fake_call.stand_ins.touched)


def _captured(
    fake_call: FakeCall, call: Call, options: Options, unrolled: bool = True, differentiate: bool = True
) -> Captured:
    with _explained(fake_call):
        how = CaptureOptions(
            differentiate,
            fake_call.symbolic,
            options.table(),
            options.partition_fn or min_cut_partition,
            unrolled,
        )
        return capture(call, fake_call.sources, fake_call.names(), how)


@contextmanager
def _explained(fake_call: FakeCall) -> Generator[None, None, None]:
    """Convert errors on unavailable values of tensors to ValueError with the place; other errors pass."""
    try:
        yield
    except Exception as error:
        if not needs_value(error):
            raise
        failure = failure_of(error, fake_call.sources, None, list(fake_call.origin.lines), "information")
        where = f" ({failure.span.file}:{failure.span.line})" if failure.span is not None else ""
        raise ValueError(f"no graph was captured: {failure.message}{where}") from error


def _input_specs(call: Call) -> Iterator[InputSpec]:
    for name, value in zip(call.parameter_names, call.args, strict=True):
        tensors = list(tensors_in(value, name))
        for path, tensor in tensors:
            yield InputSpec(path, str(spec_of(tensor)), "call site")
        if not tensors:
            yield InputSpec(name, repr(value), "call site")
