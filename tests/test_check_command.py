"""`fx-lsp check`: the contract that scripts rely on."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

import pytest
from checking import check, start_check
from inline_snapshot import snapshot
from warm import warm_python

from fx_lsp.commands.sources import Source
from fx_lsp.commands.survey import FileReport, SurveyScope, TargetReport, survey
from fx_lsp.model import Failure, Target
from fx_lsp.tracing.answers.disk import Dependency
from fx_lsp.tracing.engine import Engine
from fx_lsp.tracing.source.targets import discover

pytestmark = pytest.mark.torch

CHECKED = """\
import torch


def shifted(x: torch.Tensor, by: float = 1.0):
    return x + by


# fx: x=f32[4, 8], w=f32[3, 8]
def wrong(x, w):
    return "𝕏", x @ w


class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(8))

    def forward(self, x):
        return x * self.weight


def get_inputs():
    return [torch.randn(4, 8)]
"""
ENDLESS = """\
import torch


# fx: x=f32[4]
def endless(x):
    while True:
        x = torch.relu(x)
"""
LEFT_OUT = (".hidden/a.py", "__pycache__/a.py", "node_modules/a.py", "env/lib/a.py", "build/a.py", "pkg/dist/a.py")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A traced function, one that is wrong, a module, a file that does not parse, and much that is not looked at."""
    found = tmp_path_factory.mktemp("checked")
    texts = {
        "model.py": CHECKED,
        "broken.py": "def f(:\n",
        "pkg/plain.py": "def f(n):\n    return n\n",
        "env/pyvenv.cfg": "",
        **dict.fromkeys(LEFT_OUT, CHECKED),
    }
    for name, text in texts.items():
        (found / name).parent.mkdir(parents=True, exist_ok=True)
        (found / name).write_text(text, encoding="utf-8")
    return found


@pytest.fixture(scope="module")
def checked(project: Path) -> dict[str, Any]:
    done = check(project, ".", "--format", "json")
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("3 found in 3 files · 2 traced · 1 not · 2 problems · ")
    return json.loads(done.stdout)


def test_json_of_a_check(checked: dict[str, Any], project: Path):
    assert list(checked) == ["version", "torch", "python", "seconds", "summary", "files"]
    assert checked["summary"] == snapshot(
        {
            "files": 3,
            "found": 3,
            "traced": 2,
            "problems": 2,
            "sources": {"convention": 1, "search": 1},
            "failures": {"syntax": 1, "shape": 1},
            "warnings": 0,
            "information": 0,
            "internal_errors": 0,
        }
    )
    assert {Path(f["file"]).relative_to(project).as_posix(): len(f["targets"]) for f in checked["files"]} == {
        "broken.py": 0,
        "model.py": 3,
        "pkg/plain.py": 0,
    }
    assert checked["files"][0]["failure"]["kind"] == "syntax"


def test_what_is_no_tensor_code_is_not_listed(tmp_path: Path):
    text = "import json\nimport torch\n\ndef size(record):\n    return json.loads(record), record.shape\n"
    (tmp_path / "records.py").write_text(text)
    got = json.loads(check(tmp_path, ".", "--format", "json").stdout)["files"][0]["targets"]
    assert [t["failure"] for t in got] == []
    asked = json.loads(check(tmp_path, "records.py::size", "--format", "json").stdout)["files"][0]["targets"]
    assert [target["failure"]["kind"] for target in asked] == ["nothing"]


def test_a_failure_is_told_where_it_is(tmp_path: Path):
    text = """\
import torch

def mixed(a: torch.Tensor, b):
    return torch.relu(a) @ b.t() + b.nothing

def outer(x: torch.Tensor, b):
    return mixed(x + 1, b)
"""
    (tmp_path / "m.py").write_text(text)
    _, mixed, outer, *_ = check(tmp_path, "m.py").stdout.splitlines()
    assert mixed.startswith("  mixed  m.py:4: not traced (inputs): AttributeError: ") and "`# fx: a=f32[" in mixed
    assert outer == "  outer  not traced (inputs): as mixed"


def test_a_fault_that_targets_of_several_files_reach_is_one(tmp_path: Path):
    model = """\
import torch
from torch import nn


class Wrong(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(5, 4)

    def forward(self, x):
        return self.down(self.up(x))


def run(x: torch.Tensor):
    return Wrong()(x)
"""
    script = "import torch\nfrom a_model import Wrong\n\ndef call(x: torch.Tensor):\n    return Wrong()(x)\n"
    (tmp_path / "a_model.py").write_text(model)
    (tmp_path / "b_script.py").write_text(script)
    said = [line for line in check(tmp_path, ".").stdout.splitlines() if line.startswith("  ")]
    assert [line[:43] for line in said if " error" in line] == ["  Wrong  a_model.py:11: error (shape): matr"]
    assert "  run    not traced (shape): as Wrong" in said
    assert "  call  not traced (shape): as a_model.py::Wrong" in said
    (log,) = json.loads(check(tmp_path, ".", "--format", "sarif").stdout)["runs"]
    (result,) = log["results"]
    assert [r["message"]["text"] for r in result["relatedLocations"]] == [
        "also reached from run.",
        "also reached from call.",
    ]
    checked = json.loads(check(tmp_path, ".", "--format", "json").stdout)
    assert checked["summary"]["problems"] == 1
    assert [target["failure"]["kind"] for file in checked["files"] for target in file["targets"]] == ["shape"] * 3


def test_json_of_a_checked_target(checked: dict[str, Any], project: Path):
    shifted, wrong, scale = checked["files"][1]["targets"]
    assert all(target.pop("seconds") > 0 for target in (shifted, wrong, scale))
    assert scale.pop("target") == f"{project / 'model.py'}::Scale"
    assert scale == snapshot(
        {
            "kind": "module",
            "traced": True,
            "ops": {"forward": 1, "backward": 4},
            "activation_bytes": 0,
            "inputs": [
                {"name": "x", "spec": "f32[4, 8]", "source": "convention", "detail": "get_inputs()", "guessed": False}
            ],
            "source": "convention",
            "notes": [],
            "remarks": [],
            "failure": None,
            "accepted": False,
        }
    )
    assert (shifted["traced"], shifted["source"]) == (True, "search")
    assert wrong["ops"] == {"forward": None, "backward": None}
    assert wrong["failure"]["span"].pop("file") == str(project / "model.py")
    assert wrong["failure"].pop("message").startswith("matrices of 4×8 and 3×8 cannot be multiplied")
    assert wrong["failure"] == snapshot(
        {
            "kind": "shape",
            "span": {"line": 10, "col": 16, "end_line": 10, "end_col": 21},
            "hint": "",
            "severity": "error",
        }
    )


def test_a_check_for_people(project: Path):
    done = check(project, "model.py", "--jobs", "1")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[0] == "model.py"
    assert lines[1].startswith("  shifted  1 op forward · ") and lines[1].endswith(" s · inputs: search")
    assert lines[2].startswith("  wrong    model.py:10: error (shape): ")
    assert lines[5].startswith("3 found in 1 file · 2 traced · 1 not · 1 problem · ")
    assert lines[6:] == ["traced with inputs from: convention 1 · search 1", "not traced: shape 1"]
    assert (done.stderr, "\x1b" in done.stdout) == ("", False)


def test_the_formats_of_ci_services(project: Path):
    github = check(project, "model.py", "broken.py", "--format", "github")
    assert github.returncode == 1
    first, second = github.stdout.splitlines()
    place = "file=model.py,line=10,title=fx-lsp%3A shape,col=17,endColumn=22"
    assert first.startswith(f"::error {place}::wrong was not traced: ")
    assert second.startswith("::error file=broken.py,line=")
    listed = json.loads(check(project, "model.py", "broken.py", "--format", "gitlab").stdout)
    assert [(r["check_name"], r["severity"], r["location"]) for r in listed] == [
        ("fx-lsp/shape", "major", {"path": "model.py", "lines": {"begin": 10}}),
        ("fx-lsp/syntax", "major", listed[1]["location"]),
    ]
    report = ElementTree.fromstring(check(project, "model.py", "broken.py", "--format", "junit").stdout)
    assert [(suite.get("name"), suite.get("tests"), suite.get("failures")) for suite in report] == [
        ("model.py", "4", "1"),
        ("broken.py", "1", "1"),
    ]
    cases = [case for case in report.iter("testcase") if case.find("failure") is not None]
    assert [(case.get("classname"), case.get("name")) for case in cases] == [
        ("model.py", "wrong"),
        ("broken.py", "the file"),
    ]


def test_a_mistake_that_moves_keeps_its_fingerprint(tmp_path: Path):
    source = "import torch\n\n\ndef wrong(x: torch.Tensor):\n    y = torch.ones(3)\n    return torch.ones(4) @ y\n"
    fingerprints = []
    for text in (source, f"# a comment\n\n{source}"):
        (tmp_path / "model.py").write_text(text)
        (result,) = json.loads(check(tmp_path, "model.py", "--format", "gitlab").stdout)
        fingerprints.append(result["fingerprint"])
    assert fingerprints[0] == fingerprints[1]


def test_sarif(project: Path):
    done = check(project, "model.py", "broken.py", "--format", "sarif")
    assert done.returncode == 1
    (run,) = json.loads(done.stdout)["runs"]
    assert run["columnKind"] == "unicodeCodePoints"
    rules = run["tool"]["driver"]["rules"]
    assert [(rule["id"], rule["shortDescription"]["text"]) for rule in rules] == [
        ("shape", "sizes or ranks that do not fit"),
        ("syntax", "a file that does not parse"),
    ]
    assert all("## Wrong" in rule["help"]["markdown"] for rule in rules)
    for result in run["results"]:
        del result["message"]
        assert list(result.pop("partialFingerprints")) == ["fxLsp/v1"]
    assert run["results"] == snapshot(
        [
            {
                "ruleId": "shape",
                "level": "error",
                "locations": [
                    {
                        "physicalLocation": {
                            "artifactLocation": {"uri": "model.py", "uriBaseId": "%SRCROOT%"},
                            "region": {"startLine": 10, "startColumn": 17, "endLine": 10, "endColumn": 22},
                        },
                        "logicalLocations": [{"fullyQualifiedName": "wrong"}],
                    }
                ],
            },
            {
                "ruleId": "syntax",
                "level": "error",
                "locations": [
                    {
                        "physicalLocation": {
                            "artifactLocation": {"uri": "broken.py", "uriBaseId": "%SRCROOT%"},
                            "region": {"startLine": 1, "startColumn": 7, "endLine": 1, "endColumn": 8},
                        }
                    }
                ],
            },
        ]
    )


COMMENTED = """\
import torch

# fx: x=f32[4], x=f32[5]
def twice(x):
    return torch.relu(x)

# fx: n=f32[4]
def unknown(x):
    return torch.relu(x)

# fx: x=f32[2]

limit = 1
"""


def test_what_is_wrong_with_comments_is_said_once(tmp_path: Path):
    (tmp_path / "model.py").write_text(COMMENTED)
    done = check(tmp_path, "model.py", "--format", "json")
    assert done.returncode == 1
    document = json.loads(done.stdout)
    (file,) = document["files"]
    assert [t["failure"] and t["failure"]["message"] for t in file["targets"]] == snapshot(
        [None, "unknown has no parameter `n`; its parameters are x"]
    )
    assert [(c["span"]["line"], c["severity"], c["message"]) for c in file["comments"]] == snapshot(
        [
            (3, "error", "`x` is given twice"),
            (
                11,
                "information",
                "This comment is not attached to a function or class: "
                "write it directly above one, or first in its body",
            ),
        ]
    )
    assert document["summary"]["problems"] == 2
    lines = check(tmp_path, "model.py").stdout.splitlines()
    assert lines[3] == "  model.py:3: error (comment): `x` is given twice."
    assert lines[4].startswith(
        "  model.py:11: information (comment): This comment is not attached to a function or class"
    )


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["model.py::Scale"], ["Scale"]),
        (["model.py::Scale", "model.py::shifted"], ["shifted", "Scale"]),
        (["--only", "functions", "model.py::shifted", "model.py::Scale"], ["shifted"]),
        (["pkg"], []),
    ],
)
def test_what_is_checked(project: Path, arguments: list[str], names: list[str]):
    done = check(project, *arguments, "--format", "json")
    assert done.returncode == 0, done.stderr
    found = [target["target"] for file in json.loads(done.stdout)["files"] for target in file["targets"]]
    assert found == [f"{project / 'model.py'}::{name}" for name in names]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.py"], "there is no file or directory missing.py"),
        (["model.py::missing"], "`model.py::missing` is not a function or module that can be traced"),
        (["model.py", "--jobs", "0"], "'0' is not a number from 1"),
        (["model.py", "--format", "html"], "invalid choice: 'html'"),
        (["model.py", "--watch", "--format", "json"], "--watch prints text and writes no baseline"),
        (["--since", "HEAD"], "--since needs a git repository, and "),
    ],
)
def test_usage_of_check(project: Path, arguments: list[str], said: str):
    done = check(project, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_why_nothing_is_traced(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "plain.py").write_text("def add(a, b):\n    return a + b\n")
    nothing = "nothing to trace: there is no {} in what is checked"
    assert check(tmp_path, "empty").stdout.splitlines()[1:] == [nothing.format("Python file or notebook")]
    plain = check(tmp_path, "plain.py").stdout.splitlines()
    assert plain[1:] == [nothing.format("function or module that computes with tensors")]


def test_the_folder_that_is_checked_is_a_root_of_imports(tmp_path: Path):
    texts = {
        "code/models/net.py": "import torch\nfrom utils.constants import WIDTH\n\n"
        "def f(x: torch.Tensor):\n    return x.view(-1, WIDTH)\n",
        "code/utils/constants.py": "WIDTH = 7\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    done = check(tmp_path, "code")
    assert " · 1 traced · 0 not · 0 problems · " in done.stdout


BREAKING = """\
import torch


@torch.compile
def breaking(x: torch.Tensor):
    print("a")
    y = torch.relu(x)
    print("b")
    return y
"""


def test_the_counts_are_those_of_what_is_listed(tmp_path: Path):
    (tmp_path / "model.py").write_text(BREAKING)
    listed = check(tmp_path, "model.py").stdout
    assert listed.count("    information: line ") == listed.count("[graph-break]") == 2
    assert " · 0 problems · 2 information · " in listed
    assert json.loads(check(tmp_path, "model.py", "--format", "json").stdout)["summary"]["information"] == 2


def test_what_is_checked_is_not_traced_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    text = "import torch\n\ndef f(x: torch.Tensor):\n    B, T = x.shape\n    return x.reshape(B * T).exp()\n"
    (tmp_path / "model.py").write_text(text)
    command = [sys.executable, "-m", "fx_lsp", "check", "model.py", "--format", "json", "--python", warm_python()]
    for _ in range(2):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert json.loads(done.stdout)["files"][0]["targets"][0]["seconds"] < 0.05


def test_a_check_without_torch(project: Path, tmp_path: Path):
    (tmp_path / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -I "$@"\n')
    (tmp_path / "python").chmod(0o755)
    command = [sys.executable, "-m", "fx_lsp", "check", "model.py", "--python", str(tmp_path / "python")]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (2, "")
    assert "python has no torch; pass the interpreter that has torch with --python" in done.stderr


def test_a_check_whose_reader_has_gone(project: Path):
    process = start_check(project, "model.py")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(300) == 141


def test_a_check_that_is_interrupted(tmp_path: Path):
    (tmp_path / "a.py").write_text(CHECKED, encoding="utf-8")
    (tmp_path / "b.py").write_text(ENDLESS)
    process = start_check(tmp_path, "a.py::shifted", "b.py", "--jobs", "1")
    assert process.stdout is not None
    assert process.stdout.readline() == "a.py\n"
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "1 found in 1 file · 1 traced" in said
    assert errors == ""


class NoTracer:
    """An engine where every target fails at once, but for `endless`, which never ends."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[Target, ...]] = {}

    def open(self, file: str, text: str, roots: tuple[str, ...]) -> None:
        self.files[file] = discover(file, text).targets

    def close(self, file: str) -> None:
        del self.files[file]

    def state(self, file: str) -> None: ...

    def dependencies(self, file: str, name: str, work: str) -> tuple[Dependency, ...]:
        return ()

    async def targets(self, file: str) -> tuple[Target, ...]:
        return self.files[file]

    async def outcome(self, file: str, name: str, final: bool) -> Failure:
        return await asyncio.Future() if name == "endless" else Failure("inputs", name)


async def test_what_is_known_of_the_files_in_flight_when_it_is_interrupted(tmp_path: Path):
    (tmp_path / "a.py").write_text(ENDLESS)
    (tmp_path / "b.py").write_text(f"{CHECKED}\n{ENDLESS}", encoding="utf-8")
    engine, reports, heard = NoTracer(), list[FileReport](), list[TargetReport]()
    sources = [Source(str(tmp_path / name)) for name in ("a.py", "b.py", "c.py")]

    def hear(report: TargetReport) -> None:
        heard.append(report)
        if len(heard) == 3:
            work.cancel()

    work = asyncio.ensure_future(
        survey(cast("Engine", engine), SurveyScope(sources, ["function", "module"]), 2, reports.append, hear)
    )
    with pytest.raises(asyncio.CancelledError):
        await work
    assert {Path(r.file).name: [t.target.name for t in r.targets] for r in reports} == {
        "b.py": ["shifted", "wrong", "Scale"],
        "c.py": [],
    }
    assert engine.files == {}


ACCIDENT = """\
import torch


def gram(features):
    b, c, h, w = features.shape
    flat = features.view(b, c, h * w)
    return torch.bmm(flat, flat)


def weigh(x: torch.Tensor):
    return x * (1 - (x > 0))
"""


def test_warnings_are_told_and_end_with_0(tmp_path: Path):
    (tmp_path / "model.py").write_text(ACCIDENT)
    listed = check(tmp_path, "model.py")
    assert listed.returncode == 0
    assert (
        "    warning: line 7: `torch.bmm(flat, flat)` only works when c == h * w. "
        "Is a dimension missing or swapped? [dimension]\n" in listed.stdout
    )
    assert "model.py:11: warning (dtype): Subtraction, the `-` operator" in listed.stdout
    assert " · 0 problems · 2 warnings · " in listed.stdout
    (run,) = json.loads(check(tmp_path, "model.py", "--format", "sarif").stdout)["runs"]
    assert [result["level"] for result in run["results"]] == ["warning", "warning"]
