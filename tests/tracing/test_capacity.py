"""How many traces run at once."""

from pathlib import Path

import pytest

from fx_lsp.tracing.workers import capacity
from fx_lsp.tracing.workers.capacity import available_memory, parallel_traces

GIB = 1 << 30


@pytest.mark.parametrize(("free", "traces"), [(64 * GIB, 8), (13 * GIB, 3), (1 * GIB, 1), (None, 8)])
def test_as_many_as_cores_and_memory_allow(monkeypatch: pytest.MonkeyPatch, free: int | None, traces: int):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.setattr(capacity, "available_memory", lambda: free)
    assert parallel_traces(4 * GIB) == traces


def test_a_container_has_less_than_its_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "meminfo").write_text(
        "MemTotal:       9000000 kB\nMemAvailable:    8000000 kB\nHugePages_Total:       0\n"
    )
    monkeypatch.setattr(capacity, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(capacity, "_CGROUP", tmp_path)
    assert available_memory() == 8_000_000 * 1024
    for name, text in {"max": "5000", "current": "3000", "stat": "anon 2900\ninactive_file 100"}.items():
        (tmp_path / f"memory.{name}").write_text(f"{text}\n")
    assert available_memory() == 2100
    (tmp_path / "memory.max").write_text("max\n")
    assert available_memory() == 8_000_000 * 1024
