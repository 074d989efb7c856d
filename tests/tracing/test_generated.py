"""A file of kernels that was edited: what becomes of it when they are generated again, and what is known of it."""

from dataclasses import replace
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from fx_lsp.tracing.analysis import analyse
from fx_lsp.tracing.answers.disk import read_dependencies
from fx_lsp.tracing.kernel_files.generated import (
    WRONG,
    Generated,
    Record,
    Refusal,
    Standing,
    Update,
    _digest_in,
    is_known,
    keep,
    read,
    record_of,
    standing,
    undone,
    update,
    write,
)

SOURCE = "import torch\n\n\n# fx: x=f32[8]\ndef f(x):\n    return torch.exp(x) * 2\n"
OLD = Generated("/project/model.py", "f", "triton", "a = 1\nb = 2\nc = 3\nd = 4\ne = 5\n")
NEW = replace(OLD, text="a = 1\nb = 2\nc = 3\nd = 4\ne = 6\n")
EDITED = OLD.text.replace("a = 1", "a = 10")


def test_a_file_that_is_not_there_or_empty():
    assert update(None, None, NEW) == Update(NEW.text)
    assert update(Record(OLD), "\n", NEW) == Update(NEW.text)


def test_edits_are_kept():
    found = update(Record(OLD), EDITED, NEW)
    assert found == Update("a = 10\nb = 2\nc = 3\nd = 4\ne = 6\n", kept=1)
    assert found.said(EDITED) == "updated, 1 edit kept"
    assert found.said(found.text) == "unchanged, 1 edit kept"


def test_line_ends_are_kept():
    found = update(Record(OLD), EDITED.replace("\n", "\r\n"), NEW)
    assert found == Update("a = 10\r\nb = 2\r\nc = 3\r\nd = 4\r\ne = 6\r\n", kept=1)


def test_a_conflict_is_left_to_its_user_and_not_merged_again():
    found = update(Record(OLD), OLD.text.replace("e = 5", "e = 50"), NEW)
    assert isinstance(found, Update)
    assert found.conflicts == (5,)
    assert found.said(OLD.text) == snapshot(
        "1 conflict between your edits and the newly generated code: resolve them, and remove the markers"
    )
    again = update(Record(NEW), found.text, NEW)
    assert again == snapshot(Refusal(reason="has unresolved conflicts", conflicts=(5,)))


def test_once_it_is_resolved_nobody_asks_again():
    resolved = OLD.text.replace("e = 5", "e = 50")
    over = "what it was before"
    assert update(Record(NEW, over, OLD), resolved, NEW) == Update(resolved, kept=1)


def test_a_file_of_which_nothing_is_known_is_left_alone():
    assert update(None, EDITED, NEW) == snapshot(
        Refusal(reason="already exists, and was not generated here or its generated state is no longer known")
    )
    assert update(None, NEW.text, NEW) == Update(NEW.text), "as it is now, nothing can be lost"


def test_kernels_of_another_function_replace_only_what_nobody_edited():
    other = replace(NEW, name="g")
    assert update(Record(OLD), OLD.text, other) == Update(other.text)
    assert update(Record(OLD), EDITED, other) == snapshot(Refusal(reason="has edited kernels of model.py::f"))


def test_what_a_comparison_said_stays_with_the_text_that_it_is_about():
    said = f"{WRONG}#\n#     wrong  out\n\n"
    assert update(Record(OLD), said + EDITED, OLD) == Update(said + EDITED, kept=1)
    found = update(Record(OLD), said + EDITED, NEW)
    assert isinstance(found, Update) and found.text.startswith("a = 10\n")


def test_what_is_known_is_found_by_the_file(tmp_path: Path):
    base, file = tmp_path / "base", tmp_path / "kernels.py"
    write(file, OLD.text)
    assert record_of(file, base) is None and not is_known(file, base)
    keep(file, OLD, base=base)
    (tmp_path / "link.py").symlink_to(file)
    assert record_of(tmp_path / "link.py", base) == Record(OLD)
    assert is_known(file, base)
    assert {path.name for path in tmp_path.iterdir()} == {"base", "kernels.py", "link.py"}
    (entry,) = base.iterdir()
    entry.write_text("{}")
    assert record_of(file, base) is None


def test_a_merge_that_is_undone_counts_no_longer(tmp_path: Path):
    file = tmp_path / "kernels.py"
    keep(file, OLD, base=tmp_path)
    keep(file, NEW, over=EDITED, base=tmp_path)
    known = record_of(file, tmp_path)
    assert known is not None
    assert update(known, EDITED, NEW) == update(Record(OLD), EDITED, NEW)
    assert known.of(OLD.text) == OLD, "so is the edit"
    assert undone(file, EDITED.replace("c", "C"), tmp_path) == known
    assert undone(file, EDITED, tmp_path) == Record(OLD) == record_of(file, tmp_path)


def test_a_file_keeps_its_permissions_and_bytes(tmp_path: Path):
    file = tmp_path / "kernels.py"
    file.write_bytes(b"# caf\xe9\r\n" + EDITED.encode())
    file.chmod(0o750)
    write(file, read(file) or "")
    assert file.read_bytes() == b"# caf\xe9\r\n" + EDITED.encode()
    assert file.stat().st_mode & 0o777 == 0o750
    assert list(tmp_path.iterdir()) == [file]
    assert read(tmp_path / "none.py") is None and read(tmp_path) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (SOURCE, "current"),
        ("# another comment\nunused = 1\n" + SOURCE, "current"),
        (SOURCE.replace("* 2", "* 3"), "changed"),
        (SOURCE.replace("f32[8]", "f32[9]"), "changed"),
        (SOURCE.replace("def f", "def g"), "gone"),
        (SOURCE.replace("def f", "def def"), "unknown"),
        (None, "gone"),
    ],
)
def test_kernels_are_stale_once_what_they_were_made_from_has_changed(text: str | None, found: Standing):
    digest = _digest_in(analyse("/project/model.py", SOURCE, ()), "f")
    assert standing(replace(OLD, digest=digest), text, {}) == found


def test_so_are_they_when_an_imported_file_has_changed(tmp_path: Path):
    helper = tmp_path / "helper.py"
    helper.write_text("SCALE = 2\n")
    digest = _digest_in(analyse(OLD.source, SOURCE, ()), "f")
    made = replace(OLD, digest=digest, dependencies=read_dependencies([str(helper)], {}))
    assert standing(made, SOURCE, {}) == "current"
    assert standing(made, SOURCE, {str(helper): "SCALE = 3\n"}) == "changed"
    helper.write_text("SCALE = 30\n")
    assert standing(made, SOURCE, {}) == "changed"
