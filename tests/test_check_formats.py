"""The exit codes of `fx-lsp check` hold in every format, also when it is interrupted, and every format is whole."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree

import pytest

from fx_lsp.commands.check.baseline import new_baseline, read_baseline
from fx_lsp.commands.check.reporting import FORMATS, CheckReporter, ReportOptions
from fx_lsp.commands.check.survey import FileReport, SurveyScope, report_target
from fx_lsp.commands.sources import Source
from fx_lsp.errors import UsageError
from fx_lsp.model import Failure, Severity, Span, TargetKind
from fx_lsp.tracing.source.targets import discover
from fx_lsp.tracing.workers.find_python import Interpreter

TEXT = "import torch\n\n\ndef f(x: torch.Tensor):\n    return x @ x[0, 0]\n"
INTERPRETER = Interpreter("python", "3.11.0", "2.0.0", "")
EVERY = ("text", "json", *FORMATS)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "model.py"
    file.write_text(TEXT)
    return file


def failed(file: Path, severity: Severity) -> FileReport:
    """The report on a file whose function fails with this severity."""
    (target,) = discover(str(file), TEXT).targets
    failure = Failure("shape", "the sizes do not fit", Span(str(file), 5, 11, 5, 22), severity=severity)
    return FileReport(str(file), (report_target(target, failure, 0.1),))


def reporter(file: Path, report: FileReport, options: ReportOptions) -> CheckReporter:
    scope = SurveyScope([Source(str(file))], get_args(TargetKind))
    reporter = CheckReporter(options, scope, time.perf_counter())
    reporter.hear(report)
    return reporter


def number_of_mistakes(format_: str, output: str) -> int:
    """How many mistakes a report has."""
    if format_ == "text":
        return output.count("model.py:5: ")
    if format_ == "github":
        return len(output.splitlines())
    if format_ == "junit":
        return sum(1 for _ in ElementTree.fromstring(output).iter("failure"))
    document = json.loads(output)
    if format_ == "json":
        return sum(target["failure"] is not None for file in document["files"] for target in file["targets"])
    return len(document if format_ == "gitlab" else document["runs"][0]["results"])


@pytest.mark.parametrize("format_", EVERY)
def test_the_exit_codes(format_: str, file: Path, capsys: pytest.CaptureFixture[str]):
    options = ReportOptions(format_, INTERPRETER)
    wrong, clean, mild = failed(file, "error"), FileReport(str(file)), failed(file, "warning")
    assert reporter(file, clean, options).end() == 0
    assert number_of_mistakes(format_, capsys.readouterr().out) == 0
    assert reporter(file, mild, options).end() == 0
    assert ('"level": "warning"' in capsys.readouterr().out) is (format_ == "sarif")
    for interrupted, code in ((False, 1), (True, 130)):
        assert reporter(file, wrong, options).end(interrupted) == code
        assert number_of_mistakes(format_, capsys.readouterr().out) == 1


@pytest.mark.parametrize("format_", EVERY)
def test_what_a_baseline_accepts_is_no_problem(format_: str, file: Path, capsys: pytest.CaptureFixture[str]):
    baseline, wrong = str(file.parent / "baseline.json"), failed(file, "error")
    writing = ReportOptions(format_, INTERPRETER, new_baseline(baseline), writes=True)
    assert reporter(file, wrong, writing).end(interrupted=True) == 130
    assert not Path(baseline).exists()
    assert reporter(file, wrong, writing).end() == 0
    capsys.readouterr()
    assert reporter(file, wrong, ReportOptions(format_, INTERPRETER, read_baseline(baseline))).end() == 0
    output, errors = capsys.readouterr()
    assert number_of_mistakes(format_, output) == 0
    assert "accepted by the baseline: 1" in (output if format_ == "text" else errors)


def test_a_baseline_that_cannot_be_written_comes_after_the_report(file: Path, capsys: pytest.CaptureFixture[str]):
    baseline = new_baseline(str(file.parent / "baseline.json"))
    (file.parent / "baseline.json").mkdir()
    checked = reporter(file, failed(file, "error"), ReportOptions("github", INTERPRETER, baseline, writes=True))
    with pytest.raises(UsageError, match="cannot write the baseline"):
        checked.end()
    assert number_of_mistakes("github", capsys.readouterr().out) == 1
