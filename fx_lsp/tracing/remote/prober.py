"""Describe a host for benchmarks, without importing torch. Runs on the host, and prints a `measured.Probe` as JSON."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from fx_lsp.measured import Card, Lack, Probe
from fx_lsp.tracing.remote.supervisor import DISK_NEEDED, MARK, OLDEST_TORCH, is_older, version_of
from fx_lsp.wire import to_json


def probed(folder: str) -> Probe:
    """Return the description of this host; `folder` is the folder of jobs."""
    cards, driver = _cards()
    free = shutil.disk_usage(folder).free
    torch, triton, built_for = version_of("torch"), version_of("triton"), _built_for()
    python = platform.python_version(), sys.executable
    probe = Probe(*python, torch, triton, built_for, driver, cards, folder, free)
    return replace(probe, lacks=tuple(_lacks(probe, free)))


def _lacks(probe: Probe, free: int) -> Iterator[Lack]:
    torch, built_for, cards = probe.torch, probe.cuda, probe.cards
    if not torch:
        yield Lack(f"torch is not installed for {sys.executable}", "install torch there, or configure another Python")
    elif is_older(torch, OLDEST_TORCH):
        yield Lack(f"torch {torch} is too old", "install torch 2.6 or newer there")
    elif cards and not built_for:
        yield Lack("there is a GPU, but torch there is built without CUDA", "install a torch for CUDA there")
    if torch and not probe.triton:
        yield Lack("triton is not installed, so kernels cannot run", "install triton there")
    if not cards and "rocm" not in built_for:
        yield Lack(
            "there is no NVIDIA GPU, so kernels are checked but not timed", "request a GPU, if this host has one"
        )
    if free < DISK_NEEDED:
        needed = DISK_NEEDED >> 20
        yield Lack(
            f"only {free >> 20} MB are free in {probe.temporary}", f"a job needs {needed} MB; configure another folder"
        )


def _built_for() -> str:
    """Return the version of CUDA, or of ROCm, that torch is built for; "" for a CPU build, or without torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return ""
    try:
        text = Path(spec.origin).with_name("version.py").read_text("utf-8")
    except OSError:
        return ""
    for name, shown in (("cuda", "{}"), ("hip", "rocm {}")):
        if match := re.search(rf"^{name}\s*(?::.*)?=\s*['\"](.+?)['\"]", text, re.M):
            return shown.format(match[1])
    return ""


def _cards() -> tuple[tuple[Card, ...], str]:
    """Return the GPUs that this process may use, and their driver."""
    fields = "name,memory.free,memory.total,driver_version"
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible == "":
        return (), ""
    try:
        done = subprocess.run(
            [*command, *(["-i", visible] if visible else [])], capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        return (), ""
    rows = [line.split(", ") for line in done.stdout.splitlines() if line.count(", ") == 3]
    cards = tuple(Card(name, _bytes(free), _bytes(total)) for name, free, total, _ in rows)
    return cards, rows[0][3] if rows else ""


def _bytes(mebibytes: str) -> int | None:
    return int(mebibytes) << 20 if mebibytes.strip().isdigit() else None


if __name__ == "__main__":
    print(json.dumps(to_json(probed(str(Path(os.environ[MARK]).parent)))))
