"""Severities that a project sets change what `fx-lsp check` reports, and its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from inline_snapshot import snapshot
from terminal import Done, fx_lsp

from fx_lsp.cli import main

MODEL = """\
import torch
import torch.nn.functional as F


# fx: x=f32[4, 8]
def first(x):
    return F.softmax(x.contiguous())


# fx: x=f32[4, 8]
def second(x):
    return F.softmax(x, -1).sum()  # fx: ignore[copy] because it is small
"""


def check(folder: Path, severities: str, *arguments: str) -> Done:
    (folder / "pyproject.toml").write_text(f"[tool.fx-lsp.severity]\n{severities}\n")
    (folder / "model.py").write_text(MODEL)
    return fx_lsp(folder, "check", "model.py", *arguments)


def codes(done: Done) -> list[tuple[str, str]]:
    """The severity and the code of each mistake in a document, in the order of its targets."""
    (file,) = json.loads(done.stdout)["files"]
    return [(r["severity"], r["code"]) for target in file["targets"] for r in target["remarks"]]


@pytest.mark.torch
def test_the_exit_code_follows_the_severity(tmp_path: Path):
    done = check(tmp_path, 'pytorch-warning = "error"', "--json")
    assert (done.returncode, codes(done)) == (1, [("error", "pytorch-warning")])
    done = check(tmp_path, 'pytorch-warning = "off"\nno-effect = "warning"', "--json")
    assert (done.returncode, codes(done)) == (0, [("warning", "no-effect")])
    done = check(tmp_path, 'pytorch-warning = "error"\nno-effect = "off"', "--json", "--enable", "no-effect")
    assert ("hint", "no-effect") in codes(done), "an option has priority"
    assert codes(check(tmp_path, 'pytorch-warning = "error"', "--json", "--disable", "pytorch-warning")) == []


@pytest.mark.torch
def test_the_number_of_mistakes_of_each_code(tmp_path: Path):
    severities = 'pytorch-warning = "error"\nno-effect = "warning"'
    done = check(tmp_path, severities, "--statistics")
    assert done.stdout.splitlines()[-3:] == snapshot(
        ["  1  warning      no-effect", "  1  error        pytorch-warning", "  1  information  comment"]
    )
    assert "model.py:12: information (comment): `# fx: ignore[copy]` ignores nothing" in done.stdout
    data = json.loads(check(tmp_path, severities, "--statistics", "--json").stdout)["statistics"]
    assert {"code": "no-effect", "severity": "warning", "count": 1} in data


def test_an_unknown_code_or_severity_is_wrong_usage(tmp_path: Path):
    done = check(tmp_path, 'upcst = "error"')
    assert done.returncode == 2
    sentence = "`upcst` is not a code whose severity can be set; choose one of upcast"
    assert done.stderr == f"fx-lsp: {tmp_path / 'pyproject.toml'}:2: {sentence}\n"


def test_a_page_explains_a_code(capsys: pytest.CaptureFixture[str]):
    page = Path(__file__).parent.parent / "docs" / "problems" / "graph-break.md"
    assert main(["explain", "graph-break"]) == 0
    assert capsys.readouterr().out == page.read_text(encoding="utf-8")
    assert main(["explain", "graph-brake"]) == 2
    assert "`graph-brake` is not the code of a problem; choose one of graph-break" in capsys.readouterr().err


BUDGETS = """\
[tool.fx-lsp.budgets]
"model.py::first" = { max-operations = 1, max-graph-breaks = 0 }
"model.py::second" = { max-operations = 100, max-saved = 512 }
"""


@pytest.mark.torch
def test_a_cost_over_its_budget_is_an_error(tmp_path: Path):
    (tmp_path / "pyproject.toml").write_text(BUDGETS)
    (tmp_path / "model.py").write_text(MODEL.replace("return F.softmax(x.", "print(x.sum())\n    return F.softmax(x."))
    done = fx_lsp(tmp_path, "check", "model.py", "--json")
    (file,) = json.loads(done.stdout)["files"]
    assert done.returncode == 1
    told = [(c["kind"], c["severity"], c["span"]["line"], c["message"]) for c in file["comments"]]
    assert told == snapshot(
        [
            ("budget", "error", 6, "first exceeds its budget of operations: 4, at most 1; see model.py:8"),
            ("budget", "error", 6, "first exceeds its budget of graph breaks: 1, at most 0; see model.py:7"),
            (
                "comment",
                "information",
                13,
                "`# fx: ignore[copy]` ignores nothing: the traces have no such problem on this line",
            ),
        ]
    )
    (tmp_path / "pyproject.toml").write_text(BUDGETS.replace("= 1,", "= 100,").replace("breaks = 0", "breaks = 1"))
    assert fx_lsp(tmp_path, "check", "model.py").returncode == 0


def test_a_wrong_budget_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "pyproject.toml").write_text('[tool.fx-lsp.budgets]\n"model.py::f" = { max-graph-break = 0 }\n')
    (tmp_path / "model.py").write_text("def f(x): return x\n")
    assert main(["check", str(tmp_path)]) == 2
    assert (
        "the budget of `model.py::f` is not a table of numbers from 0 for max-graph-breaks" in capsys.readouterr().err
    )
