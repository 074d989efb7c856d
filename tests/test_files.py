"""Files are read and written in one way: only regular ones, up to a limit, and in one step."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from fx_lsp import files
from fx_lsp.commands.outputs import put, remove_output, write_outputs
from fx_lsp.errors import ForeignFileError


def reason(path: str | Path, limit: int = files.MAX_BYTES) -> str:
    """Return why a file is not read."""
    with pytest.raises(OSError) as raised:
        files.read_bytes(path, limit)
    return raised.value.strerror


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    assert reason(fifo) == reason("/dev/zero") == "it is not a regular file"
    assert reason(tmp_path) == "Is a directory"
    assert reason(tmp_path / "nothing") == "No such file or directory"
    assert reason("a\0b") == "this is not a valid file name (embedded null byte)"
    assert reason("\ud800").startswith("this is not a valid file name ('utf-8' codec")
    link = tmp_path / "link"
    link.symlink_to("/dev/zero")
    assert reason(link) == "it is not a regular file"


def test_no_more_is_read_than_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert files.read_bytes(path, 5) == b"12345"
    assert reason(path, 4) == "it has more than 4 bytes"
    assert files.read_head(path, 3) == b"123"


def test_python_is_read_in_its_own_encoding(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_bytes(b"# coding: latin-1\r\ns = '\xe9'\r")
    assert files.read_python(path) == "# coding: latin-1\ns = 'é'\n"
    path.write_bytes(b"\xef\xbb\xbfs = 1\r\n")
    assert files.read_python(path) == files.read_text(path) == "s = 1\n"
    path.write_bytes(b"# coding: no-such-thing\ns = '\xe9'")
    with pytest.raises(SyntaxError):
        files.read_python(path)
    assert files.read_python_leniently(path) == "# coding: no-such-thing\ns = '\ufffd'"


def test_a_file_is_replaced_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    files.write(path, "old")
    path.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to(path)
    files.write(link, "new")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode), link.is_symlink()) == ("new", 0o640, True)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.write(path, "newer")
    assert path.read_text() == "new"
    assert sorted(tmp_path.iterdir()) == [path, link]


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (fifo, tmp_path, "/dev/null", "a\0b"):
        with pytest.raises(OSError):
            files.write(path, "text")
    assert stat.S_ISFIFO(fifo.stat().st_mode)


def test_a_new_file_replaces_none(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with files.new_file(path) as temporary:
        temporary.write_text("ours")
    with pytest.raises(FileExistsError), files.new_file(path) as temporary:
        temporary.write_text("later")
    assert path.read_text() == "ours"
    assert [*tmp_path.iterdir()] == [path]


def test_a_new_file_replaces_none_where_there_are_no_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(source: Path, place: Path) -> None:
        raise OSError(errno.EOPNOTSUPP, "no links here")

    monkeypatch.setattr(os, "link", unsupported)
    test_a_new_file_replaces_none(tmp_path)


@pytest.fixture
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "outputs"
    folder.mkdir()
    return folder


def test_an_output_is_written_again_until_somebody_edits_it(outputs: Path) -> None:
    graph, picture = outputs / "graph.py", outputs / "picture.svg"
    write_outputs({graph: "one", picture: "one"})
    write_outputs({graph: "two", picture: "two"})
    picture.write_text("mine")
    with pytest.raises(ForeignFileError) as raised:
        write_outputs({graph: "three", picture: "three"})
    assert (raised.value.filename, raised.value.strerror) == (
        str(picture),
        "it already exists, and fx-lsp did not write it",
    )
    assert (graph.read_text(), picture.read_text()) == ("two", "mine")
    write_outputs({graph: "three", picture: "mine"})
    write_outputs({picture: "four"}, force=True)
    assert (graph.read_text(), picture.read_text()) == ("three", "four")


def test_only_an_output_is_removed(outputs: Path) -> None:
    theirs, edited, ours = outputs / "theirs", outputs / "edited", outputs / "ours"
    theirs.write_text("mine")
    write_outputs({edited: "text", ours: "text"})
    edited.write_text("mine")
    for path in (theirs, edited, ours, outputs / "nothing"):
        remove_output(path)
    assert sorted(outputs.iterdir()) == [edited, theirs]


def test_a_link_to_a_file_of_the_user_is_that_file(outputs: Path) -> None:
    theirs, link = outputs / "theirs", outputs / "link"
    theirs.write_text("mine")
    link.symlink_to(theirs)
    with pytest.raises(ForeignFileError):
        write_outputs({link: "text"})
    assert theirs.read_text() == "mine"


def test_a_device_is_written_to(outputs: Path) -> None:
    put(Path("/dev/null"), "text")
    write_outputs({Path("/dev/null"): "text"})
