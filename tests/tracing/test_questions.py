"""What is asked about a target: as text, where it crosses a boundary, and as the key of an answer."""

import pytest
from inline_snapshot import snapshot

from fx_lsp.model import plain_work, read_work, variant_of, variant_work, write_work
from fx_lsp.tracing.answers.question import TargetQuestion


@pytest.mark.parametrize(
    "work",
    ["", "passes", "passes&table=core&check", "lowered&target=cuda:90", "pass=/a b/own passes.py::C.fuse&on=joint"],
)
def test_work_is_the_same_after_it_was_read(work: str) -> None:
    assert write_work(read_work(work)) == work


def test_what_would_end_a_part_of_work_is_quoted() -> None:
    work = write_work({"pass": "/a&b/100%.py::f", "on": "torch"})
    assert work == snapshot("pass=/a%26b/100%25.py::f&on=torch")
    assert read_work(work) == snapshot({"pass": "/a&b/100%.py::f", "on": "torch"})


def test_work_may_be_done_with_a_variant() -> None:
    work = variant_work("mask", "passes&table=core")
    assert work == snapshot("passes&table=core&variant=mask")
    assert (variant_of(work), plain_work(work)) == ("mask", "passes&table=core")
    assert variant_work("", "passes") == "passes"


@pytest.mark.parametrize(
    "work, key",
    [
        ("", "k"),
        ("passes&table=core", "k?passes&table=core"),
        ("checkpoint=7-9", "k?checkpoint=1-3"),
        ("checkpoint=7-9&variant=mask", "k?checkpoint=1-3&variant=mask"),
    ],
)
def test_a_key_counts_lines_within_the_target(work: str, key: str) -> None:
    question = TargetQuestion("f", work)
    assert question.key("k", [6, 7, 8, 9]) == key
    moved = TargetQuestion("f", work.replace("7-9", "17-19"))
    assert moved.key("k", [16, 17, 18, 19]) == key
