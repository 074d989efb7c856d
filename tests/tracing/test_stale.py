"""What a trace has read belongs to its answer: once it changes, the answer is that of a fresh process."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benches import described
from warm import warm_python

from fx_lsp.model import Failure, Trace, TraceRequest
from fx_lsp.tracing.answers.disk import is_fresh, read_dependencies
from fx_lsp.tracing.engine import Engine, EngineSettings
from fx_lsp.tracing.workers.interpreter import default_backend
from fx_lsp.tracing.workers.launch import Launch
from fx_lsp.tracing.workers.pool import Mode, Workers

HEAD = """
import json
import os
from pathlib import Path

import torch
from torch import nn

HERE = Path(__file__).parent
"""
PLAIN = """
def f(x: torch.Tensor):
    for _ in range(COUNT):
        x = torch.relu(x)
    return x
"""
NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        with open(HERE / "config.json") as stream:
            self.count = json.load(stream)["count"]

    def forward(self, x):
        for _ in range(self.count):
            x = torch.relu(x)
        return x
"""
PROGRAM = """
if __name__ == "__main__":
    f(torch.zeros(2, json.loads((HERE / "config.json").read_text())["count"]))
"""
WRITING = """
if __name__ == "__main__":
    path = Path("out.json")
    path.write_text("2")
    f(torch.zeros(int(path.read_text())))
"""
WAYS = {
    "a JSON at import": 'COUNT = json.load(open(HERE / "config.json"))["count"]',
    "an opened descriptor": (
        'fd = os.open(HERE / "config.json", os.O_RDONLY)\nCOUNT = json.loads(os.read(fd, 99))["count"]\nos.close(fd)'
    ),
    "numbers of NumPy": 'import numpy\nCOUNT = int(numpy.load(HERE / "count.npy")[0])',
    "a file that appears": 'COUNT = 3 if os.path.exists(HERE / "flag") else 1',
    "a file that appears, found by its error": (
        'try:\n    COUNT = int((HERE / "flag").read_text())\nexcept OSError:\n    COUNT = 1'
    ),
    "a size": 'COUNT = (HERE / "config.json").stat().st_size % 7',
    "names in a folder": 'COUNT = len(os.listdir(HERE / "data"))',
    "names in a folder, by a pattern": 'COUNT = len(sorted((HERE / "data").glob("*.txt")))',
    "a link": 'COUNT = json.loads((HERE / "link.json").read_text())["count"]',
    "a module": "from helper import COUNT",
    "the init of a package": "from parts import COUNT",
    "a module that appears": "try:\n    from later import COUNT\nexcept ImportError:\n    COUNT = 1",
}


class Reading:
    """A project whose files are read, and engines that have its file open with one cache on disk."""

    def __init__(self, folder: Path, mode: Mode) -> None:
        self.folder = folder
        self.mode: Mode = mode
        self.engines: list[Engine] = []
        self.engine = self.new_engine(folder.parent / "cache.sqlite3")
        (folder / "data").mkdir(parents=True)
        self.change(2)
        (folder / "flag").unlink()
        (folder / "later.py").unlink()

    @property
    def file(self) -> str:
        return str(self.folder / "m.py")

    def new_engine(self, cache: Path) -> Engine:
        settings = EngineSettings(interpreter=warm_python(), workers=1, trace_on_open=False, cache_path=str(cache))
        self.engines.append(Engine(settings, lambda file: None, lambda status: None, default_backend(self.mode)))
        return self.engines[-1]

    def change(self, count: int) -> None:
        """Change everything that `WAYS` read, so that it says another count."""
        folder = self.folder
        (folder / "config.json").write_text(json.dumps({"count": count}) + " " * count)
        (folder / f"config{count}.json").write_text(json.dumps({"count": count}))
        (folder / "count.npy").write_bytes(npy(count))
        (folder / "flag").write_text(str(count))
        (folder / "helper.py").write_text(f"COUNT = {count}\n")
        (folder / "later.py").write_text(f"COUNT = {count}\n")
        (folder / "parts").mkdir(exist_ok=True)
        (folder / "parts" / "__init__.py").write_text(f"COUNT = {count}\n")
        for number in range(count):
            (folder / "data" / f"{number}.txt").touch()
        (folder / "link.json").unlink(missing_ok=True)
        (folder / "link.json").symlink_to(f"config{count}.json")

    async def result(self, text: str, name: str = "f", engine: Engine | None = None) -> object:
        engine = engine or self.engine
        Path(self.file).write_text(text)
        engine.open(self.file, text, (str(self.folder),))
        outcome = await engine.outcome(self.file, name, final=True)
        assert not isinstance(outcome, Failure), outcome
        return described(outcome)

    async def fresh(self, text: str, name: str = "f") -> object:
        """Return the result of new processes with an empty cache."""
        engine = self.new_engine(self.folder.parent / f"empty{len(self.engines)}.sqlite3")
        return await self.result(text, name, engine)


def npy(count: int) -> bytes:
    """A file of NumPy with one number."""
    header = "{'descr': '<i8', 'fortran_order': False, 'shape': (1,), }".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + count.to_bytes(8, "little")


@pytest.fixture
def mode() -> Mode:
    return "fork"


@pytest.fixture
async def project(tmp_path: Path, mode: Mode) -> AsyncIterator[Reading]:
    project = Reading(tmp_path / "project", mode)
    yield project
    for engine in project.engines:
        await engine.shutdown()


in_both_modes = pytest.mark.parametrize("mode", ["fork", "spawn"])


@pytest.mark.torch
async def test_each_kind_of_read_makes_its_answer_stale(project: Reading) -> None:
    texts = {way: f"{HEAD}{code}\n{PLAIN}" for way, code in WAYS.items()}
    before = {way: await project.result(text) for way, text in texts.items()}
    project.change(5)
    after = {way: await project.result(text) for way, text in texts.items()}
    reopened = project.new_engine(project.folder.parent / "cache.sqlite3")
    assert {way: await project.result(text, engine=reopened) for way, text in texts.items()} == after
    empty = project.new_engine(project.folder.parent / "empty.sqlite3")
    assert {way: await project.result(text, engine=empty) for way, text in texts.items()} == after
    assert [way for way in WAYS if before[way] == after[way]] == []


@pytest.mark.torch
@pytest.mark.parametrize(
    ("mode", "text", "name"),
    [
        ("fork", HEAD + NET, "Net"),
        ("fork", f"{HEAD}COUNT = 2\n{PLAIN}{PROGRAM}", "f"),
        ("spawn", f"{HEAD}COUNT = 2\n{PLAIN}{PROGRAM}", "f"),
    ],
)
async def test_what_a_constructor_or_a_program_reads_counts(project: Reading, text: str, name: str) -> None:
    before = await project.result(text, name)
    assert await project.result(text, name) == before
    project.change(5)
    after = await project.result(text, name)
    assert after != before
    assert after == await project.fresh(text, name)


@pytest.mark.torch
async def test_an_environment_variable_belongs_to_an_answer_by_name(
    project: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = ['int(os.environ["COUNT"])', 'int(os.getenv("COUNT", "2"))', '3 if "COUNT" in os.environ else 1']
    texts = [f"{HEAD}COUNT = {way}\n{PLAIN}" for way in ways]
    monkeypatch.setenv("COUNT", "4")
    first = [await project.result(text) for text in texts]
    dependencies = project.engine.dependencies(project.file, "f", "")
    assert [d.path for d in dependencies if d.path.startswith("$")] == ["$COUNT"]
    assert not any(d.digest == "4" or "COUNT=4" in d.digest for d in dependencies)
    monkeypatch.delenv("COUNT")
    second = project.new_engine(project.folder.parent / "cache.sqlite3")
    unset = [await project.result(text, engine=second) for text in texts[1:]]
    assert unset == [await project.fresh(text) for text in texts[1:]]
    assert all(a != b for a, b in zip(first[1:], unset, strict=True))


def install(site: Path, version: str, count: int) -> None:
    """Install a distribution with another name than its package, as an installer does: the old files go first."""
    for old in site.glob("Some_Distribution-*"):
        for file in old.iterdir():
            file.unlink()
        old.rmdir()
    (site / "counting").mkdir(parents=True, exist_ok=True)
    (site / "counting" / "__init__.py").write_text("from counting.numbers import COUNT\n")
    (site / "counting" / "numbers.py").write_text(f"COUNT = {count}\n")
    metadata = site / f"Some_Distribution-{version}.dist-info"
    metadata.mkdir()
    (metadata / "RECORD").write_text(f"counting/__init__.py,,\ncounting/numbers.py,sha256={count},\n")
    long_ago = 1_000_000_000 + count
    for file in site.rglob("*.py"):
        os.utime(file, (long_ago, long_ago))


@pytest.mark.torch
@pytest.mark.parametrize("place", ["lib/site-packages", "plain"])
async def test_an_upgraded_package_makes_answers_stale(
    project: Reading, place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    site = tmp_path / place
    monkeypatch.setenv("PYTHONPATH", str(site))
    text = f"{HEAD}from counting import COUNT\n{PLAIN}"
    install(site, "1.0", 2)
    before = await project.result(text)
    assert await project.result(text) == before
    install(site, "1.1", 5)
    after = await project.result(text)
    assert after != before
    assert after == await project.fresh(text)


@in_both_modes
async def test_a_package_that_was_imported_beforehand_is_imported_again_once_it_is_upgraded(
    mode: Mode, tmp_path: Path
) -> None:
    site = tmp_path / "site-packages"
    install(site, "1.0", 2)
    paths = (str(Path(__file__).parent), str(site))
    workers = Workers(Launch(sys.executable, job="jobs:run", paths=paths, warm=False), mode)
    source = "import sys\nnotes = ['counting' in sys.modules]\nfrom counting import COUNT\nnotes += [COUNT]"

    async def notes() -> list[str]:
        outcome = (await workers.run(TraceRequest("/w/m.py", "f", "function", source, source, "m", "", ()))).outcome
        assert isinstance(outcome, Trace)
        return [*outcome.notes]

    try:
        await workers.start()
        workers.preload(["counting"])
        while await notes() != ["True", "2"]:
            pass
        install(site, "1.1", 5)
        assert (await notes())[1] == "5"
        while await notes() != ["True", "5"]:
            pass
    finally:
        await workers.close()


@pytest.mark.torch
async def test_a_world_ends_that_has_read_a_file_which_changed(project: Reading) -> None:
    text = f"{HEAD}from helper import COUNT\nSIZE = len((HERE / 'config.json').read_text())\n{PLAIN}{PROGRAM}"
    await project.result(text)
    tracers: Any = project.engine._interpreters.all[0]._tracers
    (world,) = tracers._worlds._worlds
    assert world.is_fresh()
    project.change(5)
    assert not world.is_fresh()
    await project.result(text)
    while world in tracers._worlds._worlds:  # its last fork may not have ended
        tracers._worlds._end_old([each for each in tracers._worlds._worlds if each.is_fresh()])
        await asyncio.sleep(0.01)


@pytest.mark.torch
async def test_a_program_does_not_depend_on_what_it_writes(project: Reading) -> None:
    text = f"{HEAD}COUNT = 2\n{PLAIN}{WRITING}"
    await project.result(text)
    dependencies = project.engine.dependencies(project.file, "f", "")
    assert not [d.path for d in dependencies if d.path.endswith("out.json") and d.digest]


@pytest.mark.torch
async def test_a_walk_over_many_files_is_recorded_by_folders(project: Reading) -> None:
    many = project.folder / "many"
    for part in range(3):
        (many / str(part)).mkdir(parents=True)
        for number in range(900):
            (many / str(part) / f"{number}.txt").touch()
    text = f"{HEAD}COUNT = 1 + sum(len(p.read_text()) for p in sorted((HERE / 'many').rglob('*.txt')))\n{PLAIN}"
    before = await project.result(text)
    paths = [d.path for d in project.engine.dependencies(project.file, "f", "")]
    assert len(paths) < 2100
    assert f"{many / '2'}{os.sep}" in paths
    (many / "2" / "more.txt").write_text("ab")
    assert await project.result(text) != before


def test_an_answer_holds_while_the_names_in_a_folder_do(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (dependency,) = dependencies = read_dependencies([f"{folder}{os.sep}"], {})
    assert dependency.digest
    (folder / "__pycache__").mkdir()
    assert is_fresh(dependencies, {}), "what Python itself writes does not count"
    (folder / "a.txt").touch()
    assert not is_fresh(dependencies, {})
    (folder / "a.txt").unlink()
    assert is_fresh(dependencies, {})


def test_of_a_folder_that_is_only_asked_for_the_existence_counts(tmp_path: Path) -> None:
    dependencies = read_dependencies([str(tmp_path / "data")], {})
    (tmp_path / "data").mkdir()
    assert not is_fresh(dependencies, {})
    dependencies = read_dependencies([str(tmp_path / "data")], {})
    (tmp_path / "data" / "a.txt").touch()
    assert is_fresh(dependencies, {})


async def import_failure(project: Reading, text: str, engine: Engine) -> Failure:
    """Return the failure of a target, in which a module is missing."""
    Path(project.file).write_text(text)
    engine.open(project.file, text, (str(project.folder),))
    outcome = await engine.outcome(project.file, "f", final=True)
    assert isinstance(outcome, Failure) and outcome.kind == "import", outcome
    return outcome


def forbid_traces(engine: Engine) -> Engine:
    """Let an engine answer from the cache alone: its tracers fail the test."""

    def tracers(*_: object) -> Any:
        raise AssertionError("traced again")

    engine._interpreters._backend = replace(engine._interpreters._backend, tracers=tracers)
    return engine


MISSING = {
    "a module": ("from later import COUNT", "later"),
    "a module, by its name as a text": ("import importlib\nCOUNT = importlib.import_module('later').COUNT", "later"),
    "a module of a package": ("import parts.later\nCOUNT = len(parts.later.__name__)", "parts.later"),
}


@pytest.mark.torch
@pytest.mark.parametrize("way", MISSING)
async def test_the_answer_about_a_missing_module_is_stored_until_it_may_be_there(project: Reading, way: str) -> None:
    code, module = MISSING[way]
    text = f"{HEAD}{code}\n{PLAIN}"
    before = await import_failure(project, text, project.engine)
    assert before.missing_module == module
    await project.engine.shutdown()
    cache = project.folder.parent / "cache.sqlite3"
    again = forbid_traces(project.new_engine(cache))
    assert await import_failure(project, text, again) == before
    folder = project.folder.joinpath(*module.split("."))
    folder.mkdir()
    (folder / "__init__.py").write_text("COUNT = 2\n")
    assert await project.result(text, engine=project.new_engine(cache))


@pytest.mark.torch
async def test_an_installation_makes_the_answer_about_a_missing_module_stale(
    project: Reading, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    site, elsewhere = tmp_path / "lib" / "site-packages", tmp_path / "elsewhere"
    site.mkdir(parents=True)
    install(elsewhere, "1.0", 2)
    monkeypatch.setenv("PYTHONPATH", str(site))
    text = f"{HEAD}from counting import COUNT\n{PLAIN}"
    await import_failure(project, text, project.engine)
    await project.engine.shutdown()
    cache = project.folder.parent / "cache.sqlite3"
    await import_failure(project, text, forbid_traces(project.new_engine(cache)))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(site), str(elsewhere))))
    assert await project.result(text, engine=project.new_engine(cache))
    monkeypatch.setenv("PYTHONPATH", str(site))
    install(site, "1.0", 2)
    assert await project.result(text, engine=project.new_engine(cache))
