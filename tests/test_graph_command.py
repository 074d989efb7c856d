"""`fx-lsp graph`: the contract that scripts rely on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot
from terminal import Done, fx_lsp

pytestmark = pytest.mark.torch

SOURCE = """\
import torch


def scaled(x, w):
    y = x @ w
    return torch.tanh(y) * 2


# fx: x=f32[4, 8], w=f32[3, 8]
def wrong(x, w):
    return x @ w


# fx: x=f32[
def garbled(x):
    return torch.relu(x)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("project")
    (found / "model.py").write_text(SOURCE)
    (found / "broken.py").write_text("def f(:\n")
    return found


def graph(folder: Path, *arguments: str) -> Done:
    return fx_lsp(folder, "graph", *arguments)


@pytest.fixture(scope="module")
def traced(folder: Path) -> dict[str, Any]:
    done = graph(folder, "model.py::scaled", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_json_of_a_traced_target(traced: dict[str, Any]):
    assert list(traced) == ["target", "inputs", "stages", "saved", "seconds", "called_in", "variants"]
    assert traced["target"] == "model.py::scaled"
    assert [list(i) for i in traced["inputs"]] == [["name", "spec", "source", "guessed", "requires_grad"]] * 2
    assert [i["name"] for i in traced["inputs"]] == ["x", "w"]
    assert {s["name"] for s in traced["stages"]} == {"forward", "backward", "joint"}
    assert all(list(s) == ["name", "nodes"] for s in traced["stages"])
    keys = ["name", "op", "target", "args", "spec", "span", "users", "flops", "moved_bytes", "sent_bytes", "module"]
    assert all(list(n) == keys for s in traced["stages"] for n in s["nodes"])
    assert all(list(s) == ["name", "spec", "bytes", "span"] for s in traced["saved"])
    assert traced["seconds"] > 0


def test_json_of_a_node(traced: dict[str, Any], folder: Path):
    (forward,) = (s for s in traced["stages"] if s["name"] == "forward")
    (node,) = (n for n in forward["nodes"] if n["name"] == "y")
    shape = node.pop("spec")
    assert shape.startswith("f32[")
    node["span"]["file"] = Path(node["span"]["file"]).relative_to(folder).as_posix()
    assert node == snapshot(
        {
            "name": "y",
            "op": "call_function",
            "target": "aten.mm.default",
            "args": ["x", "w"],
            "span": {"file": "model.py", "line": 5, "col": 8, "end_line": 5, "end_col": 13},
            "users": ["tanh"],
            "flops": 16384,
            "moved_bytes": 9728,
            "sent_bytes": 0,
            "module": "",
        }
    )


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("model.py::garbled", "comment"),
        ("model.py::no_such_name", "unsupported"),
        ("broken.py::f", "syntax"),
        ("model.py::wrong", "shape"),
    ],
)
def test_kinds_of_failures(folder: Path, target: str, kind: str):
    done = graph(folder, target, "--json")
    assert done.returncode == 1
    answer = json.loads(done.stdout)
    assert list(answer) == ["target", "failure"]
    assert list(answer["failure"]) == ["kind", "message", "span", "hint"]
    assert answer["failure"]["kind"] == kind
    assert kind != "shape" or answer["failure"]["span"]["line"] == 11


@pytest.mark.parametrize("page", [(), ("--html", "wrong.html")])
def test_a_target_that_is_not_traced(folder: Path, page: tuple[str, ...]):
    said = graph(folder, "model.py::wrong", *page)
    assert (said.returncode, said.stdout) == (1, "")
    assert "wrong was not traced" in said.stderr
    assert "model.py:11" in said.stderr
    assert "return x @ w" in said.stderr


def test_stages(folder: Path):
    forward, backward = graph(folder, "model.py::scaled"), graph(folder, "model.py::scaled", "--stage", "backward")
    assert forward.returncode == backward.returncode == 0
    assert "def forward(" in forward.stdout and "aten.tanh.default" in forward.stdout
    assert "def backward(" in backward.stdout and "aten.tanh_backward.default" in backward.stdout
    assert "\x1b" not in forward.stdout


def test_a_stage_that_the_target_has_not(folder: Path):
    done = graph(folder, "model.py::scaled", "--stage", "inference")
    assert (done.returncode, done.stdout) == (1, "")
    assert "It has:" in done.stderr


def test_a_graph_that_is_built_by_hand(folder: Path):
    source = "from torch import fx\ndef build():\n    g = fx.Graph()\n    g.output(g.placeholder('x'))\n    return g\n"
    (folder / "built.py").write_text(source)
    assert graph(folder, "built.py::build").stdout.splitlines()[-2:] == ["def graph(x):", "    return x"]
    scripted = graph(folder, "built.py::build", "--stage", "torchscript").stdout
    assert "x: Tensor) -> Tensor:\n  return x\n" in scripted


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["model.py"], "is not a target: write it as path/to/file.py::function. The file has `"),
        (["missing.py"], "is not a target: write it as path/to/file.py::function\n"),
        (["model.py::scaled", "--limit-seconds", "0"], "argument --limit-seconds: invalid"),
        (["model.py::scaled", "--local"], "usage: fx-lsp graph "),
        (["model.py::scaled", "--local"], "unrecognized arguments: --local"),
        (["model.py::"], "is not a target"),
        (["missing.py::f"], "cannot read missing.py"),
        (["model.py::scaled", "--stage", "first"], "invalid choice"),
        ([], "TARGET"),
    ],
)
def test_usage(folder: Path, arguments: list[str], said: str):
    done = graph(folder, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_html_has_all_graphs_in_one_file(folder: Path):
    page = folder / "scaled.html"
    done = graph(folder, "model.py::scaled", "--html", "scaled.html")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    text = page.read_text()
    assert all(f">{stage}</label>" in text for stage in ("forward", "backward", "joint"))
    assert "aten.tanh.default" in text and "y = x @ w" in text


def test_html_does_not_replace_a_file_of_yours(folder: Path):
    (folder / "mine.html").write_text("mine")
    done = graph(folder, "model.py::scaled", "--html", "mine.html")
    assert done.returncode == 2
    assert "mine.html cannot be written" in done.stderr and "--force" in done.stderr
    assert (folder / "mine.html").read_text() == "mine"
    assert graph(folder, "model.py::scaled", "--html", "mine.html", "--force").returncode == 0


TRAINED = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 3)

    def forward(self, x):
        return self.inner(x)


def accuracy(logits, y):
    return (logits.argmax(-1) == y).float().mean()


def scale(x):
    return x * 2


net, x, y = Net(), torch.randn(4, 8), torch.randint(0, 3, (4,))
with torch.autocast("cpu", torch.bfloat16):
    loss = nn.functional.cross_entropy(net(x), y)
loss.backward()
net.eval()
with torch.no_grad():
    accuracy(net(x), y)
    scale(x)
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("trained")
    (found / "net.py").write_text(TRAINED)
    return found


@pytest.mark.parametrize(
    ("arguments", "head"),
    [
        (("net.py::accuracy",), ["4 ops · under no_grad", "no_grad() (line 28)"]),
        (("net.py::scale",), ["1 op · under no_grad", "no_grad() (line 29)"]),
        (("net.py::scale", "--variant", "requires_grad"), ["1 op forward · 1 backward · saves nothing", ""]),
    ],
)
def test_a_target_is_traced_in_the_context_of_its_call(trained: Path, arguments: tuple[str, ...], head: list[str]):
    lines = graph(trained, *arguments).stdout.splitlines()
    called = [line.removeprefix("# called in: ") for line in lines if line.startswith("# called in: ")]
    assert [lines[1].split(" · ", 1)[1], *(called or [""])] == head


def test_other_calls_are_variants(trained: Path):
    traced = json.loads(graph(trained, "net.py::Net", "--json").stdout)
    assert traced["called_in"] == 'autocast("cpu", bf16) (line 24)'
    (other,) = traced["variants"]
    assert other == "line 28: eval(), no_grad()"
    done = graph(trained, "net.py::Net", "--variant", other)
    assert "# called in: no_grad() (line 28)" in done.stdout, done.stderr
