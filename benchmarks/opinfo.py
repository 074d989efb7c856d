"""Which operations of PyTorch's own test database become kernels that are right: `torch.testing`'s OpInfo.

    python benchmarks/opinfo.py [-k NAME] [--json] [--jobs N] [--seconds S]

Each operation is tried with some of the inputs that PyTorch tests it with, in float32 with gradients, int64 and bool.
The file of `operation(*tensors)` is generated, run under Triton's interpreter, and compared with float64. What only
views its input is copied, so that a kernel has to find the elements. Prints a line for each operation and a table:

    right           kernels of ours compute it, and no call of ATen does
    stays in ATen   right, with the calls that are named
    wrong           it is not what PyTorch computes, or no file could be written
    not traced      AOTAutograd does not make a graph of it

Linear algebra, Fourier transforms, convolutions, pooling, sparse and random operations are left out. Exits with 1 where
an operation is wrong. A sample that PyTorch itself refuses, or that writes into its inputs, does not count.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", TRITON_INTERPRET="1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "codegen"))

import torch
from interpreted import captured, compared, generated, loaded
from torch.utils import _pytree as pytree

from fx_lsp.codegen.file.module import GeneratedFile
from fx_lsp.codegen.graph.query import is_empty, is_view
from fx_lsp.codegen.ir.kernel import KernelLaunch

SAMPLES = {torch.float32: 6, torch.int64: 3, torch.bool: 2}
"""How many samples of each dtype an operation is tried with."""

LARGEST = 8000
"""Elements of the largest tensor of a sample."""

VERDICTS = ("right", "stays in ATen", "wrong", "not traced", "no sample")

LEFT_OUT = (
    *(
        "linalg.",
        "fft.",
        "sparse.",
        "signal.",
        "jiterator_",
        "torch.",
        "masked.median",
        "as_strided.partial",
        "nn.functional.conv",
    ),
    *("nn.functional.adaptive_", "nn.functional.avg_pool", "nn.functional.max_pool", "nn.functional.max_unpool"),
    *("nn.functional.fractional_", "nn.functional.dropout", "nn.functional.alpha_dropout", "max_pool2d"),
    *("nn.functional.feature_alpha", "nn.functional.rrelu", "nn.functional.ctc", "nn.functional.multi_head"),
    *("nn.functional.scaled_dot", "nn.functional.linear", "rand", "normal", "bernoulli", "cauchy", "exponential"),
    *("geometric", "log_normal", "multinomial", "uniform", "cholesky", "lu", "svd", "pca", "qr", "geqrf", "ormqr"),
    *("pinverse", "logdet", "matrix_exp", "triangular_solve", "stft", "istft", "to_sparse", "norm.nuc", "item"),
    *("broadcast_shapes", "empty", "new_empty", "resize_", "_segment_reduce", "histogram"),
)


@dataclass(frozen=True)
class Found:
    """What came of an operation: `detail` is what is wrong or stays, `samples` how many it was tried with."""

    name: str
    kind: str
    verdict: str
    detail: str = ""
    samples: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Sample:
    """A call of an operation: `function(*tensors)` returns a tuple of tensors."""

    text: str
    function: Callable[..., Any]
    tensors: tuple[torch.Tensor, ...]


def operations(part: str = "") -> list[Any]:
    """The operations of the database that are tried, those with `part` in their names."""
    from torch.testing._internal.common_methods_invocations import op_db

    named = [op for op in op_db if part in title(op)]
    return sorted((op for op in named if not title(op).startswith(LEFT_OUT)), key=title)


def title(op: Any) -> str:
    """The name of an operation with that of its variant."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def samples(op: Any) -> Iterator[Sample]:
    """Some calls of an operation that PyTorch accepts."""
    for dtype, most in SAMPLES.items():
        if dtype not in op.dtypes:
            continue
        gradients = bool(op.supports_autograd) and dtype.is_floating_point
        made = list(islice(op.sample_inputs("cpu", dtype, requires_grad=gradients), 200))
        usable = [s for s in made if _small((s.input, s.args, s.kwargs))]
        for number in spread(len(usable), most):
            sample = _sample(op, usable[number], f"{str(dtype).removeprefix('torch.')} {number}")
            if sample is not None:
                yield sample


def spread(count: int, most: int) -> list[int]:
    """At most so many of the numbers up to `count`, the first and the last among them."""
    if count <= most or most < 2:
        return list(range(min(count, most)))
    return sorted({round(i * (count - 1) / (most - 1)) for i in range(most)})


def _small(arguments: Any) -> bool:
    return all(t.numel() <= LARGEST for t in pytree.tree_leaves(arguments) if isinstance(t, torch.Tensor))


def _sample(op: Any, sample: Any, text: str) -> Sample | None:
    leaves, spec = pytree.tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def function(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            given[place] = tensor
        first, args, kwargs = pytree.tree_unflatten(given, spec)
        found = [o for o in pytree.tree_leaves(op.op(first, *args, **kwargs)) if isinstance(o, torch.Tensor)]
        return tuple(found)

    tensors = tuple(leaves[i].detach().requires_grad_(leaves[i].requires_grad) for i in places)
    try:
        outputs = function(*tensors)
    except Exception:
        return None
    return Sample(f"{text}: {_shown(sample)}", function, tensors) if places and outputs else None


def _shown(sample: Any) -> str:
    def show(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(map(show, value))}]"
        return repr(value)

    parts = [show(sample.input), *map(show, sample.args), *(f"{k}={show(v)}" for k, v in sample.kwargs.items())]
    return ", ".join(parts)


def tried(op: Any) -> Found:
    """What comes of an operation."""
    start = time.perf_counter()
    name, kind = title(op), type(op).__name__.removesuffix("Info").removesuffix("Ufunc") or "Other"
    verdicts: list[tuple[str, str]] = []
    for sample in samples(op):
        verdict, detail = verdict_of(sample)
        verdicts.append((verdict, f"{detail} [{sample.text}]" if verdict in ("wrong", "not traced") else detail))
    worst = next((v for v in ("wrong", "not traced", "stays in ATen", "right") if v in dict(verdicts)), "no sample")
    details = dict.fromkeys(d for v, d in verdicts if v == worst and d)
    detail = next(iter(details), "") if worst in ("wrong", "not traced") else ", ".join(details)
    if worst in ("wrong", "not traced"):
        detail += f" ({sum(v == worst for v, _ in verdicts)} of {len(verdicts)} samples)"
    tried_with = sum(v != "no sample" for v, _ in verdicts)
    return Found(name, kind, worst, detail, tried_with, round(time.perf_counter() - start, 1))


def verdict_of(sample: Sample) -> tuple[str, str]:
    """The verdict on one call, and why."""
    function = sample.function
    try:
        graphs = captured(function, sample.tensors)
    except Exception as error:
        return "not traced", _why(error)
    if graphs.changed:
        return "no sample", ""
    try:
        file = generated(graphs)
        if not _launches(file) and not _calls(file):
            function = _copied(sample.function)
            file = generated(captured(function, sample.tensors))
        module = loaded(file)
    except Exception as error:
        return "wrong", f"no file: {_why(error)}"
    try:
        problems = compared(module.f, function, sample.tensors)
    except Exception as error:
        return "wrong", f"does not run: {_why(error)}"
    if problems:
        return "wrong", "; ".join(problems)
    calls = _calls(file)
    return ("stays in ATen", ", ".join(calls)) if calls else ("right", "")


def _copied(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *tensors: tuple(o.clone() for o in function(*tensors))


def _launches(file: GeneratedFile) -> list[KernelLaunch]:
    return [s for p in file.programs for s in p.steps if isinstance(s, KernelLaunch)]


def _calls(file: GeneratedFile) -> list[str]:
    """The operations that a file calls as they are."""
    nodes = [s for p in file.programs for s in p.steps if not isinstance(s, KernelLaunch)]
    return list(dict.fromkeys(str(n.target) for n in nodes if not is_view(n) and not is_empty(n)))


def _why(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:160]}"


def _answer(op: Any, seconds: int, answers: Connection) -> None:
    signal.alarm(seconds)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
        answers.send(tried(op))


def all_found(ops: Sequence[Any], jobs: int, seconds: int) -> Iterator[Found]:
    """What comes of operations, each in a process of its own, which may crash or run for too long."""
    fork = multiprocessing.get_context("fork")
    pending, running = list(reversed(ops)), dict[Connection, tuple[Any, Any]]()
    while pending or running:
        while pending and len(running) < jobs:
            op = pending.pop()
            receive, send = fork.Pipe(duplex=False)
            process = fork.Process(target=_answer, args=(op, seconds, send))
            process.start()
            send.close()
            running[receive] = op, process
        for ready in wait(list(running)):
            assert isinstance(ready, Connection)
            op, process = running.pop(ready)
            try:
                yield ready.recv()
            except EOFError:
                process.join()
                late = process.exitcode == -signal.SIGALRM
                ended = f"runs for more than {seconds} seconds" if late else f"ends with {process.exitcode}"
                yield Found(title(op), type(op).__name__, "wrong", ended)
            process.join()


def table(found: Iterable[Found]) -> str:
    """How many operations of each kind have which verdict, in Markdown."""
    counts = Counter((f.kind, f.verdict) for f in found)
    kinds = sorted({kind for kind, _ in counts})
    rows = [["", *VERDICTS]]
    rows += [[kind, *(str(counts[kind, v] or "") for v in VERDICTS)] for kind in kinds]
    rows += [["all", *(str(sum(counts[kind, v] for kind in kinds)) for v in VERDICTS)]]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-k", metavar="NAME", default="", help="only operations with this in their names")
    parser.add_argument("--json", action="store_true", help="a JSON object for each operation, and no table")
    parser.add_argument("--jobs", type=int, default=2, help="how many processes at a time (2)")
    parser.add_argument("--seconds", type=int, default=60, help="after how many seconds an operation is given up (60)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    tried(operations("acosh")[0])  # what is imported and made once is there before the processes begin
    found: list[Found] = []
    for one in all_found(operations(args.k), args.jobs, args.seconds):
        found.append(one)
        text = f"{one.verdict:13} {one.name}  {one.detail}".rstrip()
        print(json.dumps(asdict(one)) if args.json else text, flush=True)
    if not args.json:
        print(f"\n{table(found)}")
    return int(any(f.verdict == "wrong" for f in found))


if __name__ == "__main__":
    sys.exit(main())
