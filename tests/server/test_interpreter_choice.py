"""Which Python traces a folder, why, and how the user picks another."""

import sys
import venv
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sessions import Choosing, editor, plain

TEXT = "def f(x): return x + 1\n"


async def used(e: Choosing, reason: str) -> list[tuple[str, str]]:
    """The folder's interpreter, once the status names the reason."""
    await e.until(lambda: e.statuses and reason in e.statuses[-1].interpreters[0].reason)
    return [(one.path, one.reason) for one in e.statuses[-1].interpreters]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an environment of its own, and no active one."""
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PYENV_ROOT", raising=False)
    venv.create(tmp_path / ".venv", with_pip=False)
    return tmp_path


@asynccontextmanager
async def fresh(folder: Path, **options: object) -> AsyncIterator[tuple[Choosing, str]]:
    async with editor(folder, options={"trust": "always", **options}, make=Choosing) as e:
        yield e, e.open("m.py", TEXT)


async def test_the_status_names_the_interpreter_and_the_reason(folder: Path):
    async with fresh(folder) as (e, _):
        assert await used(e, "folder") == [(str(folder / ".venv/bin/python"), "`.venv` of the folder")]


async def test_a_setting_is_named_as_such(folder: Path):
    async with fresh(folder, interpreter=sys.executable) as (e, _):
        assert await used(e, "set") == [(sys.executable, "set as `interpreter`")]
    async with fresh(folder, interpreters=[[str(folder), sys.executable]]) as (e, _):
        assert await used(e, "editor") == [(sys.executable, "selected in the editor")]


async def test_the_interpreters_of_a_folder(folder: Path):
    async with fresh(folder) as (e, uri):
        used, *others = plain(await e.command("fxLsp.interpreters", uri))
        version = ".".join(map(str, sys.version_info[:3]))
        path = str(folder / ".venv" / "bin" / "python")
        expected = {"path": path, "reason": "`.venv` of the folder", "used": True, "version": version}
        assert used == {**expected, "torch": None, "problem": None}
        assert [one["used"] for one in others] == [False] * len(others)
        assert any(one["torch"] for one in others)


async def test_nothing_starts_without_trust(folder: Path):
    ran = folder / "ran"
    python = folder / ".venv" / "bin" / "python"
    python.unlink()
    python.write_text(f"#!/bin/sh\ntouch {ran}\n")
    python.chmod(0o755)
    async with editor(folder, options={"trust": "never"}, make=Choosing) as e:
        uri = e.open("m.py", TEXT)
        offers = plain(await e.command("fxLsp.interpreters", uri))
        assert {(one["version"], one["torch"], one["problem"]) for one in offers} == {(None, None, None)}
        assert offers[0]["path"] == str(python) and not ran.exists()


async def test_the_user_picks_another_one(folder: Path):
    async with fresh(folder) as (e, uri):
        await used(e, "folder")
        e.choice = "runs fx-lsp"
        assert await e.command("fxLsp.pickInterpreter", uri) == sys.executable
        assert e.offered[0].startswith(f"{folder}/.venv/bin/python · `.venv` of the folder · Python 3")
        assert e.offered[0].endswith("torch missing")
        e.change(uri, 2, TEXT + "\n")
        assert await used(e, "picked") == [(sys.executable, "picked in this session")]
        assert sys.executable in e.client.messages[-1].message


async def test_a_client_with_a_list_of_its_own_names_the_path(folder: Path):
    async with fresh(folder) as (e, uri):
        assert await e.command("fxLsp.pickInterpreter", uri, sys.executable) == sys.executable
        e.change(uri, 2, TEXT + "\n")
        assert await used(e, "picked") == [(sys.executable, "picked in this session")]
        assert not e.offered


async def test_a_question_that_is_closed_changes_nothing(folder: Path):
    async with fresh(folder) as (e, uri):
        assert await e.command("fxLsp.pickInterpreter", uri) is None
        assert e.offered
        assert await used(e, "folder")
