"""Where fx-lsp keeps files of the user."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fx_lsp import folders

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="these variables are those of Linux")


def test_each_is_a_folder_of_fx_lsp() -> None:
    places = [folders.cache_folder(), folders.config_folder()]
    assert [(place.name, place.is_absolute()) for place in places] == [("fx-lsp", True)] * 2


@on_linux
def test_they_are_in_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    assert folders.cache_folder() == Path("/home/me/.cache/fx-lsp")
    assert folders.config_folder() == Path("/home/me/.config/fx-lsp")


@on_linux
def test_variables_name_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/scratch")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/settings")
    assert folders.cache_folder() == Path("/scratch/fx-lsp")
    assert folders.config_folder() == Path("/settings/fx-lsp")


@on_linux
@pytest.mark.parametrize("value", ["", "relative", "./here"])
def test_a_variable_without_an_absolute_path_is_ignored(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be a folder of the workspace, where others write."""
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    monkeypatch.setenv("XDG_CONFIG_HOME", value)
    assert folders.cache_folder() == Path("/home/me/.cache/fx-lsp")
    assert folders.config_folder() == Path("/home/me/.config/fx-lsp")
