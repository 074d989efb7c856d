"""The measured times of lines as a table."""

from inline_snapshot import snapshot

from fx_lsp.features.line_times import line_times_page
from fx_lsp.measured import LineTime, Machine, Report

TIMES = (
    LineTime("", "/w/model.py", 9, 30.0, 50.0),
    LineTime("", "/w/layers.py", 2, 10.0, 5.5),
    LineTime("", "/w/model.py", 7, 0.5, 0.0),
    LineTime("", "/w/model.py", 6, 0.0, 0.0),
    LineTime("", "", 0, 4.0, 0.0),
)


def page(*times: LineTime) -> str:
    report = Report("f", Machine(gpu="H200"), None, (), (), (), 0.0, 0.0, lines=times)
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
