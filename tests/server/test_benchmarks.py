"""Benchmarks in an editor: a command, progress, a page, a lens, a hover. The server, torch and a host are real."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException
from sessions import REAL, Choosing, editor
from warm import warm_python

pytestmark = pytest.mark.torch

SOURCE = "import torch\n\n\n# fx: x=f32[64, 32]\ndef double(x):\n    return torch.relu(x) * 2\n"
QUICK = {"hosts": ["local"], "variants": ["eager"], "what": ["forward"]}


class Measuring(Choosing):
    def progress(self, title: str) -> tuple[str | int, list[str], bool] | None:
        """The token of a progress, what it said, and whether it has ended."""
        for token, reports in self.client.progress_reports.items():
            kinds = {report.kind: report for report in reports}
            if "begin" in kinds and kinds["begin"].title == title:
                return token, [r.message for r in reports if getattr(r, "message", None)], "end" in kinds
        return None

    async def lens(self, uri: str, title: str) -> types.CodeLens:
        """The lens whose title begins like this, once there is one."""
        for _ in range(600):
            for lens in await self.lenses(uri):
                if lens.command is not None and lens.command.title.startswith(title):
                    return lens
            await asyncio.sleep(0.1)
        raise AssertionError(f"no lens {title!r}: {await self.titles(uri)}")

    def done(self, title: str) -> bool:
        found = self.progress(title)
        return found is not None and found[2]


@asynccontextmanager
async def session(folder: Path, text: str = SOURCE, **options: Any) -> AsyncIterator[tuple[Measuring, str]]:
    """An editor that has a file with this text open, and its URI."""
    env = {"XDG_CONFIG_HOME": str(config_of(folder))}
    options = {"interpreter": warm_python(), **options}
    async with editor(folder, options=options, command=REAL, env=env, make=Measuring) as found:
        yield found, found.open("model.py", text)


def config_of(folder: Path) -> Path:
    """Where the user's settings are: never in the workspace, which may name no hosts."""
    return folder.with_name(f"{folder.name}-config")


def name_host(folder: Path, text: str) -> None:
    place = config_of(folder) / "fx-lsp"
    place.mkdir(parents=True, mode=0o700)
    (place / "hosts.toml").write_text(text)


async def test_a_benchmark_is_measured_shown_and_kept(tmp_path: Path):
    async with session(tmp_path) as (found, uri):
        await found.until(lambda: found.client.diagnostics)
        shown = await found.command("fxLsp.bench", uri, "double", QUICK)
        assert shown["uri"].endswith("/double.benchmark.txt?benchmark")
        before = await found.document(shown["uri"])
        assert before.startswith("measuring on local: ")
        await found.until(lambda: found.done("Benchmark of double"))
        assert any("eager" in text for text in found.progress("Benchmark of double")[1])

        page = await found.document(shown["uri"])
        assert re.search(r"double · .*torch [\d.]+.*\n.*\n\nforward · x: f32\[64, 32\].*\n  variant .*\n  eager ", page)
        lens = await found.lens(uri, "measured")
        assert [*lens.command.arguments][1:] == ["double", "benchmark", "benchmark"]
        assert "| eager |" in (await found.hover(uri, 4, 5) or "")

        found.change(uri, 2, SOURCE.replace("* 2", "* 3"))
        await found.lens(uri, "stale · measured")
        assert "stale: the source has changed since" in await found.document(shown["uri"])

    async with session(tmp_path) as (again, uri):  # it is kept
        await again.lens(uri, "measured")
        data = await again.client.protocol.send_request_async("fxLsp/benchmark", {"uri": shown["uri"]})
        assert [(r.host, r.stale, r.last) for r in data.runs] == [("local", False, True)]
        assert data.runs[0].report.measured[0].variant == "eager"


async def test_what_was_measured_is_stale_once_an_import_has_changed(tmp_path: Path):
    factors = tmp_path / "factors.py"
    factors.write_text("TWO = 2\n")
    text = SOURCE.replace("import torch\n", "import torch\n\nfrom factors import TWO\n").replace("* 2", "* TWO")
    async with session(tmp_path, text) as (found, uri):
        await found.until(lambda: found.client.diagnostics)
        await found.command("fxLsp.bench", uri, "double", {**QUICK, "show": False})
        await found.lens(uri, "measured")
        imported = found.open("factors.py", factors.read_text())
        found.change(imported, 2, "TWO = 3\n")
        await found.lens(uri, "stale · measured")
        found.change(imported, 3, "TWO = 2\n")
        await found.lens(uri, "measured")


async def test_a_benchmark_is_stopped(tmp_path: Path):
    async with session(tmp_path) as (found, uri):
        await found.command("fxLsp.bench", uri, "double", {"hosts": ["local"], "show": False})
        token, _, _ = await found.until(lambda: found.progress("Benchmark of double"))
        await found.until(lambda: any("local: " in text for text in found.progress("Benchmark of double")[1]))
        found.client.window_work_done_progress_cancel(types.WorkDoneProgressCancelParams(token))
        await found.until(lambda: found.done("Benchmark of double"))
        data = await found.client.protocol.send_request_async("fxLsp/benchmark", {"uri": page_of(tmp_path)})
        assert (data.running, data.runs) == ([], [])


async def test_a_command_stops_what_is_measured_of_a_target(tmp_path: Path):
    async with session(tmp_path) as (found, uri):
        page = await found.command("fxLsp.bench", uri, "double", {"hosts": ["local"], "show": False})
        await found.until(lambda: found.progress("Benchmark of double"))
        await found.command("fxLsp.stopBench", uri, "another")
        assert not found.done("Benchmark of double")
        await found.command("fxLsp.stopBench", page["uri"], "")
        await found.until(lambda: found.done("Benchmark of double"))
        assert await found.command("fxLsp.stopBench", uri, "double") is None


async def test_a_host_that_was_never_used_is_asked_for(tmp_path: Path):
    name_host(tmp_path, '[hosts.box]\ncommand = "false"\n')
    async with session(tmp_path) as (found, uri):
        assert await found.command("fxLsp.bench", uri, "double", {"hosts": ["box"]}) is None
        assert "box has not been used before" in found.questions[0]
        assert "false" in found.questions[0]
        known = await found.command("fxLsp.hosts")
        assert [(h["name"], h["kind"], h["trusted"]) for h in known["hosts"]] == [
            ("local", "host", True),
            ("box", "host", False),
        ]

        found.choice = "Use box"
        assert await found.command("fxLsp.bench", uri, "double", {"hosts": ["box"], "show": False})
        await found.until(lambda: any("was not measured on box" in m for m in found.told))
        data = await found.client.protocol.send_request_async("fxLsp/benchmark", {"uri": page_of(tmp_path)})
        assert [f.host for f in data.failures] == ["box"]
        assert (await found.document(page_of(tmp_path))).startswith(f"not measured on box: {data.failures[0].message}")


async def test_without_a_host_the_user_chooses(tmp_path: Path):
    name_host(tmp_path, '[hosts.box]\ncommand = "false"\n')
    async with session(tmp_path) as (found, uri):
        assert await found.command("fxLsp.bench", uri, "double") is None
        assert found.questions == ["Benchmark double on …"]
    async with session(tmp_path, host="nowhere") as (found, uri):
        assert await found.command("fxLsp.bench", uri, "double") is None
        await found.until(lambda: any("there is no host nowhere" in m for m in found.told))


async def test_nothing_is_measured_in_a_workspace_that_is_not_trusted(tmp_path: Path):
    async with session(tmp_path, trusted=False) as (found, uri):
        assert await found.command("fxLsp.bench", uri, "double", QUICK) is None
        await found.until(lambda: any("not trusted" in m for m in found.told))


WRONG: list[tuple[object, str]] = [
    ({"host": "local"}, "there is no option host; there are: hosts, variants,"),
    ({"hosts": "local"}, "hosts must be a list of strings"),
    ({"what": ["sideways"]}, "`what` must be a list of forward, backward, both"),
    ({"sweep": "N"}, "`N` is not a sweep"),
    ({"work": "triton&fuse=perhaps"}, "there is no fuse=perhaps: choose one of yes, no"),
    ("local", "the options must be an object"),
]


async def test_options_that_there_are_not(tmp_path: Path):
    async with session(tmp_path) as (found, uri):
        for options, message in WRONG:
            with pytest.raises(JsonRpcException, match=re.escape(message)):
                await found.command("fxLsp.bench", uri, "double", options)


def page_of(folder: Path) -> str:
    return f"fx-lsp:{folder}/model.py/double.benchmark.txt?benchmark"
