"""Check that a variant computes the same as the original, and has no other effects. A verdict is a sentence on an
error.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

import torch

from fx_lsp.bench.variant.calls import Calls, FillValues, bytes_of, leaves_of, scaled
from fx_lsp.bench.variant.comparison import Function, exact_results, results_of, tensors_in
from fx_lsp.bench.variant.devices import Device, event, now, record
from fx_lsp.bench.variant.measuring import TimedResults
from fx_lsp.bench.variant.subject import BenchmarkSubject
from fx_lsp.measured import What
from fx_lsp.numerics.rounding import judged

_LARGE = 100.0
"""Inputs times this factor must not overflow unless the original does."""
_POISONED_BYTES = 2 << 30
_LATE_SECONDS = 0.05
_LAGGING = 0.03
"""Milliseconds of work on other streams that are detected."""


def verdicts(subject: BenchmarkSubject, function: Function, where: Device, strange: bool) -> list[str]:
    """Return the errors of a function, on fresh random inputs; check a `strange` one more closely.

    Raises the function's exceptions.
    """
    wrong = _against_original(subject, function, _seed())
    if strange:
        wrong += _original_called(subject, function)
        wrong += _poisoned(subject, function, where)
        wrong += _reused(subject, function)
        wrong += _late(subject, function, where)
        wrong += _other_streams(subject, function, where)
        wrong += _others_than_tensors(subject, function)
        wrong += _overflows(subject, function)
    return [*dict.fromkeys(wrong)]


def of_timed_call(calls: Calls, what: What, kept: TimedResults) -> list[str]:
    """Return the errors in the results of a timed call."""
    calls.fill(kept.number, kept.values)
    right, exact = calls.reference(kept.number, what)
    wrong: list[str] = []
    if len(kept.results) != len(right):
        return [f"It returns {len(kept.results)} tensors, but should return {len(right)}."]
    for number, name in enumerate(calls.names(what, len(right))):
        values = [r[number] if r else None for r in (kept.results, right, exact)]
        if values[1] is None and values[0] is None:
            continue
        like = next(v for v in values if v is not None)  # no gradient means zeros
        mine, theirs = (torch.zeros_like(like) if v is None else v for v in values[:2])
        bad, off, far = judged(mine, theirs, values[2])
        if bad:
            wrong.append("In a timed call, " + _sentence(name, mine, theirs, off, far))
    return wrong


def _against_original(subject: BenchmarkSubject, function: Function, seed: int) -> list[str]:
    """Return the errors in outputs, gradients and inputs, compared with the original's.

    The function runs first, before correct results exist that it could copy.
    """
    results = results_of(function, subject.signature, *subject.make(seed))
    return _judged(subject, results, seed)


def _judged(subject: BenchmarkSubject, results: dict[str, torch.Tensor], seed: int) -> list[str]:
    right = results_of(subject.reference, subject.signature, *subject.make(seed))
    exact = exact_results(subject.reference, subject.signature, *subject.make(seed))
    wrong: list[str] = []
    for name in dict.fromkeys((*right, *results)):
        bad, off, far = judged(results.get(name), right.get(name), exact.get(name))
        if bad:
            wrong.append(_sentence(name, results.get(name), right.get(name), off, far))
    return wrong


def _sentence(name: str, result: torch.Tensor | None, right: torch.Tensor | None, off: float, far: float) -> str:
    if right is None:
        what = name.removesuffix(" afterwards")
        return f"It changes its input {what}." if what != name else f"It returns more than the original: {name}."
    if result is None:
        what = name.removesuffix(" afterwards")
        return f"It does not change its input {what}." if what != name else f"{name} is missing."
    if result.shape != right.shape or result.dtype != right.dtype:
        return f"{name} is {result.dtype} {tuple(result.shape)}, but should be {right.dtype} {tuple(right.shape)}."
    if result.is_floating_point() and bool((result.isnan() & ~right.isnan()).any()):
        return f"{name} has NaN where the original has numbers: the kernel did not write it, or it overflows."
    return f"{name} is wrong: off by {off:.1e}, while the original is off by {far:.1e}."


def _poisoned(subject: BenchmarkSubject, function: Function, where: Device) -> list[str]:
    """Compare while all free memory holds NaN."""
    seed = _seed()
    args, kwargs = subject.make(seed)
    sizes = [bytes_of([t]) for t in leaves_of(subject, args, kwargs).values()]
    with poisoned(where, sizes):
        results = results_of(function, subject.signature, args, kwargs)
    return _judged(subject, results, seed)


def _original_called(subject: BenchmarkSubject, function: Function) -> list[str]:
    """Check that it runs while the original refuses to, in every thread."""
    args, kwargs = subject.make(_seed())
    codes = {original: original.__code__ for original in subject.originals}
    try:
        for original, code in codes.items():
            original.__code__ = _refuse.__code__.replace(co_freevars=code.co_freevars)
        results_of(function, subject.signature, args, kwargs)
    except SystemExit as refusal:
        return [str(refusal)]
    finally:
        for original, code in codes.items():
            original.__code__ = code
    return []


def _refuse(*args: Any, **kwargs: Any) -> None:
    raise SystemExit("It calls the original.")  # code that handles every Exception does not handle this


def _reused(subject: BenchmarkSubject, function: Function) -> list[str]:
    """Check that new values at the same addresses, in the same objects, give new results."""
    what: What = "both" if _differentiable(subject) else "forward"
    calls = Calls(subject, function, 1, what == "both", random.SystemRandom())
    for values in (FillValues(0, 1.0), FillValues(1, 1.1)):
        calls.fill(0, values)
        results = calls.call(0, what, [])
        wrong = of_timed_call(calls, what, TimedResults(results, 0, values))
    return ["It ignores that the values of its inputs have changed."] if wrong else []


def _late(subject: BenchmarkSubject, function: Function, where: Device) -> list[str]:
    """Check that results do not change after the function returned."""
    args, kwargs = subject.make(_seed())
    results = [t.detach() for _, t in tensors_in(function(*args, **kwargs), "out")]
    soon = [t.clone() for t in results]
    where.synchronize()
    time.sleep(_LATE_SECONDS)
    same = all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(soon, results, strict=True))
    return [] if same else ["Its results change after it returned: it works on another stream or thread."]


def _other_streams(subject: BenchmarkSubject, function: Function, where: Device) -> list[str]:
    """Check that no work goes on elsewhere when the stream of the call has come to its end."""
    if where.kind != "cuda":
        return []
    args, kwargs = subject.make(_seed())
    none, some = _lag(where, lambda: None), _lag(where, lambda: function(*args, **kwargs))
    return [f"Work continues for {some:.2f} ms on another stream after the call."] if some > 3 * none + _LAGGING else []


def _lag(where: Device, run: Callable[[], object]) -> float:
    """Return the milliseconds for which the device is busy after the current stream is idle."""
    lags: list[float] = []
    for _ in range(15):
        where.synchronize()
        run()
        end = event()
        record(end)
        end.synchronize()
        begin = now()
        where.synchronize()
        lags.append((now() - begin) / 1e6)
    return median(lags)


def _others_than_tensors(subject: BenchmarkSubject, function: Function) -> list[str]:
    """Check that its results are ordinary tensors, like those of the original."""
    kinds: list[set[type]] = []
    for each in (function, subject.reference):
        args, kwargs = subject.make(_seed())
        kinds.append({type(t) for _, t in tensors_in(each(*args, **kwargs), "out")})
    others = kinds[0] - kinds[1] - {torch.Tensor, torch.nn.Parameter}
    return [
        f"It returns a {k.__name__}, which may compute its values later, instead of a plain tensor." for k in others
    ]


def _overflows(subject: BenchmarkSubject, function: Function) -> list[str]:
    """Check that large inputs give no infinities or NaN unless the original does."""
    seed = _seed()
    outputs, right = (
        [t for _, t in tensors_in(each(*args, **kwargs), "out")]
        for each in (function, subject.reference)
        for args, kwargs in [_large(subject, seed)]
    )
    for mine, theirs in zip(outputs, right, strict=True):
        if mine.is_floating_point() and bool((~mine.isfinite() & theirs.isfinite()).any()):
            return [f"For inputs {_LARGE:.0f} times as large, it has infinities or NaN where the original has numbers."]
    return []


def _large(subject: BenchmarkSubject, seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args, kwargs = subject.make(seed)
    calls = leaves_of(subject, args, kwargs).values()
    with torch.no_grad():
        for tensor in {id(t): t for t in calls if t.is_floating_point()}.values():
            scaled(tensor, _LARGE)
    return args, kwargs


def _differentiable(subject: BenchmarkSubject) -> bool:
    args, kwargs = subject.make(1)
    return any(t.requires_grad for t in leaves_of(subject, args, kwargs).values())


def _seed() -> int:
    return random.SystemRandom().randrange(1, 1 << 31)


@contextmanager
def poisoned(where: Device, sizes: Sequence[int]) -> Generator[None]:
    """Fill fresh memory inside with NaN or outliers: the results of `torch.empty`, and on a GPU the allocator's free
    memory, including blocks of these sizes in bytes.
    """
    if where.kind == "cuda":
        wanted = [s for s in (*(1 << n for n in range(9, 27, 2)), *sizes) if 0 < s < _POISONED_BYTES] * 3
        blocks = [torch.empty(s, dtype=torch.uint8, device="cuda").fill_(0xFF) for s in wanted]
        where.synchronize()
        del blocks
    deterministic = torch.are_deterministic_algorithms_enabled()
    settings: Any = torch.utils.deterministic
    filled = settings.fill_uninitialized_memory
    settings.fill_uninitialized_memory = True
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(deterministic)
        settings.fill_uninitialized_memory = filled
