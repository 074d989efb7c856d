import io
import logging
import os
import random
import sqlite3
import threading
import zlib
from array import array
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fx_lsp.errors import ForeignFileError
from fx_lsp.model import Failure, FailureKind, Node, Outcome, Span, Stage, Trace, TraceReply, WrittenInputs
from fx_lsp.tracing.answers.database import connect, remove, set_aside
from fx_lsp.tracing.answers.disk import (
    TRACES,
    AnswerConditions,
    Cache,
    CachedTrace,
    default_cache_path,
    is_fresh,
    read_dependencies,
)
from fx_lsp.tracing.answers.store import Answers
from fx_lsp.tracing.remote.history import RUNS
from fx_lsp.wire import PREFIX, deflate, encode_stage, frame, pack, read_frame, to_json

TRACE = Trace("/m.py::f", (), (), (), (), ("f32[2]",), 0.1, "2.13", ("a note",))


def reply(outcome: Outcome = TRACE, data: bytes = b"{}") -> TraceReply:
    return TraceReply(outcome, {"forward": data}, packages=("einops",))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "traces.sqlite3"


def storing(path: object, answer: TraceReply | None = None) -> Cache:
    """A cache in which an answer was just put."""
    cache = Cache(str(path))
    cache.put("k", answer or reply(), (), ())
    return cache


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the cache has warned of."""
    logged: list[str] = []
    logger = logging.getLogger("fx_lsp.tracing.answers.disk")
    monkeypatch.setattr(logger, "disabled", False)  # import-linter configures logging for its whole process
    monkeypatch.setattr(logger, "handle", lambda r: logged.append(r.getMessage()) if r.levelno > logging.INFO else None)
    return logged


def test_an_answer_comes_back_after_a_restart(path: Path) -> None:
    first = Cache(str(path))
    assert first.get("k", {}) is None
    first.put("k", reply(), (3, 4), ())
    first.close()
    second = Cache(str(path))
    found = second.get("k", {})
    assert found is not None
    assert (found.outcome, found.lines, found.packages) == (TRACE, (3, 4), ("einops",))
    assert second.stage("k", "forward") == b"{}"
    assert second.stage("k", "backward") is None


def test_a_new_answer_replaces_the_old_one_with_its_stages(path: Path) -> None:
    cache = storing(path)
    cache.put("k", TraceReply(Failure("shape", "sizes differ", Span("/m.py", 1, 0, 1, 2))), (), ())
    found = cache.get("k", {})
    assert found is not None and isinstance(found.outcome, Failure)
    assert cache.stage("k", "forward") is None


@pytest.mark.parametrize("kind", ["timeout", "memory", "crash", "internal", "interpreter", "no-torch", "import"])
def test_bad_luck_is_not_kept(path: Path, kind: FailureKind) -> None:
    assert storing(path, reply(Failure(kind, ""))).get("k", {}) is None


def test_an_answer_holds_while_the_files_that_it_depends_on_do(path: Path, tmp_path: Path) -> None:
    helper = tmp_path / "helper.py"
    helper.write_text("A = 1\n")
    cache = Cache(str(path))
    cache.put("k", reply(), (), read_dependencies([str(helper)], {}))
    assert cache.get("k", {})
    assert cache.get("k", {str(helper): "A = 1\n"})
    assert not cache.get("k", {str(helper): "A = 2\n"})
    helper.write_text("A = 22\n")
    assert not cache.get("k", {})
    helper.write_text("A = 1\n")
    assert cache.get("k", {})
    helper.unlink()
    assert not cache.get("k", {})


def test_an_answer_of_an_unsaved_text_holds_for_that_text(path: Path, tmp_path: Path) -> None:
    helper = tmp_path / "helper.py"
    helper.write_text("A = 1\n")
    cache = Cache(str(path))
    cache.put("k", reply(), (), read_dependencies([str(helper)], {str(helper): "A = 2\n"}))
    assert not cache.get("k", {})
    helper.write_text("A = 2\n")
    assert cache.get("k", {})


def test_what_was_used_longest_ago_makes_room(path: Path) -> None:
    now = iter(range(1000))
    cache = Cache(str(path), max_bytes=10_000, clock=lambda: next(now))
    noise = b"".join(bytes([(i * i * 7919 + i) >> 3 & 255]) for i in range(60_000))
    for number in range(3):
        cache.put(f"k{number}", reply(data=noise[number * 2500 : number * 2500 + 2500]), (), ())
    assert cache.get("k0", {})
    for number in range(3, 9):
        cache.get("k0", {})
        cache.put(f"k{number}", reply(data=noise[number * 2500 : number * 2500 + 2500]), (), ())
    assert cache.get("k0", {}) and cache.get("k8", {})
    assert not cache.get("k1", {}) and cache.stage("k1", "forward") is None


GARBAGE = [b"garbage " * 1000, b"SQLite format 3\0" + b"\0" * 5000, b"\0" * 8192, b""]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_a_damaged_file_at_our_own_place_is_set_aside(
    garbage: bytes, tmp_path: Path, warnings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = Path(default_cache_path())
    path.parent.mkdir()
    path.write_bytes(garbage)
    cache = Cache(str(path))
    assert cache.get("k", {}) is None
    cache.put("k", reply(), (), ())
    assert cache.get("k", {})
    assert path.with_name(path.name + ".broken-1").read_bytes() == garbage
    assert len(warnings) == 1


def database(path: Path, *statements: str) -> None:
    """A database of another program."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def thesis(path: Path) -> None:
    path.write_text("my thesis")


FOREIGN: dict[str, Callable[[Path], object]] = {
    "a text": thesis,
    "an empty file": Path.touch,
    "zeros": lambda path: path.write_bytes(b"\0" * 8192),
    "a database": lambda path: database(path, "CREATE TABLE songs (title)"),
    "a database with a name of ours": lambda path: database(path, "CREATE TABLE traces (key, used)"),
    "a database with more than ours": lambda path: database(
        path,
        "CREATE TABLE traces (key, bytes, used)",
        "CREATE TABLE stages (key, name, data)",
        "CREATE TABLE songs (title)",
    ),
    "a database of an application": lambda path: database(path, "PRAGMA application_id = 7", "CREATE TABLE a (b)"),
    "a history of benchmarks": lambda path: connect(path, RUNS, 1.0).close(),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_file_that_is_not_ours_is_never_touched(path: Path, kind: str, warnings: list[str]) -> None:
    path.parent.mkdir()
    FOREIGN[kind](path)
    before, status = path.read_bytes(), path.stat()
    cache = storing(path)
    assert cache.get("k", {}) is None
    reason = "it already exists, does not hold traces of fx-lsp, and stays unchanged"
    assert cache.trouble == f"traces are not stored on disk in this session: {path}: {reason}"
    assert warnings == [cache.trouble]
    with pytest.raises(ForeignFileError, match="stays unchanged"):
        remove(path, TRACES)
    assert [*path.parent.iterdir()] == [path]
    assert path.read_bytes() == before
    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns, after.st_mode) == (status.st_ino, status.st_mtime_ns, status.st_mode)


def test_what_is_no_file_is_left_alone(path: Path) -> None:
    path.mkdir(parents=True)
    fifo = path / "fifo"
    assert storing(path).trouble.endswith(": Is a directory, and stays unchanged")
    os.mkfifo(fifo)
    cache = storing(fifo)
    assert cache.trouble.endswith("/fifo: it is not a regular file, and stays unchanged")
    assert [*path.iterdir()] == [fifo]
    assert "this is not a valid file name" in storing(f"{path}/a\0b").trouble


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_a_file_beside_it_that_sqlite_would_take_for_its_own_is_left_as_it_is(path: Path, suffix: str) -> None:
    path.parent.mkdir()
    beside = path.with_name(path.name + suffix)
    thesis(beside)
    cache = storing(path)
    assert cache.trouble.endswith(f": it is not created, because {beside.name} next to it already exists")
    assert beside.read_text() == "my thesis"


def test_what_is_set_aside_takes_the_place_of_no_other_file(path: Path) -> None:
    path.parent.mkdir()
    names = [path.with_name(f"{path.name}.broken-{number}") for number in (1, 2, 3)]
    for name in names:
        thesis(name)
    for _ in range(2):
        storing(path)
        aside = set_aside(path, TRACES)
    assert aside.name.endswith(".broken-5")
    assert [name.read_text() for name in names] == ["my thesis"] * 3


def test_a_cache_is_removed_with_what_sqlite_keeps_beside_it(path: Path) -> None:
    storing(path)
    assert len([*path.parent.iterdir()]) > 1
    remove(path, TRACES)
    assert [*path.parent.iterdir()] == []
    remove(path, TRACES)


def test_a_cache_from_before_files_said_whose_they_are_is_set_aside(path: Path) -> None:
    path.parent.mkdir()
    database(
        path,
        "CREATE TABLE traces (key PRIMARY KEY, outcome, meta, bytes, used) WITHOUT ROWID",
        "CREATE TABLE stages (key, name, data, PRIMARY KEY (key, name))",
        "PRAGMA user_version = 2",
    )
    before = path.read_bytes()
    cache = storing(path)
    assert cache.get("k", {})
    assert path.with_name(path.name + ".broken-1").read_bytes() == before


class Stored:
    """A cache with one answer whose row somebody else writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cache = Cache(str(path))
        self.cache.put("k", reply(), (3,), ())

    def write(self, column: str, value: object) -> None:
        table = "stages" if column == "data" else "traces"
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute(f"UPDATE {table} SET {column} = ?", (value,))


ANSWER = {"trace": to_json(TRACE), "failure": None, "lines": [3], "dependencies": [], "packages": []}
NOT_ANSWERS: dict[str, object] = {
    "null": pack(None),
    "a list": pack([]),
    "an empty object": pack({}),
    "no outcome": pack({**ANSWER, "trace": None}),
    "a trace that is a list": pack({**ANSWER, "trace": [1]}),
    "a number for a name": pack({**ANSWER, "trace": {**ANSWER["trace"], "target": 3}}),
    "a name for a number": pack({**ANSWER, "lines": ["3"]}),
    "a text for a list": pack({**ANSWER, "packages": "einops"}),
    "a kind that there is not": pack(
        {**ANSWER, "trace": None, "failure": {"kind": "bad", "message": "", "span": None}}
    ),
    "nested without end": deflate(b"[" * 100_000),
    "no JSON": deflate(b"\xff"),
    "an unfinished text": pack(ANSWER)[:-9],
    "a number": 7,
    "text": "text",
}


@pytest.mark.parametrize("kind", NOT_ANSWERS)
def test_a_stored_answer_that_is_none_is_a_miss(path: Path, kind: str, warnings: list[str]) -> None:
    stored = Stored(path)
    stored.write("answer", pack(ANSWER))
    assert stored.cache.get("k", {})
    stored.write("answer", NOT_ANSWERS[kind])
    assert stored.cache.get("k", {}) is None
    assert stored.cache.stage("k", "forward") == b"{}"
    stored.cache.put("k", reply(), (3,), ())
    assert stored.cache.get("k", {})
    assert (stored.cache.trouble, warnings) == ("", [])


def test_no_more_is_unpacked_than_is_ever_stored(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fx_lsp.wire.MAX_UNPACKED", 1 << 20)
    stored = Stored(path)
    for size, whole in ((1 << 20, True), ((1 << 20) + 1, False)):
        stored.write("data", zlib.compress(bytes(size)))
        assert (stored.cache.stage("k", "forward") is not None) is whole


STAGE = Stage("forward", (Node("x", "placeholder", "x", spec="f32[2]", spans=(Span("/m.py", 1, 0, 1, 2),)),), "")
HEADER, BODY = read_frame(io.BytesIO(encode_stage(STAGE)).read) or ({}, b"")
NOT_STAGES = {
    "nothing": b"",
    "null": PREFIX.pack(4, 0) + b"null",
    "an empty object": frame({}),
    "no columns": frame({**HEADER, "columns": []}, BODY),
    "no body": frame(HEADER),
    "a length of 3 GiB": PREFIX.pack(3 << 30, 0),
    "a name that is a number": frame({**HEADER, "name": 3}, BODY),
    "words that are numbers": frame({**HEADER, "words": [*range(len(HEADER["words"]))]}, BODY),
    "words that are nothing": frame({**HEADER, "words": [None] * len(HEADER["words"])}, BODY),
    "words in another order": frame({**HEADER, "words": HEADER["words"][::-1]}, BODY),
    "numbers below 0": frame(HEADER, array("i", [-1] * (len(BODY) // 4)).tobytes()),
    "numbers of no word": frame(HEADER, array("i", [99] * (len(BODY) // 4)).tobytes()),
}


@pytest.mark.parametrize("kind", NOT_STAGES)
async def test_a_stored_stage_that_is_none_is_a_miss(path: Path, kind: str) -> None:
    stored = Stored(path)
    answers = Answers(stored.cache)
    stored.write("data", deflate(encode_stage(STAGE)))
    assert await answers.stage("k", "forward") == STAGE
    stored.write("data", deflate(NOT_STAGES[kind]))
    answers = Answers(stored.cache)
    assert await answers.stage("k", "forward") is None
    assert answers.stage_now("k", "forward") is None


async def test_memory_has_the_answers_that_are_shown_and_those_that_are_nowhere_else(path: Path) -> None:
    answers, data = Answers(Cache(str(path))), encode_stage(STAGE)
    for key in ("shown", "hidden", "elsewhere"):
        answers.keep(key, CachedTrace(TRACE, (), ()), {"forward": data})
        await answers.decode(key, ["forward"])
        if key != "elsewhere":
            await answers.store(key, reply(data=data), (), ())
    answers.release({"shown"})
    assert [*answers._answers] == ["shown", "elsewhere"]
    assert [key for key, _ in answers._stages] == ["shown"]
    assert answers.stage_now("hidden", "forward") is None
    assert {*await answers.find(["shown", "hidden", "elsewhere"], {})} == {"shown", "hidden", "elsewhere"}
    for key in ("shown", "hidden", "elsewhere"):
        assert await answers.stage(key, "forward") == STAGE


async def test_of_answers_that_are_not_on_disk_memory_has_the_last(path: Path) -> None:
    answers = Answers(Cache(None))
    for number in range(300):
        answers.keep(f"k{number}", CachedTrace(TRACE, (), ()), {"forward": b""})
        answers.release({"k0"})
    assert [*answers._answers] == ["k0", *(f"k{number}" for number in range(200, 300))]
    assert len([*answers._encoded]) == 101


def test_a_file_damaged_while_open_is_set_aside(path: Path) -> None:
    cache = Cache(str(path))
    for number in range(200):
        cache.put(f"k{number}", reply(data=str(number).encode() * 500), (), ())
    cache.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    cache = Cache(str(path))
    assert cache.get("k1", {}) is None
    cache.put("k1", reply(), (), ())
    assert cache.get("k1", {})


def test_a_file_whose_damage_is_quoted_in_bytes_that_are_no_text_is_set_aside(path: Path) -> None:
    cache = storing(path)
    cache.close()
    path.write_bytes(path.read_bytes().replace(b"by_use ON traces", b"by_use ON \x89\xff\xfeces"))
    cache = Cache(str(path))
    assert cache.get("k", {}) is None
    cache.put("k", reply(), (), ())
    assert cache.get("k", {})
    assert path.with_name(path.name + ".broken-1").exists()


def test_a_file_of_another_version_is_set_aside(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA application_id = {TRACES.application}")
        connection.execute("PRAGMA user_version = 99")
        connection.execute("CREATE TABLE traces (x)")
    connection.close()
    cache = storing(path)
    assert cache.get("k", {})
    assert path.with_name(path.name + ".broken-1").exists()


def test_a_place_that_cannot_be_written_turns_the_cache_off(tmp_path: Path, warnings: list[str]) -> None:
    (tmp_path / "file").touch()
    cache = storing(tmp_path / "file" / "traces.sqlite3")
    assert cache.get("k", {}) is None
    assert len(warnings) == 1


@pytest.mark.parametrize("room", [0, 50_000, 200_000])
def test_a_full_disk_turns_the_cache_off_and_keeps_what_was_there(path: Path, warnings: list[str], room: int) -> None:
    resource = pytest.importorskip("resource")
    noise = random.Random(0).randbytes(20_000)
    before = storing(path)
    cache = Cache(str(path))
    assert cache.get("k", {})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        for number in range(20):
            cache.put(f"k{number}", reply(data=noise), (), ())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert cache.trouble.startswith("traces are not stored on disk in this session: ")
    assert warnings == [cache.trouble]
    assert cache.get("k", {}) is None
    assert Cache(str(path)).get("k", {}) and before.get("k", {})


def test_a_locked_file_is_left_alone_for_a_while(path: Path, warnings: list[str], monkeypatch) -> None:
    cache = storing(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    cache.put("l", reply(), (), ())
    other.execute("ROLLBACK")
    other.close()
    assert cache.get("k", {}) is None
    assert cache.trouble == f"traces are not stored on disk at the moment: {path}: database is locked"
    assert Cache(str(path)).get("k", {}) is not None
    monkeypatch.setattr("fx_lsp.tracing.answers.disk._REST_SECONDS", 0)
    cache._rest(sqlite3.OperationalError("database is locked"))
    assert cache.get("k", {}) is not None and cache.trouble == ""
    assert not warnings


def test_no_path_is_no_cache() -> None:
    cache = Cache(None)
    cache.put("k", reply(), (), ())
    assert cache.get("k", {}) is None


def test_servers_that_begin_together_share_one_file(tmp_path: Path, monkeypatch, warnings: list[str]) -> None:
    monkeypatch.setattr("fx_lsp.tracing.answers.disk._LOCK_SECONDS", 60)
    for attempt in range(50):
        caches = [Cache(str(tmp_path / f"{attempt}" / "traces.sqlite3")) for _ in range(4)]
        together = threading.Barrier(len(caches))

        def fill(cache: Cache, number: int, together: threading.Barrier = together) -> None:
            together.wait()
            for i in range(8):
                cache.put(f"{number}-{i}", reply(), (), ())

        threads = [threading.Thread(target=fill, args=(c, number)) for number, c in enumerate(caches)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(caches[0].get(f"{number}-{i}", {}) for number in range(4) for i in range(8))
    assert not warnings


def test_everything_that_changes_the_answer_changes_the_key() -> None:
    place, elsewhere = Span("/m.py", 3, 0, 3, 9), Span("/m.py", 3, 4, 3, 13)
    values: dict[str, tuple[object, object]] = {
        "file": ("/m.py", "/n.py"),
        "fingerprint": ("f", "g"),
        "name": ("f", "g"),
        "kind": ("function", "module"),
        "evident": (True, False),
        "compiled": ("", "whole"),
        "module": ("m", "n"),
        "package": ("", "p"),
        "inputs": tuple((WrittenInputs("x=f32[2]", "comment", span),) for span in (place, elsewhere)),
        "interpreter": ("i", "j"),
        "version": ("1", "2"),
        "search_seconds": (5.0, 6.0),
        "roots": (("/",), ("/", "/a")),
    }
    base: dict[str, Any] = {name: before for name, (before, _) in values.items()}
    changed = [AnswerConditions(**{**base, name: after}).key() for name, (_, after) in values.items()]
    keys = {AnswerConditions(**base).key(), *changed}
    assert len(keys) == len(base) + 1
    moved = (WrittenInputs("x=f32[2]", "comment", Span("/m.py", 7, 0, 7, 9)),)
    of_settings = (WrittenInputs("x=f32[2]", "settings", Span("/m.py", 3, 0, 3, 9)),)
    assert AnswerConditions(**{**base, "inputs": moved}).key() in keys
    assert AnswerConditions(**{**base, "inputs": of_settings}).key() not in keys


def test_the_cache_is_where_the_platform_keeps_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert Path(default_cache_path()) == Path("/xdg/fx-lsp/traces.sqlite3")


def test_a_file_that_changed_while_it_was_read_is_never_fresh(tmp_path: Path) -> None:
    helper = tmp_path / "helper.py"
    helper.write_text("A = 1")
    written = helper.stat().st_mtime
    assert is_fresh(read_dependencies([str(helper)], {}, written + 1), {})
    assert not is_fresh(read_dependencies([str(helper)], {}, written - 1), {})
