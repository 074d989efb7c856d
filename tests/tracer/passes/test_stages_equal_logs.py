"""Stages against what TORCH_LOGS prints when `torch.compile` runs the same functions on real tensors, node for node.

Both sides are read as the text that a person sees; names may differ, as long as they stand for the same nodes.

- With Inductor everything is the same, to the order of the inputs: both graphs come from Dynamo.
- The graphs that every trace has come from the Python code, without Dynamo. Their inputs are in the order of the
  signature, parameters and buffers first and all of them, where Dynamo has those that are used in the order of their
  first use; so are the gradients, and the write-backs of mutated inputs. Nothing else differs.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from conftest import in_fork
from printed import Row, in_order_of_use, logged_graphs, rows_of_stage

from fx_lsp import wire
from fx_lsp.model import Trace, TraceReply
from fx_lsp.tracing.analysis import analyse

FILE = Path(__file__).parents[2] / "fixtures" / "thirty.py"
ANALYSIS = analyse(str(FILE), FILE.read_text(), ())
TARGETS = [name for name in ANALYSIS.targets if "." not in name]
LOGS = "aot_joint_graph,aot_graphs,post_grad_graphs"
INFERENCE = ("without_gradients",)

pytestmark = pytest.mark.torch


@dataclass(frozen=True)
class Sides:
    """The graphs of every target by the name of their stage, and what torch printed of it, by kind of run."""

    ours: dict[str, TraceReply]
    logs: dict[tuple[str, str], str]

    def stage(self, target: str, name: str) -> list[Row]:
        """A stage of ours; `forward:` is the last one of forward."""
        trace = self.ours[target].outcome
        assert isinstance(trace, Trace), trace
        if name.endswith(":"):
            name = [info.name for info in trace.stages if info.name.startswith(name)][-1]
        return rows_of_stage(wire.decode_stage(self.ours[target].stages[trace.kept(name) or ""]))

    def logged(self, target: str, run: str) -> list[tuple[str, list[Row]]]:
        """The graphs of a log in their order, each with its title."""
        return list(logged_graphs(self.logs[target, run]))


@pytest.fixture(scope="module")
def sides(warm_torch: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    log = tmp_path_factory.mktemp("logs") / "log"
    environment = {**os.environ, "TORCH_LOGS": LOGS, "PYTORCH_JIT": "1"}
    with log.open("w") as out:
        command = [sys.executable, "-W", "ignore", str(Path(__file__).parent / "logged.py"), str(FILE)]
        with subprocess.Popen(command, stderr=out, env=environment) as process:
            ours = in_fork(trace_all)
            assert process.wait(300) == 0, log.read_text()[-2000:]
    parts = re.split(r"^@@ (\w+) (\w+)$", log.read_text(), flags=re.MULTILINE)
    yield Sides(ours, dict(zip(zip(parts[1::3], parts[2::3], strict=True), parts[3::3], strict=True)))


def trace_all() -> dict[str, TraceReply]:
    from fx_lsp.tracer.job import run

    return {name: run(replace(ANALYSIS.request(name, {}, 5.0), work="passes")) for name in TARGETS}


def test_there_are_thirty():
    assert len(TARGETS) >= 30


@pytest.mark.parametrize("target", TARGETS)
def test_with_inductor(target: str, sides: Sides):
    found = sides.logged(target, "inductor")
    if target in INFERENCE:
        wanted = [("Forward graph", "decomposed"), ("AFTER POST GRAD", "inference:")]
    else:
        wanted = [
            ("Joint graph", "decomposed"),
            ("Forward graph", "forward:partition"),
            ("Backward graph", "backward:partition"),
            ("AFTER POST GRAD", "forward:"),
            ("AFTER POST GRAD", "backward:"),
        ]
    assert [title for title, _ in found] == [title for title, _ in wanted]
    for (title, rows), (_, stage) in zip(found, wanted, strict=True):
        assert (title, sides.stage(target, stage)) == (title, rows)


@pytest.mark.parametrize("target", TARGETS)
def test_with_aot_autograd_alone(target: str, sides: Sides):
    found = sides.logged(target, "plain")
    if target in INFERENCE:
        wanted = [("Forward graph", "inference")]
    else:
        wanted = [("Joint graph", "joint"), ("Forward graph", "forward"), ("Backward graph", "backward")]
    assert [title for title, _ in found] == [title for title, _ in wanted]
    ours = in_order_of_use([sides.stage(target, stage) for _, stage in wanted])
    logged = in_order_of_use([rows for _, rows in found])
    for (title, _), mine, theirs in zip(found, ours, logged, strict=True):
        assert (title, mine) == (title, theirs)
