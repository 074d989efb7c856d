"""`fx-lsp check`: the contract that scripts rely on, on one folder of cases."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

import pytest
from inline_snapshot import snapshot
from terminal import Done, fx_lsp, start

from fx_lsp.commands.check import listing
from fx_lsp.commands.check.listing import Progress
from fx_lsp.commands.check.survey import FileReport, SurveyProgress, SurveyScope, survey
from fx_lsp.commands.places import cell_of
from fx_lsp.commands.sources import Source, read_source
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
ACCIDENT = """\
import torch


def gram(features):
    b, c, h, w = features.shape
    flat = features.view(b, c, h * w)
    return torch.bmm(flat, flat)


def weigh(x: torch.Tensor):
    return x * (1 - (x > 0))
"""
FAULT = """\
import torch
from torch import nn


# fx: x=f32[8, 4]
class Wrong(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(5, 4)

    def forward(self, x):
        return self.down(self.up(x))


# fx: x=f32[8, 4]
def run(x):
    return Wrong()(x)
"""
BREAKING = """\
import torch


@torch.compile
def breaking(x: torch.Tensor):
    print("a")
    y = torch.relu(x)
    print("b")
    return y
"""
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
GUESSED = """\
import torch

def mixed(a: torch.Tensor):
    raise KeyError(str(a.shape[0]))

def outer(x: torch.Tensor):
    return mixed(x + 1)
"""
RECORDS = "import json\nimport torch\n\ndef size(record):\n    return json.loads(record), record.shape\n"
ENDLESS = """\
import torch


# fx: x=f32[4]
def endless(x):
    while True:
        x = torch.relu(x)
"""
CELLS = [
    "%%bash\nls",
    "!pip install x\nimport torch\n%matplotlib inline\ntorch.relu?",
    "%%time\n# fx: x=f32[4]\ndef wrong(x):\n    return torch.ones(4, 8) @ torch.ones(3, 8)",
    '@torch.compile\ndef breaking(x: torch.Tensor):\n    print("a")\n    return torch.relu(x)',
]


def notebook(*cells: str, language: str = "python") -> str:
    """Return the text of a notebook with a text cell, and these cells of code."""
    code = [
        {"cell_type": "code", "source": cell.splitlines(keepends=True), "metadata": {}, "outputs": []} for cell in cells
    ]
    title = {"cell_type": "markdown", "source": "# Title", "metadata": {}}
    return json.dumps({"cells": [title, *code], "metadata": {"language_info": {"name": language}}, "nbformat": 4})


LEFT_OUT = (".hidden/a.py", "__pycache__/a.py", "node_modules/a.py", "env/lib/a.py", "build/a.py", "pkg/dist/a.py")
FILES = {
    "book.ipynb": notebook(*CELLS),
    "breaking.py": BREAKING,
    "broken.py": "def f(:\n",
    "comments.py": COMMENTED,
    "fault.py": FAULT,
    "model.py": CHECKED,
    "none.ipynb": "[]",
    "pkg/plain.py": "def f(n):\n    return n\n",
    "pkg/statistics.ipynb": notebook("x <- c(1, 2)", language="R"),
    "records.py": RECORDS,
    "script.py": "import torch\nfrom fault import Wrong\n\n# fx: x=f32[8, 4]\ndef call(x):\n    return Wrong()(x)\n",
}


def write(folder: Path, texts: dict[str, str]) -> Path:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files, and much that is not looked at."""
    left_out = {**dict.fromkeys(LEFT_OUT, CHECKED), "env/pyvenv.cfg": "", ".ipynb_checkpoints/a.ipynb": notebook("x")}
    return write(tmp_path_factory.mktemp("checked"), {**FILES, **left_out})


@pytest.fixture(scope="module")
def report(project: Path) -> Callable[..., Done]:
    """Return a function that checks all files and returns the report in a format."""
    reports: dict[str, Done] = {}

    def of(name: str) -> Done:
        if name not in reports:
            reports[name] = fx_lsp(project, "check", ".", "--format", name)
        return reports[name]

    return of


@pytest.fixture(scope="module")
def checked(report: Callable[[str], Done]) -> dict[str, Any]:
    done = report("json")
    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines()[-1].startswith(
        "11 found in 11 files · 5 traced · 6 not · 7 problems · 4 information · "
    )
    return json.loads(done.stdout)


def test_json_of_a_check(checked: dict[str, Any], project: Path):
    assert list(checked) == ["version", "torch", "python", "seconds", "summary", "files"]
    assert checked["summary"] == snapshot(
        {
            "files": 11,
            "found": 11,
            "traced": 5,
            "problems": 7,
            "sources": {"comment": 1, "convention": 1, "search": 3},
            "failures": {"shape": 5, "syntax": 2, "comment": 1},
            "warnings": 0,
            "information": 4,
            "internal_errors": 0,
        }
    )
    assert {Path(f["file"]).relative_to(project).as_posix(): len(f["targets"]) for f in checked["files"]} == snapshot(
        {
            "book.ipynb": 2,
            "breaking.py": 1,
            "broken.py": 0,
            "comments.py": 2,
            "fault.py": 2,
            "model.py": 3,
            "none.ipynb": 0,
            "records.py": 0,
            "script.py": 1,
            "pkg/plain.py": 0,
            "pkg/statistics.ipynb": 0,
        }
    )


def of_file(checked: dict[str, Any], name: str) -> dict[str, Any]:
    """Return what a document has of a file."""
    return next(file for file in checked["files"] if Path(file["file"]).name == name)


def test_json_of_a_file(checked: dict[str, Any], project: Path):
    assert of_file(checked, "broken.py")["failure"]["kind"] == "syntax"
    comments = of_file(checked, "comments.py")
    assert [t["failure"] and t["failure"]["message"] for t in comments["targets"]] == snapshot(
        [None, "unknown has no parameter `n`; its parameters are x"]
    )
    assert [(c["span"]["line"], c["severity"], c["message"][:40]) for c in comments["comments"]] == [
        (3, "error", "`x` is given twice"),
        (11, "information", "This comment is not attached to a functi"),
    ]
    faults = [target["failure"] for name in ("fault.py", "script.py") for target in of_file(checked, name)["targets"]]
    assert [failure["kind"] for failure in faults] == ["shape"] * 3
    assert of_file(checked, "book.ipynb")["targets"][0]["failure"]["span"] == {
        "file": str(project / "book.ipynb"),
        "cell": 4,
        "line": 4,
        "col": 11,
        "end_line": 4,
        "end_col": 46,
    }


def test_json_of_a_checked_target(checked: dict[str, Any], project: Path):
    shifted, wrong, scale = of_file(checked, "model.py")["targets"]
    assert all(target.pop("seconds") > 0 for target in (shifted, wrong, scale))
    assert scale.pop("target") == f"{project / 'model.py'}::Scale"
    assert scale == snapshot(
        {
            "kind": "module",
            "traced": True,
            "ops": {"forward": 1, "backward": 4},
            "activation_bytes": 0,
            "inputs": [
                {
                    "name": "x",
                    "spec": "f32[4, 8]",
                    "source": "convention",
                    "detail": "get_inputs()",
                    "guessed": False,
                    "requires_grad": True,
                }
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


def test_a_check_for_people(report: Callable[[str], Done]):
    done = report("text")
    assert (done.returncode, "\x1b" in f"{done.stdout}{done.stderr}") == (1, False)
    lines = re.sub(r"\d+\.\d+ s\b", "N s", done.stdout).split("\n")
    shown = "\n".join(line if len(line) <= 100 else f"{line[:76]} … {line[-20:]}" for line in lines)
    assert shown == snapshot("""\
book.ipynb
  wrong     book.ipynb:cell 4:4:12: error (shape): matrices of 4×8 and 3×8 c … s(3, 8): f32[3, 8]).
  breaking  3 ops forward · 1 backward · saves ~1 KiB · N s · inputs: search
    information: cell 5, line 3: torch.compile breaks the graph here (GB0059 … rint`… [graph-break]

breaking.py
  breaking  3 ops forward · 1 backward · saves ~1 KiB · N s · inputs: search
    information: line 6: torch.compile breaks the graph here (GB0059): Dynam … h arg… [graph-break]
    information: line 8: torch.compile breaks the graph here (GB0059): Dynam … h arg… [graph-break]

broken.py
  broken.py:1: error (syntax): syntax error: invalid syntax.

comments.py
  twice    3 ops forward · 1 backward · saves 20 B · N s · inputs: comment
  unknown  comments.py:7: error (comment): unknown has no parameter `n`; its parameters are x.
  comments.py:3: error (comment): `x` is given twice.
  comments.py:11: information (comment): This comment is not attached to a f … r first in its body.

fault.py
  Wrong  fault.py:12: error (shape): matrices of 8×8 and 5×4 cannot be multi … so reached from run)
  run    not traced (shape): as Wrong

model.py
  shifted  1 op forward · 0 backward · saves nothing · N s · inputs: search
  wrong    model.py:10: error (shape): matrices of 4×8 and 3×8 cannot be mul … , 8], w: f32[3, 8]).
  Scale    1 op forward · 4 backward · saves nothing · N s · inputs: convention

none.ipynb
  none.ipynb: error (syntax): the file cannot be read: it is not a notebook of format 4.

script.py
  call  not traced (shape): as fault.py::Wrong

11 found in 11 files · 5 traced · 6 not · 7 problems · 4 information · N s
traced with inputs from: comment 1 · convention 1 · search 3
not traced: shape 5 · syntax 2 · comment 1
""")


def test_the_formats_of_ci_services(report: Callable[[str], Done]):
    github = report("github")
    assert github.returncode == 1
    place = r"::(\w+) file=([\w.]+),line=(\d+),title=fx-lsp%3A (\w+),col=(\d+),endColumn=(\d+)::(.{1,20})"
    assert [re.match(place, line).groups() for line in github.stdout.splitlines()] == snapshot(
        [
            ("error", "book.ipynb", "1", "shape", "1", "1", "cell 4, line 4: wron"),
            ("error", "broken.py", "1", "syntax", "7", "8", "syntax error: invali"),
            ("error", "comments.py", "7", "comment", "1", "15", "unknown was not trac"),
            ("error", "comments.py", "3", "comment", "17", "18", "`x` is given twice."),
            ("notice", "comments.py", "11", "comment", "1", "15", "This comment is not "),
            ("error", "fault.py", "12", "shape", "16", "37", "Wrong was not traced"),
            ("error", "model.py", "10", "shape", "17", "22", "wrong was not traced"),
            ("error", "none.ipynb", "1", "syntax", "1", "1", "the file cannot be r"),
        ]
    )
    listed = json.loads(report("gitlab").stdout)
    assert [(r["check_name"], r["severity"], *r["location"].values()) for r in listed] == snapshot(
        [
            ("fx-lsp/shape", "major", "book.ipynb", {"begin": 1}),
            ("fx-lsp/syntax", "major", "broken.py", {"begin": 1}),
            ("fx-lsp/comment", "major", "comments.py", {"begin": 7}),
            ("fx-lsp/comment", "major", "comments.py", {"begin": 3}),
            ("fx-lsp/comment", "info", "comments.py", {"begin": 11}),
            ("fx-lsp/shape", "major", "fault.py", {"begin": 12}),
            ("fx-lsp/shape", "major", "model.py", {"begin": 10}),
            ("fx-lsp/syntax", "major", "none.ipynb", {"begin": 1}),
        ]
    )
    suites = ElementTree.fromstring(report("junit").stdout)
    failed = {suite: [case for case in suite if case.find("failure") is not None] for suite in suites}
    assert len(failed) == 11
    assert [
        (suite.get("name"), suite.get("tests"), suite.get("failures"), *(case.get("name") for case in cases))
        for suite, cases in failed.items()
        if cases
    ] == snapshot(
        [
            ("book.ipynb", "3", "1", "wrong"),
            ("broken.py", "1", "1", "the file"),
            ("comments.py", "3", "2", "the file", "unknown"),
            ("fault.py", "3", "1", "Wrong"),
            ("model.py", "4", "1", "wrong"),
            ("none.ipynb", "1", "1", "the file"),
        ]
    )
    assert all(case.get("classname") == suite.get("name") for suite, cases in failed.items() for case in cases)


def test_sarif(report: Callable[[str], Done]):
    done = report("sarif")
    assert done.returncode == 1
    (run,) = json.loads(done.stdout)["runs"]
    assert run["columnKind"] == "unicodeCodePoints"
    rules = run["tool"]["driver"]["rules"]
    assert [(rule["id"], rule["shortDescription"]["text"]) for rule in rules] == snapshot(
        [
            ("comment", "a wrong `# fx:` comment"),
            ("shape", "sizes or ranks that do not fit"),
            ("syntax", "a file that does not parse"),
        ]
    )
    assert all("## Wrong" in rule["help"]["markdown"] for rule in rules)
    results = {
        result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]: result for result in run["results"]
    }
    assert {uri: result["level"] for uri, result in results.items()} == {
        **dict.fromkeys(("book.ipynb", "broken.py", "fault.py", "model.py", "none.ipynb"), "error"),
        "comments.py": "note",
    }
    assert [r["message"]["text"] for r in results["fault.py"]["relatedLocations"]] == [
        "also reached from run.",
        "also reached from call.",
    ]
    assert [list(result["partialFingerprints"]) for result in run["results"]] == [["fxLsp/v1"]] * len(run["results"])
    assert results["model.py"]["ruleId"] == "shape"
    assert results["model.py"]["locations"] == snapshot(
        [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": "model.py", "uriBaseId": "%SRCROOT%"},
                    "region": {"startLine": 10, "startColumn": 17, "endLine": 10, "endColumn": 22},
                },
                "logicalLocations": [{"fullyQualifiedName": "wrong"}],
            }
        ]
    )
    (broken,) = results["broken.py"]["locations"]
    assert results["broken.py"]["ruleId"] == "syntax" and "logicalLocations" not in broken
    assert broken["physicalLocation"]["region"] == {"startLine": 1, "startColumn": 7, "endLine": 1, "endColumn": 8}


def test_a_mistake_that_moves_keeps_its_fingerprint(tmp_path: Path):
    source = "import torch\n\n\n# fx: x=f32[4]\ndef wrong(x):\n    y = torch.ones(3)\n    return torch.ones(4) @ y\n"
    fingerprints = []
    for text in (source, f"# a comment\n\n{source}"):
        write(tmp_path, {"model.py": text})
        (result,) = json.loads(fx_lsp(tmp_path, "check", "model.py", "--format", "gitlab").stdout)
        fingerprints.append(result["fingerprint"])
    assert fingerprints[0] == fingerprints[1]


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["model.py::Scale"], ["model.py::Scale"]),
        (["model.py::Scale", "model.py::shifted"], ["model.py::shifted", "model.py::Scale"]),
        (["--only", "functions", "model.py::shifted", "model.py::Scale"], ["model.py::shifted"]),
        (["pkg"], []),
        (["records.py::size"], ["records.py::size"]),
    ],
)
def test_what_is_checked(project: Path, arguments: list[str], names: list[str]):
    done = fx_lsp(project, "check", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    targets = [target for file in json.loads(done.stdout)["files"] for target in file["targets"]]
    assert [target["target"] for target in targets] == [f"{project / name}" for name in names]
    assert [target["failure"]["kind"] for target in targets if target["failure"]] == ["nothing"] * (
        "size" in str(names)
    )
    assert all(target["seconds"] < 0.05 for target in targets if target["traced"]), "they are not traced again"


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
    done = fx_lsp(project, "check", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("path", "why"),
    [("empty", "Python file or notebook"), ("plain.py", "function or module that computes with tensors")],
)
def test_why_nothing_is_traced(tmp_path: Path, path: str, why: str):
    write(tmp_path, {"empty/notes.txt": "", "plain.py": "def add(a, b):\n    return a + b\n"})
    printed = fx_lsp(tmp_path, "check", path).stdout.splitlines()
    assert printed[1:] == [f"nothing to trace: there is no {why} in what is checked"]


def test_the_folder_that_is_checked_is_a_root_of_imports(tmp_path: Path):
    net = "import torch\nfrom utils.constants import WIDTH\n\ndef f(x: torch.Tensor):\n    return x.view(-1, WIDTH)\n"
    write(tmp_path, {"code/models/net.py": net, "code/utils/constants.py": "WIDTH = 7\n"})
    assert " · 1 traced · 0 not · 0 problems · " in fx_lsp(tmp_path, "check", "code").stdout


def test_only_what_no_guess_changes_is_a_problem(tmp_path: Path):
    write(tmp_path, {"accident.py": ACCIDENT, "guessed.py": GUESSED})
    done = fx_lsp(tmp_path, "check")
    assert done.returncode == 1
    assert "    warning: line 7: `torch.bmm(flat, flat)` only works when c == h * w. " in done.stdout
    assert " Is a dimension missing or swapped? [dimension]\n" in done.stdout
    assert "accident.py:11: error (dtype): Subtraction, the `-` operator" in done.stdout  # for any x
    assert "  mixed  guessed.py:4: not traced (inputs): KeyError: " in done.stdout and "`# fx: a=f32[" in done.stdout
    assert "  outer  not traced (inputs): as mixed\n" in done.stdout
    assert " · 1 traced · 3 not · 1 problem · 1 warning · " in done.stdout


def test_a_check_without_torch(project: Path, tmp_path: Path):
    (tmp_path / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -I "$@"\n')
    (tmp_path / "python").chmod(0o755)
    done = fx_lsp(project, "check", "model.py", "--python", str(tmp_path / "python"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "python has no torch; pass the interpreter that has torch with --python" in done.stderr


def test_a_check_whose_reader_has_gone(project: Path):
    process = start(project, "check", "model.py::Scale")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(300) == 141


def test_a_check_that_is_interrupted(tmp_path: Path):
    write(tmp_path, {"a.py": CHECKED, "b.py": ENDLESS})
    process = start(tmp_path, "check", "a.py::shifted", "b.py", "--jobs", "1")
    assert process.stdout is not None
    assert process.stdout.readline() == "a.py\n"
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "1 found in 1 file · 1 traced" in said
    assert errors == ""


def test_a_check_that_is_interrupted_while_it_is_imported(tmp_path: Path):
    source = """
import signal, sys

class Interrupt:
    def find_spec(self, name, *rest):
        if name == "fx_lsp.commands.check.reporting":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
from fx_lsp.cli import main
sys.exit(main(["check", "a.py"]))
"""
    done = subprocess.run([sys.executable, "-c", source], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads /proc")
@pytest.mark.parametrize("at", ["find_spec", "bootstrap.py"])
def test_a_check_that_is_interrupted_before_its_first_target(tmp_path: Path, at: str):
    """While it asks the interpreter for its version, or while torch is imported."""
    write(tmp_path, {"a.py": CHECKED})
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "FX_LSP_TEST": str(tmp_path)}
    command = [sys.executable, "-m", "fx_lsp", "check", "--no-cache", "a.py"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 100
    while not any(at in line for line in started_with(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate(timeout=300)
    assert (process.returncode, errors) == (130, "")
    assert "nothing to trace" not in said
    assert started_with(tmp_path) == []


def started_with(folder: Path) -> list[str]:
    """The command lines of the processes that have the mark of a test in their environment."""
    lines: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"FX_LSP_TEST={folder}\0".encode() in (process / "environ").read_bytes():
                lines.append((process / "cmdline").read_text().replace("\0", " "))
    return lines


def test_a_line_of_a_notebook_is_in_a_cell(tmp_path: Path):
    write(tmp_path, {"book.ipynb": notebook("a\nb", "", "%%writefile x.py\nimport torch", "c")})
    file = str(tmp_path / "book.ipynb")
    assert read_source(file) == "a\nb\n\n\n\nc"
    assert [cell_of(file, line) for line in range(1, 8)] == [(2, 1), (2, 2), (3, 1), (4, 1), (4, 2), (5, 1), None]
    assert cell_of(str(tmp_path / "model.py"), 1) is None


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
    engine, reports = NoTracer(), list[FileReport]()
    sources = [Source(str(tmp_path / name)) for name in ("a.py", "b.py", "c.py")]

    class Heard(SurveyProgress):
        def show(self) -> None:
            if self.finished == 3:
                work.cancel()

    scope = SurveyScope(sources, ["function", "module"], jobs=2)
    work = asyncio.ensure_future(survey(cast("Engine", engine), scope, reports.append, Heard()))
    with pytest.raises(asyncio.CancelledError):
        await work
    assert {Path(r.file).name: [t.target.name for t in r.targets] for r in reports} == {
        "b.py": ["shifted", "wrong", "Scale"],
        "c.py": [],
    }
    assert engine.files == {}


def test_the_progress_of_a_survey_counts_what_is_done_running_and_left():
    terminal = type("Terminal", (io.StringIO,), {"isatty": lambda self: True})
    progress = Progress(stream := terminal(), 3)
    progress.found, progress.finished, progress.running = 5, 1, ["wrong"]
    progress.file()
    assert stream.getvalue().rpartition("\r\x1b[K")[2] == "0 s · 1/3 files · 1 done · 1 running · 3 left · wrong"
    progress.restart("before: ", 1)
    progress.show()
    assert stream.getvalue().rpartition("\r\x1b[K")[2] == "before: 0 s · 0/1 file · 0 done · 0 running · 0 left"


async def test_a_log_has_a_line_of_progress_now_and_then(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(listing, "_LOG_SECONDS", 0.01)
    showing = asyncio.create_task(Progress(stream := io.StringIO(), 3).keep_showing())
    while not stream.getvalue():
        await asyncio.sleep(0.01)
    showing.cancel()
    assert stream.getvalue().startswith("0 s · 0/3 files · 0 done · 0 running · 0 left\n")
