"""Times generated kernels on a GPU, against eager PyTorch, torch.compile and the time that the bytes need.

    python benchmarks/kernels.py generate FOLDER     # anywhere: the files for the functions of targets/kernels.py
    python benchmarks/kernels.py measure FOLDER      # where the GPU is: torch and triton are enough

Milliseconds, each the median of replays of a CUDA graph, so that launches cost nothing; `wall` is the same from Python.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

TARGETS = Path(__file__).parent / "targets" / "kernels.py"
NAMES = (
    "bias_gelu",
    "swiglu",
    "rms_norm",
    "add_rms_norm",
    "layer_norm",
    "softmax",
    "cross_entropy",
    "rope",
    "lif",
    "linear_gelu",
    "attention",
)
COMPUTE = ("linear_gelu", "attention")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("generate", "measure"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("-k", dest="only", default="", help="names to take, with commas between")
    parser.add_argument("--peers", default="eager,compile,max-autotune", help="what to compare with")
    parser.add_argument("--json", type=Path, help="where to write all numbers")
    arguments = parser.parse_args()
    names = [n for n in NAMES if not arguments.only or n in arguments.only.split(",")]
    if arguments.what == "generate":
        return generate(names, arguments.folder)
    if len(names) > 1:
        return measure_apart(names, arguments)
    return measure(names, arguments.folder, [p for p in arguments.peers.split(",") if p], arguments.json)


def generate(names: list[str], folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name in names:
        command = [sys.executable, "-m", "fx_lsp", "kernel", f"{TARGETS}::{name}", "-o", str(folder / f"{name}.py")]
        failed += subprocess.run(command, check=False).returncode != 0
    return failed


def measure_apart(names: list[str], arguments: argparse.Namespace) -> int:
    """Each function in a process of its own: an error on the GPU ends a process for good."""
    rows: dict[str, dict[str, Any]] = {}
    peers = [p for p in arguments.peers.split(",") if p]
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            output = Path(scratch) / f"{name}.json"
            command = [
                sys.executable,
                __file__,
                "measure",
                str(arguments.folder),
                "-k",
                name,
                "--peers",
                arguments.peers,
            ]
            subprocess.run([*command, "--json", str(output)], check=False)
            rows |= json.loads(output.read_text()) if output.exists() else {name: {"error": "the process ended"}}
    table(rows, ["ours", *peers])
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=1))
    return sum("error" in row for row in rows.values())


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"generated_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def inputs_of(name: str) -> list[Any]:
    """Random inputs as the comment over the function says."""
    import torch

    lines = TARGETS.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(f"def {name}("))
    comment = next(line for line in reversed(lines[:at]) if line.startswith("# fx:")).removeprefix("# fx:")
    made: list[Any] = []
    for part in comment.replace("],", "]|").split("|"):
        spec = part.partition("=")[2].strip()
        sizes = [int(s) for s in spec[spec.index("[") + 1 : -1].split(",")]
        if spec.startswith("i64"):
            made.append(torch.randint(0, 128256, sizes, device="cuda"))
        else:
            made.append(torch.randn(sizes, device="cuda").bfloat16().requires_grad_())
    return made


def tensors(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


def measure(names: list[str], folder: Path, peers: list[str], output: Path | None) -> int:
    import torch

    torch.set_float32_matmul_precision("high")
    torch.cuda.set_stream(torch.cuda.Stream())  # autograd remembers streams, and the default one cannot be captured
    original = load(TARGETS)
    bandwidth = copy_bandwidth()
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}, copies at {bandwidth / 1e12:.2f} TB/s")
    rows: dict[str, dict[str, Any]] = {}
    wrong = 0
    for name in names:
        started = time.time()
        row: dict[str, Any] = {}
        rows[name] = row
        try:
            function = getattr(original, name)
            inputs = inputs_of(name)
            row["right"] = None
            candidates: dict[str, Callable[..., Any]] = {"ours": getattr(load(folder / f"{name}.py"), name)}
            difference = compare(candidates["ours"], function, inputs)
            row["right"] = difference
            for peer in peers:
                torch._dynamo.reset()
                mode = None if peer == "compile" else "max-autotune-no-cudagraphs"
                candidates[peer] = function if peer == "eager" else torch.compile(function, mode=mode)
            row["floor"] = None if name in COMPUTE else moved(function, inputs) / bandwidth * 1e3
            for label, candidate in candidates.items():
                row[label] = times(candidate, inputs)
        except Exception as error:
            row["error"] = f"{type(error).__name__}: {str(error)[:300]}"
            wrong += 1
        row["seconds"] = time.time() - started
        print(name, json.dumps(row), flush=True)
        torch.cuda.empty_cache()
    if output is None:
        table(rows, ["ours", *peers])
    else:
        output.write_text(json.dumps(rows, indent=1))
    return wrong


def compare(candidate: Callable[..., Any], function: Callable[..., Any], inputs: list[Any]) -> str:
    """The greatest error of outputs and gradients, relative to the norm of the right ones in float32."""
    import torch

    def run(f: Callable[..., Any], values: list[Any]) -> list[Any]:
        out = tensors(f(*values))
        torch.manual_seed(0)
        given = [torch.randn(o.shape, device="cuda").to(o.dtype) for o in out]
        wanted = [v for v in values if v.requires_grad]
        return [*out, *torch.autograd.grad(out, wanted, given)]

    exact = [v.detach().float().requires_grad_() if v.is_floating_point() else v for v in inputs]
    found, right, eager = run(candidate, inputs), run(function, exact), run(function, inputs)
    errors = []
    for a, b, c in zip(found, right, eager, strict=True):
        scale = b.float().norm() + 1e-20
        errors.append((float((a.float() - b.float()).norm() / scale), float((c.float() - b.float()).norm() / scale)))
    return " ".join(f"{a:.1e}/{b:.1e}" for a, b in errors)


def times(function: Callable[..., Any], inputs: list[Any]) -> dict[str, float]:
    """Milliseconds of forward, and of forward with backward: in a CUDA graph, and from Python."""
    import torch
    import triton.testing

    plain = [v.detach() for v in inputs]
    out = tensors(function(*inputs))
    given = [torch.randn_like(o) for o in out]
    wanted = [v for v in inputs if v.requires_grad]

    def forward() -> None:
        with torch.no_grad():
            function(*plain)

    def both() -> None:
        torch.autograd.grad(tensors(function(*inputs)), wanted, given)

    found: dict[str, float] = {}
    for label, run in (("forward", forward), ("both", both)):
        run()
        torch.cuda.synchronize()
        found[label] = replayed(run)
        found[f"{label} wall"] = triton.testing.do_bench(run, warmup=20, rep=60, return_mode="median")
    return found


def replayed(run: Callable[[], None], times: int = 10, replays: int = 15) -> float:
    """Milliseconds of one run, where a CUDA graph holds several."""
    import torch

    for _ in range(3):
        run()
    torch.cuda.synchronize()
    stream = torch.cuda.current_stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        for _ in range(times):
            run()
    graph.replay()
    found: list[float] = []
    for _ in range(replays):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        found.append(start.elapsed_time(end) / times)
    return statistics.median(found)


def moved(function: Callable[..., Any], inputs: list[Any]) -> int:
    """The bytes of all inputs and outputs of a forward call."""
    import torch

    with torch.no_grad():
        out = tensors(function(*inputs))
    return sum(t.numel() * t.element_size() for t in (*inputs, *out))


def copy_bandwidth() -> float:
    """Bytes per second that a kernel reads and writes that only negates numbers."""
    import torch

    source = torch.randn(1 << 29, device="cuda").bfloat16()
    target = torch.empty_like(source)
    return 4 * source.numel() / replayed(lambda: torch.neg(source, out=target)) * 1e3


def table(rows: dict[str, dict[str, Any]], labels: list[str]) -> None:
    for what in ("forward", "both"):
        print(f"\n{what:<14} {'floor':>7} " + " ".join(f"{label[:12]:>12}" for label in labels) + "   best peer / ours")
        ratios = []
        for name, row in rows.items():
            floor = row.get("floor")
            cells = [row.get(label, {}).get(what, math.nan) for label in labels]
            best = min((c for c in cells[1:] if not math.isnan(c)), default=math.nan)
            ratio = best / cells[0] if cells[0] else math.nan
            ratios.append(ratio)
            shown = f"{floor:7.3f}" if floor and what == "forward" else "      –"
            print(f"{name:<14} {shown} " + " ".join(f"{c:12.3f}" for c in cells) + f"   {ratio:6.2f}")
        known = [r for r in ratios if not math.isnan(r)]
        if known:
            print(f"geometric mean of best peer / ours: {math.exp(sum(map(math.log, known)) / len(known)):.2f}")


if __name__ == "__main__":
    sys.exit(main())
