"""What the library returns of a callable: AOTAutograd's graphs themselves, or the model that an editor shows."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from fx_lsp.model import InputSpec, Stage, StageInfo, Trace
from fx_lsp.tracer.capture.aot import Captured, capture, stages
from fx_lsp.tracer.capture.graphs import saved_values
from fx_lsp.tracer.compat import min_cut_partition
from fx_lsp.tracer.failures.exceptions import failure_of, needs_value
from fx_lsp.tracer.library.fake_call import Options, Prepared, check_result, tracing, with_results_apart
from fx_lsp.tracer.library.runnable_graphs import forward_and_backward_graphs, inference_graph
from fx_lsp.tracer.run.call import RUN_CODE, Call, tensors_in
from fx_lsp.tracer.run.observation import Run, Statements, watched_run
from fx_lsp.tracer.run.tensors import spec_of
from fx_lsp.tracer.stages.ledger import count_ops


def inference(fn: Callable[..., Any], example_inputs: Sequence[Any], options: Options) -> torch.fx.Graph:
    """The inference graph of `fn`. Raises ValueError where there is none, and what `fn` raises."""
    _rehearse(fn, example_inputs, options, differentiate=False)
    with tracing(fn, example_inputs, options, differentiate=False, rehearsed=True) as prepared:
        captured = _captured(prepared, with_results_apart(prepared), options)
        if captured.inference is None:
            raise ValueError(f"no graph was captured of {prepared.origin.name}")
        return inference_graph(captured)


def forward_and_backward(
    fn: Callable[..., Any], example_inputs: Sequence[Any], options: Options
) -> tuple[torch.fx.Graph, torch.fx.Graph]:
    """Both graphs of `fn`. Raises ValueError where there are none, and what `fn` raises."""
    _rehearse(fn, example_inputs, options, differentiate=True)
    with tracing(fn, example_inputs, options, differentiate=True, rehearsed=True) as prepared:
        name = prepared.origin.name
        given = [tensor for _, tensor in prepared.call.arguments()]
        if not any(tensor.requires_grad for tensor in [*given, *(h.tensor for h in prepared.call.held())]):
            raise ValueError(f"nothing is differentiable: no input or parameter of {name} requires a gradient")
        captured = _captured(prepared, with_results_apart(prepared), options)
        if captured.inference is not None:
            raise ValueError(
                f"nothing is differentiable: no result of {name} depends on an input that requires a gradient "
                "(tensors that the code finds by itself are constants: pass them as inputs, or pass their module)"
            )
        if captured.forward is None or captured.backward is None:
            raise ValueError(f"no graph was captured of {name}")
        return forward_and_backward_graphs(captured, prepared.apart)


def traced(fn: Callable[..., Any], inputs: Sequence[Any], options: Options) -> tuple[Trace, tuple[Stage, ...]]:
    """The model of a call and its stages, as for an editor. Raises what `fn` or AOTAutograd raises, and ValueError."""
    started = time.perf_counter()
    run, touched = _watched(fn, inputs, options)
    with tracing(fn, inputs, options, differentiate=True, rehearsed=True) as prepared, prepared.lifted(touched):
        try:
            captured = _captured(prepared, prepared.call, options, unrolled=False)
        except RuntimeError as error:
            captured = _captured(prepared, prepared.call, options, unrolled=False, differentiate=False)
            captured.refuse(error)
        found = tuple(stages(captured))
        assert captured.names is not None
        saved = saved_values(captured.saved, captured.backward, captured.names) if captured.backward is not None else []
        symbols = prepared.conditions.symbols
        results = found[0] if captured.inference is not None else found[1]
        specs = {node.name: node.spec for node in results.nodes}
        trace = Trace(
            target=prepared.origin.target,
            inputs=tuple(_input_specs(prepared.call)),
            stages=tuple(StageInfo(s.name, count_ops(s), len(s.nodes)) for s in found),
            saved=tuple(saved),
            values=tuple(run.values),
            outputs=tuple(specs.get(name) or "" for name in results.nodes[-1].inputs[: len(captured.outputs)]),
            seconds=time.perf_counter() - started,
            torch=torch.__version__,
            notes=captured.notes,
            remarks=symbols.remarks() if symbols is not None else (),
            refused=captured.refused,
        )
    return trace, found


def _rehearse(fn: Callable[..., Any], example_inputs: Sequence[Any], options: Options, differentiate: bool) -> None:
    """A run on fake tensors that shows errors of `fn` as they are, what it returns, and what it writes into."""
    with tracing(fn, example_inputs, options, differentiate, rehearsed=False) as prepared:
        with _explained(prepared), prepared.refusing_shared_writes(), prepared.mode:
            result = prepared.call.run()
        check_result(result, prepared.origin.name)


def _watched(fn: Callable[..., Any], inputs: Sequence[Any], options: Options) -> tuple[Run, frozenset[int]]:
    """A run that shows what expressions hold, and the ids of the real tensors that the code finds by itself."""
    with tracing(fn, inputs, options, differentiate=True, rehearsed=False) as prepared:
        prepared.stand_ins.writable = True
        origin = prepared.origin
        statements = Statements(origin.tree, origin.file) if sys.gettrace() is None else None  # debuggers trace as well
        with prepared.refusing_shared_writes(), prepared.mode:
            run = watched_run(prepared.sources, prepared.call.run, RUN_CODE, statements)
        if run.error is not None:
            with _explained(prepared):
                raise run.error
        return run, frozenset(prepared.stand_ins.touched)


def _captured(
    prepared: Prepared, call: Call, options: Options, unrolled: bool = True, differentiate: bool = True
) -> Captured:
    with _explained(prepared):
        return capture(
            call,
            prepared.sources,
            prepared.names(),
            differentiate=differentiate,
            symbolic=prepared.symbolic,
            decompositions=options.table(),
            partition_fn=options.partition_fn or min_cut_partition,
            unrolled=unrolled,
        )


@contextmanager
def _explained(prepared: Prepared) -> Generator[None, None, None]:
    """Code that needs the values of tensors is a ValueError that says where; other errors are as they are."""
    try:
        yield
    except Exception as error:
        if not needs_value(error):
            raise
        failure = failure_of(error, prepared.sources, None, list(prepared.origin.lines), "information")
        where = f" ({failure.span.file}:{failure.span.line})" if failure.span is not None else ""
        raise ValueError(f"no graph was captured: {failure.message}{where}") from error


def _input_specs(call: Call) -> Iterator[InputSpec]:
    for name, value in zip(call.parameter_names, call.args, strict=True):
        tensors = list(tensors_in(value, name))
        for path, tensor in tensors:
            yield InputSpec(path, str(spec_of(tensor)), "call site")
        if not tensors:
            yield InputSpec(name, repr(value), "call site")
