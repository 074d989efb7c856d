"""Answer the runner's requests in the process of a variant: facts, setup, measure, profile."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fx_lsp import wire
from fx_lsp.bench.variant import checking, measuring, tuning
from fx_lsp.bench.variant.calls import Calls, set_count
from fx_lsp.bench.variant.comparison import Function
from fx_lsp.bench.variant.devices import Device, device, free_bytes, now
from fx_lsp.bench.variant.guarding import PatchGuard
from fx_lsp.bench.variant.subject import BenchmarkSubject, NotComparable, is_interpreted, opened
from fx_lsp.bench.variant.variants import NotHere, Variant, first_line, variant
from fx_lsp.measured import Rival, What

Request = dict[str, Any]


@dataclass
class PreparedVariant:
    """Hold a variant that is set up. `calls` are created at the first measurement."""

    where: Device
    subject: BenchmarkSubject
    variant: Variant
    function: Function
    guard: PatchGuard
    what: tuple[What, ...]
    calls: list[Calls] = field(default_factory=list[Calls])


def answering(send: Callable[[dict[str, Any]], None]) -> Callable[[Request], dict[str, Any]]:
    """Return a function that answers requests; it sends progress meanwhile, and marks the beginning and end of a
    measurement.
    """
    variants: list[PreparedVariant] = []

    def say(text: str) -> None:
        send({"progress": text})

    def answer(request: Request) -> dict[str, Any]:
        try:
            if request["do"] == "facts":
                return _facts(request, say)
            if request["do"] == "setup":
                variants.append(_setup(request, say))
                return _checked(variants[-1])
            if request["do"] == "measure":
                return _measured(variants[-1], request, lambda: send({"mark": True}))
            if request["do"] == "forget":
                tuning.forget(variants[-1].subject.module)
                return {}
            from fx_lsp.bench.variant import profiling

            if request["do"] == "lines":
                return {"lines": profiling.lines(variants[-1].where, _calls(variants[-1], 1), request["what"])}
            if request["do"] == "profile":
                return {"kernels": profiling.kernels(variants[-1].where, _calls(variants[-1], 1), request["what"])}
            profiled = _setup(request, say)
            profiling.once(profiled.where, _calls(profiled, 1), request["what"][0])
            return {}
        except (NotHere, NotComparable) as why:
            return {"error": str(why)}
        except ModuleNotFoundError as error:
            return {"error": f"{error.name} is not installed in this Python."}
        except Exception as error:  # any exception of a variant becomes its row's sentence
            return {"error": first_line(error), "crashed": True}

    return answer


def _facts(request: Request, say: Callable[[str], None]) -> dict[str, Any]:
    """Return versions, the GPU, its ceilings, and the needs of each case."""
    from fx_lsp.bench.variant import ceilings

    has_gpu = torch.cuda.is_available()
    if request["device"] == "cuda" and not has_gpu:
        return {"error": "torch finds no CUDA device.", "hint": _why_no_gpu()}
    where = device(request["device"] or ("cuda" if has_gpu else "cpu"))
    sys.path += request["paths"]  # after all others: a user's module must not shadow one of Python's
    facts: dict[str, Any] = {"device": where.kind, "torch": torch.__version__, "threads": torch.get_num_threads()}
    if where.kind == "cuda":
        free, total = torch.cuda.mem_get_info()
        facts |= {"gpu": torch.cuda.get_device_name(), "memory_free": free, "memory_total": total}
        facts["cuda"] = torch.version.cuda or torch.version.hip or ""
    with suppress(ImportError):
        import triton

        facts["triton"] = triton.__version__
    costs: list[Any] = []
    rates = None
    try:
        for number, (label, file) in enumerate(request["cases"]):
            subject = opened(Path(file), where.kind, kernels=False)
            if not number and request["ceilings"]:
                say("copy bandwidth and matrix products")
                rates = ceilings.ceilings(where, subject)
            costs += [wire.to_json(c) for c in ceilings.costs(subject, label, tuple(request["what"]))]
    except NotComparable:
        raise
    except Exception as error:  # the original's own error: every variant reports it then
        facts["warning"] = f"Its minimum work is unknown: {first_line(error)}"
    return {**facts, "costs": costs, "ceilings": wire.to_json(rates)}


def _why_no_gpu() -> str:
    if torch.version.cuda is None and torch.version.hip is None:
        return "This torch is built for the CPU: install a build for CUDA."
    return "Check nvidia-smi there, and whether CUDA_VISIBLE_DEVICES hides the GPU."


def _setup(request: Request, say: Callable[[str], None]) -> PreparedVariant:
    where = device(request["device"])
    sys.path += request["paths"]
    row = variant(request["variant"], tuple(wire.from_json(Rival, r) for r in request["rivals"]))
    if row.compiles or row.strange:
        tuning.watch(say, inductor=row.compiles)
    if "backward" in request["what"]:
        with suppress(ImportError, AttributeError):
            from torch._functorch import config

            config.donated_buffer = False  # a CUDA graph of backward alone keeps its inputs
    if row.kernels and where.kind == "cpu":
        with suppress(ImportError):  # then the file reports it itself
            from fx_lsp.numerics import interpreter

            interpreter.repair()
    guard = PatchGuard()
    say("load")
    subject = opened(Path(request["file"]), where.kind, row.kernels)
    function = row.build(subject, where.kind)
    say("compile and check")
    return PreparedVariant(where, subject, row, function, guard, tuple(request["what"]))


def _checked(prepared: PreparedVariant) -> dict[str, Any]:
    started = now()
    wrong = checking.verdicts(prepared.subject, prepared.function, prepared.where, prepared.variant.strange)
    wrong += _replaced(prepared)
    interpreted = prepared.variant.kernels and is_interpreted(prepared.subject.module)
    peak = 0
    gc.collect()
    gc.freeze()  # existing objects stay: from now on, collecting takes no time
    if prepared.where.kind == "cuda":
        torch.cuda.empty_cache()
        peak = torch.cuda.max_memory_reserved()
    clocks = [c for c in prepared.where.clocks if c != "graph" or prepared.variant.captured]
    return {
        "verdicts": wrong,
        "clocks": [] if interpreted or wrong else clocks,
        "reason": "It runs in Triton's interpreter: checked, not timed." if interpreted and not wrong else "",
        "seconds": (now() - started) / 1e9,
        "warnings": _graph_breaks(),
        "free": free_bytes(prepared.where),
        "peak": peak,
    }


def _measured(prepared: PreparedVariant, request: Request, mark: Callable[[], None]) -> dict[str, Any]:
    calls = _calls(prepared, request["bytes"])
    calls.renew()
    timed = measuring.TimedCalls(prepared.where, calls, request["what"])
    samples = measuring.measure(timed, request["clock"], request["seconds"], mark)
    wrong = checking.of_timed_call(calls, request["what"], samples.kept)
    if prepared.where.kind == "cuda":
        free, total = torch.cuda.mem_get_info()
        if free < total / 2:  # others measure on this GPU in turn
            torch.cuda.empty_cache()
    return {
        "samples": samples.milliseconds,
        "seconds": samples.seconds,
        "wrong": wrong,
        "verdicts": _replaced(prepared),
    }


def _calls(prepared: PreparedVariant, size: int) -> Calls:
    if not prepared.calls:
        sets, gradients = set_count(prepared.subject, prepared.where, size), set(prepared.what) != {"forward"}
        calls = Calls(prepared.subject, prepared.function, sets, gradients, random.SystemRandom())
        for what in prepared.what:
            measuring.settle(prepared.where, calls, what)
        prepared.calls.append(calls)
    return prepared.calls[0]


def _replaced(prepared: PreparedVariant) -> list[str]:
    return prepared.guard.verdicts() if prepared.variant.strange else []


def _graph_breaks() -> list[str]:
    if "torch._dynamo.utils" not in sys.modules:
        return []
    counters: Any = sys.modules["torch._dynamo.utils"].counters
    breaks = sum(counters["graph_break"].values())
    return [f"torch.compile breaks the graph at {breaks} place{'s' if breaks > 1 else ''}."] if breaks else []
