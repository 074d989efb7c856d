"""Plain data of a benchmark: the job, its progress, the measurements. Standard library only.

Times are milliseconds of one call; `seconds` are seconds. An unknown fact is "" for text and None for a number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

EAGER = "eager"
KERNELS = "kernels"
INDUCTOR_KERNELS = "inductor-kernels"
COMPILE = "compile"
MAX_AUTOTUNE = "compile max-autotune"
VARIANTS = (
    EAGER,
    "symbolic_trace",
    "torchscript",
    COMPILE,
    "compile reduce-overhead",
    MAX_AUTOTUNE,
    "compile cudagraphs",
    KERNELS,
    INDUCTOR_KERNELS,
)
"""The forms that a target runs in, in the order of tables. Rivals follow, under their own names."""

What = Literal["forward", "backward", "both"]
WHATS: tuple[What, ...] = ("forward", "backward", "both")

Clock = Literal["graph", "events", "wall"]
CLOCKS: tuple[Clock, ...] = ("graph", "events", "wall")
"""The kinds of clocks. `graph`: replays on the GPU of a CUDA graph of calls on rotating inputs; `events`: each call on
the GPU with a cold L2 cache; `wall`: the host's clock, including launches. Two variants are compared by the first
clock that both have.
"""


@dataclass(frozen=True)
class BenchmarkCase:
    """Hold one generated file, as text. A sweep has several, distinguished by their `label` ("N=1024").

    `others` are further files for the same function, by the names of their variants, such as `INDUCTOR_KERNELS`.
    """

    label: str
    file: str
    others: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Rival:
    """Hold a function written by hand, `package.module:function`, called like the original."""

    name: str
    target: str


MODULES_FOLDER = "modules"
"""The folder of a job with its modules, beside the folders of its cases."""


@dataclass(frozen=True)
class Module:
    """Hold a file of the user's project, and its path below a folder to import it from: "package/layers.py"."""

    path: str
    text: str


@dataclass(frozen=True)
class BenchmarkJob:
    """Describe one benchmark. `name` is the function of the generated files that launches the kernels.

    `variants` are some of `VARIANTS`, None for all that work; `device` is "cuda", "cuda:1" or "cpu", None for the first
    available. `seconds` bounds the whole job, `sampling` each measurement of a variant. `modules` are the files of its
    project that the original imports, `paths` folders on the host to import rivals and other modules from. The report
    repeats `source_hash` and `choices`, the options of the kernels ("fuse=no"). `profile` also times each kernel
    separately, of all variants or of those `profiled`; `by_line` also times each line of the original. A `race` is for
    many variants: they are set up at the same time, and measured less often.
    """

    name: str
    cases: tuple[BenchmarkCase, ...]
    variants: tuple[str, ...] | None = None
    rivals: tuple[Rival, ...] = ()
    what: tuple[What, ...] = ("forward", "both")
    device: str | None = None
    seconds: float = 600.0
    sampling: float = 0.1
    modules: tuple[Module, ...] = ()
    paths: tuple[str, ...] = ()
    source_hash: str = ""
    choices: str = ""
    profile: bool = False
    profiled: tuple[str, ...] | None = None
    by_line: bool = False
    race: bool = False


@dataclass(frozen=True)
class Timing:
    """Hold milliseconds of one call: the median of `samples`, their 10th and 90th percentile, and the median of a
    second, later measurement.
    """

    median: float
    low: float
    high: float
    again: float
    samples: int


@dataclass(frozen=True)
class Measured:
    """Hold the measurements of one variant of one case: forward, backward or both.

    `right` is True if its results match the original in float64, None if they were not compared; `verdicts` are
    sentences on the differences. A variant that is not right has no timings. `error` explains a missing measurement,
    such as of a variant that this machine or function does not support; `crashed` is True if it failed or hung instead.
    `setup_seconds` is the time to compile, tune and check. The fractions are relative to the GPU's copy and
    matrix-product rates (`Ceilings`), by the bytes and operations that the function needs. `warnings` explain why the
    timings may mislead.
    """

    variant: str
    label: str
    what: What
    timings: dict[str, Timing] = field(default_factory=dict[str, Timing])
    right: bool | None = None
    verdicts: tuple[str, ...] = ()
    error: str = ""
    setup_seconds: float = 0.0
    bandwidth_fraction: float | None = None
    rate_fraction: float | None = None
    warnings: tuple[str, ...] = ()
    crashed: bool = False


@dataclass(frozen=True)
class Machine:
    """Describe the machine of a benchmark. Memory is in bytes, `temperature` in °C, clocks in MHz; `others` are other
    processes on the GPU, `throttled` the reasons for reduced clocks. Without a GPU, `cpu` and `threads` count.
    """

    python: str = ""
    torch: str = ""
    triton: str = ""
    gpu: str = ""
    driver: str = ""
    cuda: str = ""
    cpu: str = ""
    threads: int = 0
    memory_free: int | None = None
    memory_total: int | None = None
    sm_clock: int | None = None
    sm_clock_most: int | None = None
    memory_clock: int | None = None
    temperature: int | None = None
    throttled: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ceilings:
    """Hold the best rates of this GPU, measured in the same run: bytes read and written per second by a copy, and
    floating-point operations per second of a matrix product in `dtype` ("bf16").
    """

    copy_bytes_per_second: float
    matmul_flops_per_second: float
    dtype: str


@dataclass(frozen=True)
class Cost:
    """Hold the least cost of a case: bytes of inputs read and of results written, and floating-point operations of its
    matrix products and convolutions. `inputs` are the specs of the measured inputs.
    """

    label: str
    what: What
    bytes: int
    flops: int
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class KernelTime:
    """Hold the profile of one kernel of a variant by torch.profiler: `calls` per call of the function, which took
    `microseconds` together; `metrics` are those of `ncu`, by its names, if it is installed.
    """

    variant: str
    label: str
    what: What
    kernel: str
    calls: float
    microseconds: float
    metrics: dict[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True)
class LineTime:
    """Hold the time of a line of the original in one call of eager PyTorch, by torch.profiler: the microseconds of the
    kernels that it launches, forward and backward; on a CPU, of its operators.

    `file` is "" for the generated file, else the path of a `Module`. The rest of the time has line 0.
    """

    label: str
    file: str
    line: int
    forward: float
    backward: float


@dataclass(frozen=True)
class Report:
    """Hold the results of a job. `started` counts seconds since the epoch; `warnings` are about the whole run."""

    name: str
    machine: Machine
    ceilings: Ceilings | None
    costs: tuple[Cost, ...]
    measured: tuple[Measured, ...]
    warnings: tuple[str, ...]
    started: float
    seconds: float
    source_hash: str = ""
    choices: str = ""
    kernels: tuple[KernelTime, ...] = ()
    lines: tuple[LineTime, ...] = ()


@dataclass(frozen=True)
class BenchmarkRun:
    """Hold one stored benchmark of a target. `host` is the user's name for the machine. It is `stale` once measured
    code has changed.
    """

    file: str
    target: str
    host: str
    report: Report
    stale: bool = False


@dataclass(frozen=True)
class JobProgress:
    """Report the current step ("compile max-autotune: configuration 12 of 40"), and the progress of the whole job."""

    text: str
    done: int
    total: int


@dataclass(frozen=True)
class Finished:
    """End a job with a report."""

    report: Report


@dataclass(frozen=True)
class Failed:
    """End a job without a report: one clear sentence, and the remedy (may be empty)."""

    message: str
    hint: str = ""


Event: TypeAlias = JobProgress | Finished | Failed


@dataclass(frozen=True)
class Lack:
    """Name something that a host lacks for benchmarks, and the remedy."""

    message: str
    hint: str


@dataclass(frozen=True)
class Card:
    """Describe a GPU of a host; memory in bytes."""

    name: str
    memory_free: int | None = None
    memory_total: int | None = None


@dataclass(frozen=True)
class Probe:
    """Describe a host: versions, GPUs, and free bytes for temporary files. Without `lacks` all variants work."""

    python: str
    executable: str
    torch: str = ""
    triton: str = ""
    cuda: str = ""
    driver: str = ""
    cards: tuple[Card, ...] = ()
    temporary: str = ""
    disk_free: int | None = None
    lacks: tuple[Lack, ...] = ()
