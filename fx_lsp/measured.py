"""Plain data of a benchmark: what is asked for, what happens meanwhile, what was measured. Standard library only.

Times are milliseconds, and of one call; `seconds` are seconds. Where a fact is not known, text is "" and a number None.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

EAGER = "eager"
KERNELS = "kernels"
INDUCTOR_KERNELS = "inductor-kernels"
COMPILE = "compile"
VARIANTS = (
    EAGER,
    "symbolic_trace",
    "torchscript",
    COMPILE,
    "compile reduce-overhead",
    "compile max-autotune",
    "compile cudagraphs",
    KERNELS,
    INDUCTOR_KERNELS,
)
"""What a target can run as, in the order in which tables show it; rivals stand after them, under their own names."""

What = Literal["forward", "backward", "both"]
WHATS: tuple[What, ...] = ("forward", "backward", "both")

Clock = Literal["graph", "events", "wall"]
CLOCKS: tuple[Clock, ...] = ("graph", "events", "wall")
"""How a time was taken. `graph`: on the GPU, replays of a CUDA graph of calls on inputs in rotation; `events`: on the
GPU, each call with a cold L2 cache; `wall`: by the host's clock, with the launches. The first that both of two variants
have is what they are compared by."""


@dataclass(frozen=True)
class BenchmarkCase:
    """One generated file, as text. A sweep has several, told apart by their `label` ("N=1024").

    `inductor` is the file with Inductor's kernels for the same function, or "".
    """

    label: str
    file: str
    inductor: str = ""


@dataclass(frozen=True)
class Rival:
    """A function that somebody wrote by hand, `package.module:function`, called as the original is."""

    name: str
    target: str


@dataclass(frozen=True)
class Module:
    """A file of the user's project, and its path below a folder to import it from: "package/layers.py"."""

    path: str
    text: str


@dataclass(frozen=True)
class BenchmarkJob:
    """One benchmark. `name` is the function of the generated files that launches the kernels.

    `variants` are some of `VARIANTS`, None all that work; `device` is "cuda", "cuda:1" or "cpu", None the first that is
    there. `seconds` bounds the whole job, `sampling` each measurement of a variant. `modules` are what the original
    imports of its project, `paths` folders on the host that rivals and other modules are found in. `source_hash` and
    `choices`, how the kernels were generated ("fuse=no"), are given back with the report. `profile` has each kernel
    timed on its own as well.
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


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one call: the median of `samples`, their 10th and 90th percentile, and the median of a second
    measurement of the same that was taken some time later."""

    median: float
    low: float
    high: float
    again: float
    samples: int


@dataclass(frozen=True)
class Measured:
    """One variant of one case, forward, backward or both.

    `right` is whether its results are those of the original in float64, None where that was not compared; `verdicts`
    are the sentences that say what is wrong with it. One that is not right has no timings. `error` says why there is
    nothing, as for a variant that this machine or this function does not allow. `setup_seconds` is how long it took to
    compile, tune and check. The fractions are of what the card can copy and multiply (`Ceilings`), by the bytes and
    operations that the function needs. `warnings` say why the timings may mislead.
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


@dataclass(frozen=True)
class Machine:
    """Where a benchmark ran. Memory is in bytes, `temperature` in °C, clocks in MHz; `others` are other processes on
    the card, `throttled` the reasons for which its clocks are held down. Without a GPU, `cpu` and `threads` count."""

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
    """What this card does at best, measured in the same run: bytes read and written in a copy, and floating-point
    operations in a matrix product of `dtype` ("bf16"), each per second."""

    copy_bytes_per_second: float
    matmul_flops_per_second: float
    dtype: str


@dataclass(frozen=True)
class Cost:
    """What a case needs at least: bytes of inputs that are read and of results that are written, and floating-point
    operations of its matrix products and convolutions. `inputs` are the specs it was measured with."""

    label: str
    what: What
    bytes: int
    flops: int
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class KernelTime:
    """One kernel of a variant, as torch.profiler saw it: `calls` in one call of the function, which took `microseconds`
    together; `metrics` are those of `ncu`, by its names, where it is there."""

    variant: str
    label: str
    what: What
    kernel: str
    calls: float
    microseconds: float
    metrics: dict[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True)
class Report:
    """What a job found. `started` counts seconds from the epoch; `warnings` are those about the whole run."""

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


@dataclass(frozen=True)
class BenchmarkRun:
    """One benchmark of a target that was kept. `host` is the user's name for the machine; once something that was
    measured has changed it is `stale`."""

    file: str
    target: str
    host: str
    report: Report
    stale: bool = False


@dataclass(frozen=True)
class JobProgress:
    """What is being done now ("compile max-autotune: configuration 12 of 40"), and how far the whole job is."""

    text: str
    done: int
    total: int


@dataclass(frozen=True)
class Finished:
    """The end of a job that went well."""

    report: Report


@dataclass(frozen=True)
class Failed:
    """The end of a job that has no report: one clear sentence, and what to do about it (may be empty)."""

    message: str
    hint: str = ""


Event: TypeAlias = JobProgress | Finished | Failed


@dataclass(frozen=True)
class Lack:
    """Something that a host needs for benchmarks and does not have, and how to mend that."""

    message: str
    hint: str


@dataclass(frozen=True)
class Card:
    """A GPU of a host; memory in bytes."""

    name: str
    memory_free: int | None = None
    memory_total: int | None = None


@dataclass(frozen=True)
class Probe:
    """What a host has: versions, GPUs, and free bytes where temporary files go. Without `lacks` all variants work."""

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
