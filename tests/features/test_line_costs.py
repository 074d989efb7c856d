"""What the lines of a target cost, as data that clients draw."""

from dataclasses import replace

from inline_snapshot import snapshot
from samples import BACKWARD, FILE, FORWARD, TRACE, F

from fx_lsp.features.line_costs import LineCosts, line_costs
from fx_lsp.measured import BenchmarkRun, LineTime, Machine, Report
from fx_lsp.model import Stage

REPORT = Report("f", Machine(), None, (), (), (), 0.0, 0.0)


def run(*times: LineTime) -> BenchmarkRun:
    return BenchmarkRun(FILE, "f", "gpu-box", replace(REPORT, lines=times))


def costs(measured: BenchmarkRun | None = None, stages: tuple[Stage, ...] = (FORWARD, BACKWARD)) -> LineCosts:
    found = line_costs(F, TRACE, stages, measured)
    assert found is not None
    return found


def test_lines_share_the_flops_and_the_saved_memory():
    found = costs()
    assert (found.measure, found.where) == ("flops", "")
    assert [(c.line, c.end_line, c.share, c.saved_share) for c in found.lines] == snapshot(
        [(5, 5, 1.0, 0.0), (7, 7, 0.0, 1.0), (8, 8, 0.0, 0.0)]
    )


def test_lines_share_the_moved_bytes_where_nothing_has_flops():
    nodes = tuple(replace(node, flops=0) for node in FORWARD.nodes)
    found = costs(stages=(replace(FORWARD, nodes=nodes),))
    assert found.measure == "bytes"
    assert [(c.line, round(c.share, 3)) for c in found.lines] == snapshot([(5, 0.961), (7, 0.039), (8, 0.0)])


def test_measured_times_take_the_place_of_the_estimate():
    elsewhere = LineTime("", "", 0, 25.0, 0.0)
    found = costs(run(LineTime("", FILE, 5, 10.0, 50.0), LineTime("", FILE, 8, 15.0, 0.0), elsewhere))
    assert (found.measure, found.where) == ("time", "gpu-box")
    assert [(c.line, c.share, c.times and c.times.sum) for c in found.lines] == snapshot(
        [(5, 0.6, 60.0), (7, 0.0, None), (8, 0.15, 15.0)]
    )


def test_a_benchmark_without_times_of_lines_changes_nothing():
    assert costs(run()) == costs()


def test_nothing_is_known_without_a_graph():
    assert line_costs(F, TRACE, ()) is None
