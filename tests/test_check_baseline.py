"""`fx-lsp check --baseline FILE` reports only the mistakes that are not in the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from terminal import Done, fx_lsp

pytestmark = pytest.mark.torch

WRONG = """\
import torch


# fx: x=f32[4]
def first(x):
    return torch.ones(4, 4) @ torch.ones(3, 3)
"""
COMMENT = "\n\n# fx: n=f32[4]\ndef commented(x):\n    return torch.relu(x)\n"
ANOTHER = "\n\n# fx: x=f32[4]\ndef second(x):\n    return torch.ones(5, 5) @ torch.ones(3, 3)\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with two mistakes and a file that does not parse, and with a baseline of all of these."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "inner").mkdir()
    (folder / "model.py").write_text(f"{WRONG}{COMMENT}")
    (folder / "broken.py").write_text("def f(:\n")
    done = fx_lsp(folder, "check", ".", "--write-baseline", "baseline.json")
    assert (done.returncode, done.stderr) == (0, f"wrote 3 mistakes to {folder / 'baseline.json'}\n")
    assert " · 3 problems · " in done.stdout
    return folder


@pytest.fixture
def project(folder: Path) -> Path:
    """Return the project as it was."""
    (folder / "model.py").write_text(f"{WRONG}{COMMENT}")
    return folder


def check(folder: Path, *arguments: str, baseline: str = "baseline.json") -> Done:
    return fx_lsp(folder, "check", *arguments, "--baseline", baseline)


def test_a_baseline_is_a_readable_list(project: Path):
    document = json.loads((project / "baseline.json").read_text())
    assert (document["format"], document["version"]) == ("fx-lsp baseline", 1)
    assert [(m["file"], m["code"]) for m in document["mistakes"]] == [
        ("broken.py", "syntax"),
        ("model.py", "comment"),
        ("model.py", "shape"),
    ]


def test_what_is_in_the_baseline_is_not_reported_though_it_moved(project: Path):
    (project / "model.py").write_text(f"# moved\n\n{WRONG}{COMMENT}")
    done = check(project / "inner", "..", baseline="../baseline.json")
    assert done.returncode == 0
    assert "error (" not in done.stdout
    assert done.stdout.endswith("\naccepted by the baseline: 3\n")


def test_a_new_mistake_is_reported_in_every_format(project: Path):
    (project / "model.py").write_text(f"{WRONG}{COMMENT}{ANOTHER}")

    def told(name: str) -> str:
        done = check(project, ".", "--format", name)
        assert done.returncode == 1, name
        assert "accepted by the baseline: 3" in done.stdout + done.stderr or name == "json"
        return done.stdout

    document = json.loads(told("json"))
    assert document["summary"]["problems"] == 1
    targets: list[dict[str, Any]] = [target for file in document["files"] for target in file["targets"]]
    assert [(t["failure"] is None, t["accepted"]) for t in targets] == [(True, True), (True, True), (False, False)]
    assert [(file["failure"], file["comments"]) for file in document["files"]] == [(None, [])] * 2
    assert document["baseline"] == {"file": str(project / "baseline.json"), "accepted": 3, "fixed": 0}
    (result,) = json.loads(told("sarif"))["runs"][0]["results"]
    assert result["locations"][0]["logicalLocations"] == [{"fullyQualifiedName": "second"}]
    (entry,) = json.loads(told("gitlab"))
    assert entry["fingerprint"] == result["partialFingerprints"]["fxLsp/v1"]
    assert told("github").count("::error") == told("junit").count("<failure") == 1
    listed = told("text")
    assert "  second     model.py:16: error (shape): " in listed
    assert "first " not in listed


def test_another_mistake_with_the_same_words_is_new(project: Path):
    third = WRONG.replace("first", "third").removeprefix("import torch\n")
    (project / "model.py").write_text(f"{WRONG}{COMMENT}{third}")
    done = check(project, "model.py")
    assert done.returncode == 1
    assert done.stdout.count("error (shape)") == 1
    assert "\n  third      model.py:16: error (shape): " in done.stdout


def test_what_no_longer_occurs_is_mentioned_of_what_was_checked(project: Path):
    done = check(project, "model.py::first")
    assert done.stdout.endswith("\naccepted by the baseline: 1\n")
    (project / "model.py").write_text("import torch\n")
    done = check(project, "model.py")
    assert done.stdout.endswith("\naccepted by the baseline: 0 · 2 of the baseline no longer occur\n")
    (project / "model.py").unlink()
    assert "accepted by the baseline: 1 · 2 of the baseline no" in check(project, ".").stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot read the baseline b.json: No such file or directory"),
        ("{", "b.json is not a baseline: it is not JSON"),
        ("[]", "b.json is not a baseline: `fx-lsp check --write-baseline` did not write it"),
        ('{"format": "fx-lsp baseline", "version": 99}', "b.json is a baseline of another version of fx-lsp"),
        ('{"format": "fx-lsp baseline", "version": 1, "mistakes": [{}]}', "b.json is a damaged baseline"),
    ],
)
def test_a_baseline_that_cannot_be_read(tmp_path: Path, text: str | None, said: str):
    (tmp_path / "model.py").write_text(WRONG)
    if text is not None:
        (tmp_path / "b.json").write_text(text)
    for option in ("--baseline", "--write-baseline") if text is not None else ("--baseline",):
        done = fx_lsp(tmp_path, "check", "model.py", option, "b.json", "--format", "json")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"fx-lsp: {said}")
    assert text is None or (tmp_path / "b.json").read_text() == text
