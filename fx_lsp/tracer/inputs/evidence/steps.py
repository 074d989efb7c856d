"""How to get to a training step: run what comes before its loop, and take the function that the loop's body amounts to.

What the loop goes through says what it is called with, as far as that can be had on fake tensors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import islice
from types import FrameType, FunctionType, ModuleType
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from fx_lsp.model import CallSite, Failure, TraceRequest
from fx_lsp.steps import BATCHES
from fx_lsp.tracer.command_line import flags_parsed, started_as
from fx_lsp.tracer.compat import FakeTensorMode
from fx_lsp.tracer.failures import sentence
from fx_lsp.tracer.guards import forbid_effects
from fx_lsp.tracer.inputs.evidence.call_sites import modules_kept, new_module, prefer, statements_of, target_module
from fx_lsp.tracer.inputs.evidence.callers import Reached
from fx_lsp.tracer.inputs.evidence.offers import Offer
from fx_lsp.tracer.inputs.plan.plans import plan_of_made
from fx_lsp.tracer.time_limit import TimeUp, time_limit

SITE_SECONDS = 3.0
"""How long what comes before a loop may take."""
BATCH_SECONDS = 1.5
"""How long the first batch may take."""


def step_function(request: TraceRequest, module: ModuleType, mode: FakeTensorMode) -> FunctionType | Failure:
    """The function that the step of a request amounts to; call it inside the fake mode.

    `module` has run what the step needs of its file. One with batches comes before one without.
    """
    fallback = _made_in(module, request)
    troubles: list[str] = []
    for site in request.sites:
        with modules_kept((request.module, site.imported, site.module)):
            function = _made_at(request, site, mode, troubles)
        if function is not None and (fallback is None or _first_batch(function) is not None):
            return function
    if fallback is not None:
        return fallback
    around = request.name.rpartition(".")[0]
    why = troubles[-1] if troubles else f"no call of {around} was found"
    return Failure("inputs", f"what {around} has before the loop cannot be run: {why}")


def _made_in(module: ModuleType, request: TraceRequest) -> FunctionType | None:
    """The function where a module has it at its top level."""
    found = vars(module).get(request.name)
    return found if isinstance(found, FunctionType) else None


def _made_at(request: TraceRequest, site: CallSite, mode: FakeTensorMode, troubles: list[str]) -> FunctionType | None:
    """The function as it is made where a call site gets to its loop; `troubles` gets what stops it before."""
    seen: list[FunctionType] = []
    name = request.name.rpartition(".")[2]

    def is_it(function: FunctionType) -> bool:
        code = function.__code__
        return code.co_name == name and code.co_filename == request.file and code.co_firstlineno == request.step

    def look(frame: FrameType, event: str, value: Any) -> None:
        if event == "return" and isinstance(value, FunctionType) and is_it(value):
            seen.append(value)
            raise Reached

    module = new_module(request, site)
    try:
        with ExitStack() as stack:
            stack.enter_context(forbid_effects())
            stack.enter_context(started_as(site.file))
            stack.enter_context(time_limit(SITE_SECONDS))
            target = target_module(request, site, mode) if site.file != request.file else None
            for code, imports in statements_of(request, site):
                with _profiled(look), forbid_effects(network_only=imports):
                    exec(code, module.__dict__)
                if imports:
                    flags_parsed()
                if imports and target is not None:
                    prefer(target, module)
            if site.then:
                with _profiled(look):
                    eval(site.then, module.__dict__)
    except Reached:
        return seen[0]
    except TimeUp:
        troubles.append("it takes too long")
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        troubles.append(sentence(error))
    return _made_in(module, request)


@contextmanager
def _profiled(look: Callable[[FrameType, str, Any], None]) -> Generator[None, None, None]:
    before = sys.getprofile()
    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(before)


def seen_in_loop(function: Any) -> Iterator[Offer]:
    """The first batch of the loop that a function was the body of, where it can be had."""
    batch = _first_batch(function)
    if batch is not None:
        detail = f"line {function.__code__.co_firstlineno}"
        yield Offer({name: plan_of_made(value, "call site", detail) for name, value in batch.items()})


def _first_batch(function: Any) -> Mapping[str, Any] | None:
    """What the first turn of a loop binds; None where that needs data which is not there. Computed once."""
    batches = getattr(function, BATCHES, None)
    if not callable(batches):
        return batches
    batch = None
    try:
        with forbid_effects(), time_limit(BATCH_SECONDS), _one_batch_each():
            batch = next(iter(batches()), None)
    except KeyboardInterrupt:
        raise
    except BaseException:
        batch = None
    setattr(function, BATCHES, batch)
    return batch


@contextmanager
def _one_batch_each() -> Generator[None, None, None]:
    """Inside, a loader has one batch, of its first samples, that it draws in this process."""
    kind: Any = DataLoader
    original = kind.__iter__
    kind.__iter__ = _first_samples
    try:
        yield
    finally:
        kind.__iter__ = original


def _first_samples(loader: DataLoader[Any]) -> Iterator[Any]:
    dataset: Any = loader.dataset
    size = loader.batch_size
    if isinstance(dataset, IterableDataset):
        samples = list(islice(iter(dataset), size or 1))
    elif size is None and loader.batch_sampler is not None:
        samples = [dataset[index] for index in next(iter(loader.batch_sampler))]
    else:
        samples = [dataset[index] for index in range(min(len(dataset), size or 1))]
    yield loader.collate_fn(samples if size is not None or loader.batch_sampler is not None else samples[0])
