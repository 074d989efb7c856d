"""What is asked of the machine, where `nvidia-smi` and `ncu` are there and where not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fx_lsp.bench.runner.conditions import machine, seen, warnings
from fx_lsp.bench.runner.nsight import read
from fx_lsp.measured import Machine

SMI = """#!/bin/sh
echo "$@" >> {log}
case "$1" in
--query-gpu=clocks_event_reasons.active) echo "Field is not a valid field to query."; exit 2 ;;
--query-gpu=clocks_throttle_reasons.active) echo {reasons} ;;
--query-gpu=*) echo "NVIDIA H200, 570.86, 143000, 143771, 1590, 1980, 3201, 61" ;;
*) echo "4242, python" ;;
esac
"""


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def install(reasons: str) -> Path:
        log = tmp_path / "log"
        program = tmp_path / "nvidia-smi"
        program.write_text(SMI.format(log=log, reasons=reasons))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        return log

    return install


def test_a_card_is_described(smi):
    smi("0x0000000000000000")
    found = machine("cuda")
    assert (found.gpu, found.driver, found.temperature) == ("NVIDIA H200", "570.86", 61)
    assert (found.sm_clock, found.sm_clock_most, found.memory_clock) == (1590, 1980, 3201)
    assert (found.memory_free, found.memory_total) == (143000 << 20, 143771 << 20)
    assert (found.throttled, found.others) == ((), ("python (4242)",))


def test_what_holds_clocks_down(smi):
    smi("0x0000000000000065")  # idle, power, heat by software and by hardware
    assert machine("cuda").throttled == ("the power limit", "heat")


def test_the_card_is_the_one_that_torch_uses(smi, monkeypatch: pytest.MonkeyPatch):
    log = smi("0x0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,GPU-7")
    machine("cuda:1")
    assert all(line.endswith("-i GPU-7") for line in log.read_text().splitlines())


def test_without_nvidia_smi_nothing_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    found = machine("cuda")
    assert (found.gpu, found.sm_clock, found.others) == ("", None, ()) and found.python


def test_a_shared_and_throttled_card_is_warned_of():
    before = Machine(gpu="H200", sm_clock=300, sm_clock_most=1980, others=("python (4242)",))
    looks = [Machine(sm_clock=c, temperature=t, throttled=w) for c, t, w in ((1980, 50, ()), (1200, 88, ("heat",)))]
    found = seen(before, looks)
    assert (found.sm_clock, found.temperature) == (1200, 88)
    assert warnings(found) == [
        "The GPU is shared: other work was running: python (4242).",
        "The GPU's clocks were limited by heat, to 1200 of 1980 MHz.",
    ]
    assert warnings(seen(Machine(gpu="H200", sm_clock=1980), [])) == []


def test_metrics_of_ncu():
    lines = [
        "==PROF== Connected to process 7",
        '"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"',
        '"0","7","softmax_kernel(float *, int)","launch__registers_per_thread","register/thread","1,024"',
        '"0","7","softmax_kernel(float *, int)","dram__throughput.avg.pct_of_peak_sustained_elapsed","%","91.5"',
        '"0","7","softmax_kernel(float *, int)","sm__warps_active.avg.pct_of_peak_sustained_active","%","n/a"',
    ]
    assert read(lines) == {
        "softmax_kernel": {
            "launch__registers_per_thread": 1024.0,
            "dram__throughput.avg.pct_of_peak_sustained_elapsed": 91.5,
        }
    }
