"""Jobs on a host behind a real sshd: what is said when something goes wrong, and what is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest
from boxes import FILES, LONG, MakeBox, events_of
from inline_snapshot import snapshot
from sshd import Proxy, Sshd

from fx_lsp.measured import Failed
from fx_lsp.tracing.remote.jobs import run_job

pytest_plugins = ["box_fixtures"]
pytestmark = pytest.mark.host


async def test_a_job_comes_back_and_leaves_nothing(box: MakeBox):
    there = box()
    *before, last = await events_of(there.host)
    assert [event.text for event in before] == snapshot(["h200: connecting", "started", "working", "working"])
    assert last.message.startswith(f"ran in {there.folder}/fx-lsp-job-")
    assert there.left() == []


async def test_cancelling_ends_the_job_there(box: MakeBox):
    there = box()
    async with aclosing(run_job(there.host, LONG, FILES)) as events:
        async for event in events:
            if event.text == "working":
                break
    assert there.left() == []


async def test_a_job_has_a_limit(box: MakeBox, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fx_lsp.tracing.remote.jobs._MORE_SECONDS", 0.0)
    there = box(limit=1)
    assert (await events_of(there.host, LONG))[-1] == snapshot(
        Failed(
            message="the job on h200 was stopped at its limit of 1 s",
            hint="measure fewer variants, or raise `limit` of that host in hosts.toml",
        )
    )
    assert there.left() == []


async def test_the_runner_is_killed(box: MakeBox):
    there = box()
    last = (await events_of(there.host, LONG, lambda runner, _: os.kill(runner, signal.SIGKILL)))[-1]
    assert last == snapshot(
        Failed(
            message="the job on h200 was killed there: it was ended by SIGKILL",
            hint="often because of too little memory; a scheduler may also have stopped it",
        )
    )
    assert there.left() == []


async def test_the_gateway_is_killed_and_the_next_job_tidies_up(box: MakeBox):
    there = box()
    last = (await events_of(there.host, LONG, lambda _, gateway: os.kill(gateway, signal.SIGKILL)))[-1]
    assert last == snapshot(
        Failed(
            message="the Python on h200 was killed in the middle of the job, or the connection was lost",
            hint="the job there ends at the latest when you run the next one on that host",
        )
    )
    await events_of(there.host)
    assert there.left_at_last() == []


async def test_everything_is_killed_and_the_next_job_tidies_up(box: MakeBox):
    there = box()

    def kill(runner: int, gateway: int) -> None:
        for pid in (gateway, runner):
            os.kill(pid, signal.SIGKILL)

    await events_of(there.host, LONG, kill)
    assert there.left() != []
    await events_of(there.host)
    assert there.left_at_last() == []


async def test_the_network_is_cut(box: MakeBox, sshd: Sshd):
    proxy = Proxy(sshd.port)
    there = box(proxy)
    assert (await events_of(there.host, LONG, lambda *_: proxy.cut()))[-1] == snapshot(
        Failed(
            message="the connection to h200 was lost in the middle of the job: "
            "Connection to 127.0.0.1 closed by remote host.",
            hint="the job there ends at the latest when you run the next one on that host",
        )
    )
    assert there.left_at_last() == []


async def test_the_host_hangs_in_the_middle(box: MakeBox, sshd: Sshd):
    proxy = Proxy(sshd.port)
    there = box(proxy)
    assert (await events_of(there.host, LONG, lambda *_: proxy.freeze(), silence=2.0))[-1] == snapshot(
        Failed(
            message="h200 has not answered for 2 s: the connection hangs",
            hint="the job there ends at the latest when you run the next one on that host",
        )
    )
    assert there.left_at_last() == []
    proxy.cut()


async def test_the_host_hangs_from_the_beginning(box: MakeBox, sshd: Sshd):
    proxy = Proxy(sshd.port)
    proxy.freeze()
    assert (await events_of(box(proxy, connect=1).host))[-1].message == snapshot(
        "h200 does not answer: no Python was running there after 1 s"
    )
    proxy.cut()


async def test_a_hanging_host_can_be_left(box: MakeBox, sshd: Sshd):
    proxy = Proxy(sshd.port)
    proxy.freeze()
    waiting = asyncio.create_task(events_of(box(proxy).host))
    await asyncio.sleep(0.5)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(waiting, 5)
    proxy.cut()


async def test_another_host_key(box: MakeBox, sshd: Sshd):
    stranger = (sshd.folder / "stranger.pub").read_text()
    assert (await events_of(box(known=f"box {stranger}").host))[-1].message == snapshot(
        "h200 has a different host key than before: it was reinstalled, or it is another machine"
    )


async def test_an_unknown_host_key(box: MakeBox):
    assert (await events_of(box(known="").host))[-1].message == snapshot("the host key of h200 is not known here yet")


async def test_nothing_is_asked(box: MakeBox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked = tmp_path / "asked"
    monkeypatch.setenv("SSH_ASKPASS", script(tmp_path, f"#!/bin/sh\ntouch {asked}\necho yes\n"))
    monkeypatch.setenv("SSH_ASKPASS_REQUIRE", "force")
    assert (await events_of(box(known="").host))[-1].message == "the host key of h200 is not known here yet"
    assert not asked.exists()


async def test_no_permission(box: MakeBox, sshd: Sshd):
    there = box()
    config = Path(there.host.ssh_config)
    config.write_text(config.read_text().replace(str(sshd.folder / "user"), str(sshd.folder / "stranger")))
    assert (await events_of(there.host))[-1].message == snapshot(
        "h200 does not accept your key, and a job cannot enter a password"
    )


async def test_nobody_listens(box: MakeBox, sshd: Sshd):
    proxy = Proxy(sshd.port)
    there = box(proxy)
    proxy.cut()
    assert (await events_of(there.host))[-1].message.replace(str(proxy.port), "PORT") == snapshot(
        "h200 cannot be reached: connect to host 127.0.0.1 port PORT: Connection refused"
    )


async def test_an_unknown_name(box: MakeBox):
    there = box(ssh="no-such-host.invalid")
    assert (await events_of(there.host))[-1].message == snapshot(
        "there is no host no-such-host.invalid: its name cannot be resolved"
    )


async def test_no_such_python(box: MakeBox):
    last = (await events_of(box(python="/no/python").host))[-1]
    assert (last.message, last.hint) == snapshot(
        (
            "there is no /no/python on h200: bash: line 1: /no/python: No such file or directory",
            'configure another in hosts.toml: python = "/path/to/python"; '
            "a job needs torch 2.6 or newer and triton there, and Python 3.10 or newer",
        )
    )


def script(folder: Path, text: str) -> str:
    file = folder / "python-like"
    file.write_text(text)
    file.chmod(0o755)
    return str(file)


async def test_an_old_python(box: MakeBox, tmp_path: Path):
    old = f'#!{sys.executable}\nimport sys\nsys.version_info, sys.version = (3, 8), "3.8.1 (old)"\nexec(sys.argv[2])\n'
    there = box(python=script(tmp_path, old))
    assert (await events_of(there.host))[-1].message.replace(sys.executable, "PYTHON") == snapshot(
        "PYTHON on h200 is Python 3.8.1; 3.10 or newer is needed"
    )


async def test_a_very_old_python(box: MakeBox, tmp_path: Path):
    text = "#!/bin/sh\nread line\necho 'SyntaxError: future feature annotations is not defined' >&2\nexit 1\n"
    there = box(python=script(tmp_path, text))
    assert (await events_of(there.host))[-1].message.replace(str(tmp_path), "") == snapshot(
        "/python-like on h200 is older than 3.10; fx-lsp needs 3.10 or newer"
    )


async def test_a_host_that_chats(box: MakeBox, tmp_path: Path):
    there = box(python=script(tmp_path, f'#!/bin/sh\necho Welcome to the lab\nexec {sys.executable} "$@"\n'))
    assert (await events_of(there.host))[-1] == snapshot(
        Failed(
            message="h200 prints text before its Python starts",
            hint="restrict what prints there, for example a line of ~/.bashrc, to interactive shells",
        )
    )


async def test_a_program_that_ends(box: MakeBox, tmp_path: Path):
    there = box(python=script(tmp_path, "#!/bin/sh\necho 'the module system is down' >&2\nexit 3\n"))
    assert (await events_of(there.host))[-1].message == snapshot(
        "no Python answered on h200: the command that starts it exited with code 3: the module system is down"
    )


async def test_no_torch(box: MakeBox, tmp_path: Path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    there = box(python=str(tmp_path / "bare" / "bin" / "python"))
    assert (await events_of(there.host))[-1].message.replace(str(tmp_path), "") == snapshot(
        "/bare/bin/python on h200 has no torch"
    )
    assert there.left() == []


async def test_an_old_torch(box: MakeBox, tmp_path: Path):
    old = tmp_path / "packages" / "torch"
    old.mkdir(parents=True)
    (old / "__init__.py").write_text("")
    (old / "version.py").write_text("__version__ = '2.1.2+cu121'\n")
    there = box(python=script(tmp_path, f'#!/bin/sh\nPYTHONPATH={old.parent} exec {sys.executable} "$@"\n'))
    assert (await events_of(there.host))[-1].message.replace(sys.executable, "PYTHON") == snapshot(
        "PYTHON on h200 has torch 2.1.2+cu121, which is too old"
    )


async def test_no_room(box: MakeBox, tmp_path: Path):
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small], capture_output=True).returncode:
        pytest.skip("only root can make a small file system")
    try:
        last = (await events_of(box(folder=str(small)).host))[-1]
        assert last.message.replace(str(small), "FOLDER") == snapshot("there are only 0 MB free in FOLDER on h200")
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", small], check=True)


async def test_no_folder(box: MakeBox):
    last = (await events_of(box(folder="/no/folder").host))[-1]
    assert (last.message, last.hint) == snapshot(
        (
            "a job cannot write to /no/folder on h200: No such file or directory",
            'free space there, or configure another folder in hosts.toml: folder = "/path/with/space"',
        )
    )


async def test_what_the_user_has_not_said_yes_to_is_not_reached(box: MakeBox, sshd: Sshd):
    there = box()
    met = (sshd.folder / "log").read_text().count("Accepted publickey")
    assert await events_of(replace(there.host, python="/another/python")) == snapshot(
        [
            Failed(
                message="h200 (ssh box) has not been used before, and you have not confirmed it",
                hint="confirm it in a terminal: fx-lsp doctor --host h200",
            )
        ]
    )
    assert (sshd.folder / "log").read_text().count("Accepted publickey") == met
