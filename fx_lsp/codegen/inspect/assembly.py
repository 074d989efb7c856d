"""A kernel of a Python file, compiled without a GPU: its texts from TTIR to SASS, its resources and memory accesses.

Each line of each text is mapped to the line of the Python file that it is from.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any, cast

import fx_lsp
from fx_lsp import wire
from fx_lsp.codegen.inspect import listings
from fx_lsp.codegen.inspect.compilation import (
    CompiledKernel,
    LaunchSpec,
    compile_kernel,
    definition_line,
    is_interpreting,
    line_of_ptx,
)
from fx_lsp.codegen.inspect.listings import Listing
from fx_lsp.codegen.inspect.occupancy import CHIPS, Occupancy, occupancy
from fx_lsp.messages.kernels import COMPILER_DIED, COMPILER_DIED_SILENTLY
from fx_lsp.model import Failure

__all__ = ["Access", "Assembly", "LaunchSpec", "Note", "Resources", "assemble"]


@dataclass(frozen=True)
class Access:
    """`count` instructions of one kind that access global memory for a line of the Python file.

    `kind` is "load", "store", "copy" (to shared memory), "atomic" or "bulk" (a whole block at once, as TMA does).
    `bits` is the width of one access of one thread, 0 for a block.
    """

    line: int
    kind: str
    bits: int
    count: int


@dataclass(frozen=True)
class Resources:
    """The resources of a kernel. `registers` are per thread; on AMD chips they are the vector registers.

    `spill_stores` and `spill_loads` are bytes per thread. `shared` is the memory per block in bytes, static and
    dynamic. `tensor_memory` is in columns (of 512, on Blackwell).
    """

    registers: int
    spill_stores: int
    spill_loads: int
    shared: int
    threads: int
    barriers: int
    tensor_memory: int
    occupancy: Occupancy


@dataclass(frozen=True)
class Note:
    """A remark of the assembler, and the line of the Python file that it is about, or 0."""

    line: int
    text: str


@dataclass(frozen=True)
class Assembly:
    """A compiled kernel. `texts` are `ttir`, `ttgir`, `llir`, then `ptx` and `sass`, or `amdgcn`.

    `lines` has for each line of each text the line of the Python file, or 0. `line` is the line of the kernel.
    """

    target: str
    launch: LaunchSpec
    line: int
    texts: dict[str, str]
    lines: dict[str, tuple[int, ...]]
    resources: Resources
    accesses: tuple[Access, ...]
    notes: tuple[Note, ...] = ()


def assemble(text: str, launch: LaunchSpec, target: str, file: str = "kernel.py") -> Assembly | Failure:
    """Compile one kernel of `text` for a target (`cuda:90`, `hip:gfx942`; see `occupancy.CHIPS`).

    Only the top level of the text runs. Returns a Failure with a span in `file` if the text, the launch or the target
    is wrong. Resources beyond the limits of the chip are no Failure: `remarks` reports them.
    """
    if _other.is_needed or is_interpreting():
        return _in_another_process(text, launch, target, file)
    outcome = compile_kernel(text, launch, target, file)
    return outcome if isinstance(outcome, Failure) else _assembly(outcome, text, launch, target)


def compile_with(connect: Callable[[], Streams]) -> None:
    """Have another process compile from now on, which `connect` gives streams to and from: it runs `answer`."""
    _other.connect, _other.is_needed = cache(connect), True


def answer(requests: Iterable[str], answers: IO[str]) -> None:
    """Compile the kernel of each request, and write the result to `answers`, both as a line of JSON."""
    for request in requests:
        text, launch, target, file = json.loads(request)
        try:
            outcome = assemble(text, wire.from_json(LaunchSpec, launch), target, file)
            kind = "failure" if isinstance(outcome, Failure) else "assembly"
            line = json.dumps({kind: wire.to_json(outcome)})
        except Exception as error:
            line = json.dumps({"error": "".join(traceback.format_exception_only(error)).strip().rpartition("\n")[2]})
        answers.write(line + "\n")
        answers.flush()


def _assembly(kernel: CompiledKernel, text: str, launch: LaunchSpec, target: str) -> Assembly:
    shown = {name: _LISTINGS[name](stage, kernel.path) for name, stage in kernel.stages.items() if name in _LISTINGS}
    if "ptx" in shown:
        shown["sass"] = _disassemble(kernel)
        resources = _nvidia_resources(kernel, target)
        accesses = _accesses(shown["sass"], _SASS_ACCESS)
    else:
        shown["sass"] = Listing(f"// {target} has no SASS: its final assembly is amdgcn\n", (0,))
        resources = _amd_resources(kernel, shown["amdgcn"].text, target)
        accesses = _accesses(shown["amdgcn"], _AMD_ACCESS)
    return Assembly(
        target=target,
        launch=launch,
        line=definition_line(text, launch.kernel),
        texts={name: listing.text for name, listing in shown.items()},
        lines={name: listing.lines for name, listing in shown.items()},
        resources=resources,
        accesses=accesses,
        notes=_notes(kernel),
    )


_LISTINGS = {
    "ttir": listings.mlir,
    "ttgir": listings.mlir,
    "llir": listings.llvm,
    "ptx": listings.ptx,
    "amdgcn": listings.amdgcn,
}


def _disassemble(kernel: CompiledKernel) -> Listing:
    knobs: Any = importlib.import_module("triton.knobs")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as program:
        program.write(kernel.binary)
        program.flush()
        command = [knobs.nvidia.nvdisasm.path, "-g", "-c", program.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return Listing(f"// nvdisasm cannot read the program: {done.stderr.strip()}\n", (0,))
    return listings.sass(done.stdout, kernel.path)


def _nvidia_resources(kernel: CompiledKernel, target: str) -> Resources:
    """Read the resources from the output of `ptxas -v`. Several functions share the registers of the largest one."""
    log = kernel.log
    spilled = [sum(_numbers(rf"(\d+) bytes spill {kind}", log)) for kind in ("stores", "loads")]
    barriers = max(_numbers(r"used (\d+) barriers", log), default=0)
    static = max(_numbers(r"(\d+) bytes smem", log), default=0)
    return _resources(kernel, target, _numbers(r"Used (\d+) registers", log), (*spilled, barriers, static))


def _amd_resources(kernel: CompiledKernel, shown: str, target: str) -> Resources:
    """Read the resources from the metadata at the end of the assembly. Spills go through scratch memory."""
    text = kernel.stages["amdgcn"]
    spills = any(_numbers(r"^ +\.vgpr_spill_count: +(\d+)", text))
    spilled = [_scratch_bytes(kind, shown) if spills else 0 for kind in ("store", "load")]
    barriers = 1 if re.search(r"^\ts_barrier", shown, re.MULTILINE) else 0
    return _resources(kernel, target, _numbers(r"^ +\.vgpr_count: +(\d+)", text), (*spilled, barriers, 0))


def _resources(kernel: CompiledKernel, target: str, registers: Iterable[int], counts: Sequence[int]) -> Resources:
    """Return the resources of a kernel; `counts` are spilled and reloaded bytes, barriers and static shared memory."""
    spill_stores, spill_loads, barriers, static = counts
    used, warps = max(registers, default=0), int(kernel.metadata["num_warps"])
    shared = int(kernel.metadata.get("shared") or 0) + static
    fits, memory = occupancy(CHIPS[target], used, shared, warps), int(kernel.metadata.get("tmem_size") or 0)
    return Resources(used, spill_stores, spill_loads, shared, warps * CHIPS[target].warp_size, barriers, memory, fits)


def _scratch_bytes(kind: str, text: str) -> int:
    words = re.findall(rf"^\t(?:scratch|buffer)_{kind}_dword(?:x(\d))?\b.*(?:off|scratch)", text, re.MULTILINE)
    return sum(4 * int(count or 1) for count in words)


def _numbers(pattern: str, text: str) -> list[int]:
    return [int(number) for number in re.findall(pattern, text, re.MULTILINE)]


def _notes(kernel: CompiledKernel) -> tuple[Note, ...]:
    notes: dict[Note, None] = {}
    for message in re.findall(r"Potential Performance Loss: (.*)|ptxas\S* warning\s*: (.*)", kernel.log):
        text = re.sub(r" in the function '\w+'", "", " ".join(message).strip())
        at = re.search(r" in line (\d+)", text)
        line = line_of_ptx(kernel.stages["ptx"], int(at[1]), kernel.path) if at else 0
        notes[Note(line, text.replace(at[0], "") if at else text)] = None
    return tuple(notes)


def _accesses(shown: Listing, pattern: re.Pattern[str]) -> tuple[Access, ...]:
    counts: dict[tuple[int, str, int], int] = {}
    for row, line in zip(shown.text.splitlines(), shown.lines, strict=False):
        accesses = pattern.search(row)
        if accesses:
            name = next(name for name, value in accesses.groupdict().items() if value)
            bits = 0 if name == "bulk" else _bits(accesses["width"])
            counts[line, name, bits] = counts.get((line, name, bits), 0) + 1
    return tuple(Access(*place, count) for place, count in counts.items())


def _bits(width: str) -> int:
    """Return the width in bits of a SASS suffix (`.E.128`, `.E.U8`) or of an AMD suffix (`dwordx4`, `ushort`)."""
    if digits := re.search(r"\.[US]?(8|16|64|128|256)(?=\.|$)", width):
        return int(digits[1])
    if digits := re.search(r"dwordx(\d)|b(\d+)|(byte)|(short)", width):
        return int(digits[1] or 0) * 32 or int(digits[2] or 0) or (8 if digits[3] else 16)
    return 32


_SASS_ACCESS = re.compile(
    r" (?:(?P<copy>LDGSTS)|(?P<load>LDG|LD)|(?P<store>STG|ST)|(?P<atomic>ATOMG?|REDG?)"
    r"|(?P<bulk>UBLKCP|UTMA(?!CCTL)\w+))"
    r"(?P<width>(?:\.\w+)*) "
)
_AMD_ACCESS = re.compile(
    r"^\t(?:global|buffer|flat)_(?:(?P<copy>load_lds)|(?P<load>load)|(?P<store>store)|(?P<atomic>atomic))"
    r"(?P<width>\w*)(?P<bulk>$^)?"
)


Streams = tuple[IO[str], IO[str]]
"""The streams to write requests to and to read answers from."""


def _in_another_process(text: str, launch: LaunchSpec, target: str, file: str) -> Assembly | Failure:
    """Compile in another process, because this one interprets kernels, or may start no assembler."""
    requests, answers = _other.connect()
    with suppress(OSError):
        requests.write(json.dumps([text, wire.to_json(launch), target, file]) + "\n")
        requests.flush()
    line = answers.readline()
    if not line:
        _other.connect.cache_clear()
        return COMPILER_DIED_SILENTLY.failure(kernel=launch.kernel, target=target)
    outcome = cast("dict[str, Any]", json.loads(line))
    if "error" in outcome:
        return COMPILER_DIED.failure(kernel=launch.kernel, target=target, error=outcome["error"])
    if "failure" in outcome:
        return wire.from_json(Failure, outcome["failure"])
    return wire.from_json(Assembly, outcome["assembly"])


def start_compiler() -> Streams:
    """Start a process that compiles kernels, and return streams to and from it."""
    package = str(Path(fx_lsp.__file__).parent)
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-X", "utf8", "-B", "-c", _CHILD, package]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True)
    assert process.stdin is not None and process.stdout is not None
    return process.stdin, process.stdout


class _OtherProcess:
    """The process that compiles in place of this one, started by `connect` when first needed; it `is_needed` if this
    one never compiles.
    """

    def __init__(self) -> None:
        self.connect = cache(start_compiler)
        self.is_needed = False


_other = _OtherProcess()

_CHILD = """
import sys
sys.path[:] = [path for path in sys.path if path]
from importlib.util import module_from_spec, spec_from_file_location
place = sys.argv[1]
spec = spec_from_file_location("fx_lsp", place + "/__init__.py", submodule_search_locations=[place])
sys.modules["fx_lsp"] = package = module_from_spec(spec)
spec.loader.exec_module(package)
from fx_lsp.codegen.inspect.assembly import answer
answer(sys.stdin, sys.stdout)
"""
