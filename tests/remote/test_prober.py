"""What a host says that it has, and what it lacks."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from fx_lsp.measured import Card
from fx_lsp.tracing.remote.prober import probed
from fx_lsp.tracing.remote.supervisor import is_older, version_of, with_home

SMI = "#!/bin/sh\necho 'NVIDIA H200, 140000, 143771, 575.57.08'\necho 'NVIDIA H200, [N/A], 143771, 575.57.08'\n"


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages, and no other torch; no GPU."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *(p for p in sys.path if "site-packages" not in p)])
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name in ("torch", "triton"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def package(folder: Path, name: str, version: str) -> None:
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text("raise ImportError('nobody imports this')\n")
    (folder / name / "version.py").write_text(version)


def with_cards(folder: Path) -> None:
    (folder / "bin").mkdir()
    (folder / "bin" / "nvidia-smi").write_text(SMI)
    (folder / "bin" / "nvidia-smi").chmod(0o755)


def lacks(folder: Path) -> list[str]:
    return [lack.message.replace(sys.executable, "PYTHON") for lack in probed(str(folder)).lacks]


def test_a_host_that_has_everything(packages: Path):
    package(packages, "torch", "__version__ = '2.11.0+cu128'\ncuda: Optional[str] = '12.8'\nhip = None\n")
    package(packages, "triton", "__version__ = '3.6.0'\n")
    with_cards(packages)
    found = probed(str(packages))
    assert (found.torch, found.triton, found.cuda, found.driver) == ("2.11.0+cu128", "3.6.0", "12.8", "575.57.08")
    assert found.cards == (Card("NVIDIA H200", 140000 << 20, 143771 << 20), Card("NVIDIA H200", None, 143771 << 20))
    assert found.lacks == ()


def test_a_host_that_has_nothing(packages: Path):
    assert lacks(packages) == snapshot(
        ["torch is not installed for PYTHON", "there is no NVIDIA GPU, so kernels are checked but not timed"]
    )


def test_a_torch_for_the_cpu_on_a_host_with_a_gpu(packages: Path):
    package(packages, "torch", "__version__ = '2.11.0+cpu'\ncuda = None\n")
    with_cards(packages)
    assert lacks(packages) == snapshot(
        ["there is a GPU, but torch there is built without CUDA", "triton is not installed, so kernels cannot run"]
    )


def test_an_old_torch(packages: Path):
    package(packages, "torch", "__version__ = '2.5.1'\ncuda = '12.1'\n")
    package(packages, "triton", "")
    with_cards(packages)
    assert lacks(packages) == snapshot(["torch 2.5.1 is too old"])


def test_a_full_disk(packages: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fx_lsp.tracing.remote.prober.DISK_NEEDED", 1 << 60)
    assert any("MB are free in" in message for message in lacks(packages))


def test_gpus_that_are_hidden(packages: Path, monkeypatch: pytest.MonkeyPatch):
    with_cards(packages)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert probed(str(packages)).cards == ()


@pytest.mark.parametrize(
    ("version", "older"),
    [("2.5.1", True), ("2.6.0a0+git", False), ("2.13.0+cpu", False), ("1.13", True), ("unknown", False), ("3", False)],
)
def test_versions(version: str, older: bool):
    assert is_older(version, (2, 6)) is older


def test_a_version_that_nobody_wrote_down(packages: Path):
    package(packages, "torch", "")
    assert version_of("torch") == "unknown"


def test_folders_of_the_home_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "/home/there")
    file = tmp_path / "job.json"
    file.write_text(json.dumps({"name": "f", "paths": ["~/project", "/data"]}))
    with_home(file)
    assert json.loads(file.read_text()) == {"name": "f", "paths": ["/home/there/project", "/data"]}
    with_home(tmp_path / "no.json")
    assert os.listdir(tmp_path) == ["job.json"]
