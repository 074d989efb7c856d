"""What the lines of a target cost, as data that clients draw, and their measured times as a table."""

from dataclasses import replace

from inline_snapshot import snapshot
from samples import BACKWARD, FILE, FORWARD, TRACE, F

from fx_lsp.features.costs.line_costs import LineCosts, line_costs, line_times_page
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


TIMES = (
    LineTime("", "/w/model.py", 9, 30.0, 50.0),
    LineTime("", "/w/layers.py", 2, 10.0, 5.5),
    LineTime("", "/w/model.py", 7, 0.5, 0.0),
    LineTime("", "/w/model.py", 6, 0.0, 0.0),
    LineTime("", "", 0, 4.0, 0.0),
)


def page(*times: LineTime) -> str:
    report = replace(REPORT, machine=Machine(gpu="H200"), lines=times)
    return line_times_page(report, "/w/model.py", lambda span: f"line {span.line} of the code")


def test_the_lines_of_the_target_come_first_and_the_rest_last():
    assert page(*TIMES) == snapshot("""\
# time by line, eager, on H200
# line         forward µs  backward µs  share
# 7                   0.5                  0%  line 7 of the code
# 9                  30.0         50.0    80%  line 9 of the code
# layers.py:2        10.0          5.5    16%  line 2 of the code
# elsewhere           4.0                  4%
""")


def test_without_times_there_is_no_table():
    assert page() == ""
