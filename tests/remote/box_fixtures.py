"""Fixtures: hosts behind an sshd of our own on the loopback interface, and settings that nobody else has."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from boxes import Box, MakeBox
from sshd import SSHD, Proxy, Sshd, start_sshd

from fx_lsp.tracing.remote.hosts import Host
from fx_lsp.tracing.remote.trust import trust


@pytest.fixture
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for hosts.toml and what belongs to it."""
    config = tmp_path / "config"
    config.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(config))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return config


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    if SSHD is None:
        pytest.skip("there is no sshd here")
    server = start_sshd(tmp_path_factory.mktemp("sshd"))
    yield server
    server.process.terminate()
    server.process.wait()


@pytest.fixture
def box(sshd: Sshd, own_settings: Path, tmp_path: Path) -> MakeBox:
    """Makes a trusted host that is reached through sshd, or through a proxy before it."""

    def make(proxy: Proxy | None = None, known: str | None = None, **fields: object) -> Box:
        folder = tmp_path / "jobs"
        folder.mkdir(exist_ok=True)
        config = sshd.config(proxy.port if proxy else None, known)
        host = Host("h200", ssh="box", ssh_config=config, python=sys.executable, folder=str(folder), connect=20)
        host = replace(host, **fields)
        trust(host)
        return Box(host, folder)

    return make
