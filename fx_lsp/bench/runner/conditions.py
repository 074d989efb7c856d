"""Query the state of the machine and its card, as far as possible without torch."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from fx_lsp.measured import Machine

_FIELDS = (
    "name",
    "driver_version",
    "memory.free",
    "memory.total",
    "clocks.sm",
    "clocks.max.sm",
    "clocks.mem",
    "temperature.gpu",
)
_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
"""The drivers' names of the same field, newer ones first."""
_THROTTLING = {
    0x2: "the clocks that an application set",
    0x4: "the power limit",
    0x8: "hardware slowdown",
    0x20: "heat",
    0x40: "heat",
    0x80: "the power brake",
    0x100: "the display's clocks",
}
"""The reasons for reduced clocks, by NVML's bits; an idle card, or one synchronised with others, is not throttled."""


def machine(device: str) -> Machine:
    """Return the current state of this machine, and of a GPU if `device` is one; unknown fields stay empty."""
    here = Machine(python=platform.python_version(), cpu=_cpu(), threads=os.cpu_count() or 0)
    if not device.startswith("cuda"):
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
        return replace(here, others=(f"a load of {load:.1f}",) if load > here.threads / 2 else ())
    number = card(device)
    values = _query("--query-gpu=" + ",".join(_FIELDS), number)
    if not values or len(values[0]) != len(_FIELDS):
        return here
    row = dict(zip(_FIELDS, values[0], strict=True))
    mebi = 1 << 20
    free, total = _number(row["memory.free"]), _number(row["memory.total"])
    asked = (_query(f"--query-gpu={name}", number) for name in _REASONS)
    bits = next((_number(answer[0][0]) for answer in asked if answer), None) or 0
    return replace(
        here,
        gpu=row["name"],
        driver=row["driver_version"],
        memory_free=None if free is None else free * mebi,
        memory_total=None if total is None else total * mebi,
        sm_clock=_number(row["clocks.sm"]),
        sm_clock_most=_number(row["clocks.max.sm"]),
        memory_clock=_number(row["clocks.mem"]),
        temperature=_number(row["temperature.gpu"]),
        throttled=tuple(dict.fromkeys(text for bit, text in _THROTTLING.items() if bits & bit)),
        others=tuple(f"{row[1]} ({row[0]})" for row in _query("--query-compute-apps=pid,process_name", number)),
    )


def card(device: str) -> str:
    """Return `nvidia-smi`'s name of a CUDA device: CUDA_VISIBLE_DEVICES changes numbers."""
    number = int(device.partition(":")[2] or 0)
    visible = [v.strip() for v in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if v.strip()]
    return visible[number] if number < len(visible) else str(number)


def _query(what: str, card: str) -> list[list[str]]:
    """Return the rows of an answer of `nvidia-smi`; empty if it is missing or fails."""
    command = ["nvidia-smi", what, "--format=csv,noheader,nounits", "-i", card]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [[cell.strip() for cell in line.split(", ")] for line in done.stdout.splitlines() if line.strip()]


def _number(text: str) -> int | None:
    with suppress(ValueError):
        return int(text, 0)
    return None


def _cpu() -> str:
    with suppress(OSError):
        model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.M)
        if model is not None:
            return model[1].strip()
    return platform.processor() or platform.machine()


def seen(before: Machine, looks: Sequence[Machine]) -> Machine:
    """Return the machine as before a run, with clocks and temperature of observations under load."""
    if not looks:
        return before
    clocks = [look.sm_clock for look in looks if look.sm_clock is not None]
    heat = [look.temperature for look in looks if look.temperature is not None]
    return replace(
        before,
        sm_clock=min(clocks, default=None),
        memory_clock=looks[-1].memory_clock,
        temperature=max(heat, default=None),
        throttled=tuple(dict.fromkeys(text for look in looks for text in look.throttled)),
    )


def warnings(machine: Machine) -> Sequence[str]:
    """Return sentences on why the measurements may mislead."""
    sentences: list[str] = []
    if machine.others:
        where = "GPU" if machine.gpu else "CPU"
        sentences.append(f"The {where} is shared: other work was running: {', '.join(machine.others)}.")
    if machine.throttled:
        at = f", to {machine.sm_clock} of {machine.sm_clock_most} MHz" if machine.sm_clock_most else ""
        sentences.append(f"The GPU's clocks were limited by {' and '.join(machine.throttled)}{at}.")
    return sentences
