"""What passes do to ten functions, as a person reads it: one file of `tests/golden/diffs` each.

`UPDATE_GOLDEN=1 pytest tests/tracer/passes/test_golden_diffs.py` writes the files anew; review what git says of them.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Traced, in_fork

from fx_lsp.features.documents.diffs import diff_lines
from fx_lsp.model import TraceReply
from fx_lsp.tracing.analysis import analyse

TESTS = Path(__file__).parents[2]
FILE = TESTS / "fixtures" / "thirty.py"
TEXT = FILE.read_text()

DIFFS = [
    ("matmul", "forward:partition", "forward:pass_pattern_2"),
    ("attention", "joint", "decomposed"),
    ("layer_norm", "joint", "decomposed"),
    ("gelu", "joint", "decomposed"),
    ("cross_entropy", "joint:remove_noop_ops", "joint:pass_pattern_0"),
    ("dropout", "decomposed", "joint:fuse_seed_creation_pass"),
    ("convolution", "backward:partition", "backward:layouts"),
    ("loop", "backward:partition", "backward:pass_pattern_2"),
    ("the_same_twice", "decomposed", "joint:pattern_matcher"),
    ("Normalized", "torch", "dynamo"),
]


@pytest.fixture(scope="module")
def traced(warm_torch: None) -> dict[str, Traced]:
    return {name: Traced(reply, TEXT) for name, reply in in_fork(trace_all).items()}


def trace_all() -> dict[str, TraceReply]:
    from fx_lsp.tracer.job import run

    analysis = analyse(str(FILE), TEXT, ())
    return {name: run(replace(analysis.request(name, {}, 5.0), work="passes")) for name, *_ in DIFFS}


@pytest.mark.parametrize(("name", "before", "after"), DIFFS, ids=lambda part: str(part))
def test_golden_diffs(name: str, before: str, after: str, traced: dict[str, Traced]):
    stages = [traced[name].stage(stage) for stage in (before, after)]
    found = "\n".join(line.text for line in diff_lines(*stages)) + "\n"
    golden = TESTS / "golden" / "diffs" / f"{name}.diff"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(found)
    assert found == golden.read_text()


def test_there_is_a_file_for_each_and_for_nothing_else():
    assert sorted(p.stem for p in (TESTS / "golden" / "diffs").iterdir()) == sorted(name for name, *_ in DIFFS)
