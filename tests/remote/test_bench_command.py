"""`fx-lsp bench` and `fx-lsp doctor`: hosts that were never used, workspaces that name hosts, what is printed, kept."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from boxes import MakeBox
from inline_snapshot import snapshot
from sshd import Sshd
from terminal import Done, fx_lsp

from fx_lsp.measured import Report
from fx_lsp.sandbox.trial import gaps
from fx_lsp.tracing.remote.history import runs_of
from fx_lsp.tracing.trust import trust_path
from fx_lsp.wire import from_json

pytest_plugins = ["box_fixtures"]
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("own_settings")]

SOURCE = """\
import torch


# fx: x=f32[N, 8]
def doubled(x):
    return torch.relu(x) * 2


# fx: x=f32[4, 8]
def wrong(x):
    return x @ x
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").write_text("")
    (folder / "model.py").write_text(SOURCE)
    return folder


QUICK = ("--variant", "eager", "--what", "forward")


def reports(done: Done) -> dict[str, Report]:
    assert done.returncode == 0, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout)
    return {host: from_json(Report, data) for host, data in printed["reports"].items()}


def named(config: Path, text: str) -> None:
    path = config / "fx-lsp" / "hosts.toml"
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)


def named_box(config: Path, box: MakeBox) -> None:
    """Names a host behind sshd, which nobody has said yes to."""
    host = box().host
    trust_path().unlink()
    named(config, f'[hosts.h200]\nssh = "box"\nssh_config = "{host.ssh_config}"\npython = "{host.python}"\n')


def test_a_report_of_this_machine(project: Path, own_settings: Path):
    done = fx_lsp(project, "bench", "model.py::doubled", *QUICK, "--svg", "pictures")
    assert done.returncode == 0, done.stderr
    (run,) = runs_of(str(project / "model.py"), "doubled")
    report = run.run.report
    hint = f"name a host that has one in {own_settings / 'fx-lsp' / 'hosts.toml'} and pass --host NAME."
    assert done.stdout.endswith(f"{hint}\n") is not bool(report.machine.gpu), done.stderr
    (row,) = report.measured
    assert (report.name, row.variant, row.right) == ("doubled", "eager", True)
    assert row.timings["wall"].median > 0
    assert [file.name for file in (project / "pictures").iterdir()] == ["doubled-local-times.svg"]
    past = fx_lsp(project, "bench", "model.py::doubled", "--history")
    assert " ms by wall" in past.stdout and "an older version" not in past.stdout
    (project / "model.py").write_text(SOURCE.replace("* 2", "* 3"))
    assert "an older version" in fx_lsp(project, "bench", "model.py::doubled", "--history").stdout


def test_a_sweep_with_kernels(project: Path):
    done = fx_lsp(project, "bench", "model.py::doubled", "--variant", "kernels", "--sweep", "N=4,8", "--json")
    found = reports(done)["local"]
    assert [(row.label, row.what, row.right) for row in found.measured] == [
        ("N=4", "forward", True),
        ("N=4", "both", True),
        ("N=8", "forward", True),
        ("N=8", "both", True),
    ]
    assert [cost.inputs for cost in found.costs if cost.what == "forward"] == [("x: f32[4, 8]",), ("x: f32[8, 8]",)]


CRASHING = """\
import os
from triton.runtime import interpreter


def crash(*args, **kwargs):
    {end}


interpreter.GridExecutor.__call__ = crash
"""


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("raise RuntimeError('Triton Error [CUDA]: invalid argument')", "Triton Error [CUDA]: invalid argument"),
        ("os.abort()", "Its process ended by SIGABRT"),
    ],
)
def test_the_command_fails_when_kernels_crash(project: Path, own_settings: Path, tmp_path: Path, end: str, said: str):
    """On the host, each launch of a kernel fails, as it does in a driver."""
    (tmp_path / "sitecustomize.py").write_text(CRASHING.format(end=end))
    named(own_settings, f'[hosts.box]\ncommand = "env PYTHONPATH={tmp_path} {sys.executable}"\n')
    variants = ("--variant", "eager", "--variant", "kernels")
    done = fx_lsp(project, "bench", "model.py::doubled", *variants, "--inputs", "x=f32[4, 8]", "--host", "box", "--yes")
    assert done.returncode == 1 and said in done.stdout, done.stdout + done.stderr


def test_what_a_target_imports_of_its_project_goes_with_it(project: Path, own_settings: Path, tmp_path: Path):
    package = project / "layers" / "inner"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("from .scale import FACTOR\n")
    (package.parent / "scale.py").write_text("FACTOR = 3.0\n")
    (package / "__init__.py").write_text("")
    (package / "deep.py").write_text(
        "import torch\n\nfrom .. import FACTOR\nfrom helper import one\n\n\n# fx: x=f32[8, 4]\ndef scaled(x):\n"
        "    return torch.tanh(x) * FACTOR + one(x)\n"
    )
    (project / "helper.py").write_text("import torch\n\n\ndef one(x):\n    return torch.ones_like(x)\n")
    named(own_settings, f'[hosts.box]\ncommand = "env -C {tmp_path} {sys.executable}"\n')
    done = fx_lsp(project, "bench", "layers/inner/deep.py::scaled", *QUICK, "--host", "box", "--yes", "--json")
    (row,) = reports(done)["box"].measured
    assert (row.right, row.error) == (True, "")


MODEL = """\
import torch
from layers import scaled


# fx: x=f32[64, 64]
def model(x):
    y = torch.relu(scaled(x))
    unused = 3
    return y.sum()
"""
LAYERS = "def scaled(x):\n    return x @ x\n"


def test_times_by_line_are_those_of_your_files(project: Path):
    (project / "model.py").write_text(MODEL)
    (project / "layers.py").write_text(LAYERS)
    done = fx_lsp(project, "bench", "model.py::model", "--by-line", "--json")
    assert done.returncode == 0, done.stderr
    report = from_json(Report, json.loads(done.stdout)["reports"]["local"])
    assert {row.variant for row in report.measured} == {"eager"}
    timed = {(Path(time.file).name, time.line): time for time in report.lines if time.line}
    assert timed.keys() == {("model.py", 7), ("model.py", 9), ("layers.py", 2)}
    assert all(time.forward > 0 and time.backward > 0 for time in timed.values())


def test_a_target_that_cannot_be_traced(project: Path):
    done = fx_lsp(project, "bench", "model.py::wrong", "--json")
    assert (done.returncode, json.loads(done.stdout)["failure"]["kind"]) == (1, "shape")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--host", "nobody"), "there is no host nobody; there are: local; name hosts in "),
        (("--variant", "fast"), "there is no variant fast; there are: eager, "),
        (("--rival", "fast"), "`fast` is not a rival: write it as name=package.module:function"),
        (("--what", "sideways"), "--what is a list of forward, backward, both, not `sideways`"),
        (("--sweep", "N"), "`N` is not a sweep: write it as N=1024..65536 or N=1000,2000,4000"),
        (("--by-line", "--variant", "compile"), "add --variant eager"),
    ],
)
def test_wrong_usage(project: Path, arguments: tuple[str, ...], said: str):
    done = fx_lsp(project, "bench", "model.py::doubled", *arguments)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


@pytest.mark.host
def test_a_host_is_asked_for_once(project: Path, own_settings: Path, box: MakeBox, sshd: Sshd):
    named_box(own_settings, box)
    met = (sshd.folder / "log").read_text().count("Accepted publickey")
    arguments = ("bench", "model.py::doubled", "--host", "h200", *QUICK, "--json")
    done = fx_lsp(project, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == snapshot(
        "fx-lsp: h200 (ssh box) is only used after you confirm: run this in a terminal, or pass --yes\n"
    )
    assert (sshd.folder / "log").read_text().count("Accepted publickey") == met
    assert "ssh box · Python" in fx_lsp(project, "doctor", "--host", "h200", "--yes").stdout
    assert list(reports(fx_lsp(project, *arguments))) == ["h200"]


@pytest.mark.host
@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 2), ("", 2)])
def test_a_yes_in_a_terminal(project: Path, own_settings: Path, box: MakeBox, answer: str, code: int):
    named_box(own_settings, box)
    here, there = pty.openpty()
    command = [sys.executable, "-m", "fx_lsp", "doctor", "--host", "h200"]
    running = subprocess.Popen(command, cwd=project, stdin=there, stderr=there, stdout=subprocess.DEVNULL)
    os.close(there)
    said = b""
    while b"[y/N] " not in said:
        said += os.read(here, 1000)
    os.write(here, answer.encode() + b"\n")
    assert running.wait(60) == code if code else running.wait(60) in (0, 1)
    assert trust_path().exists() is (answer == "y")
    os.close(here)


EVIL = '[hosts.evil]\ncommand = "touch {file}"\n[hosts.local]\ncommand = "touch {file}"\n'


def test_a_workspace_names_no_hosts(project: Path, own_settings: Path):
    pwned = project / "pwned"
    text = EVIL.format(file=pwned)
    for place in ("hosts.toml", "fx-lsp/hosts.toml", ".fx-lsp/hosts.toml", ".config/fx-lsp/hosts.toml"):
        (project / place).parent.mkdir(parents=True, exist_ok=True)
        (project / place).write_text(text)
    tables = text.replace("[hosts.", "[tool.fx-lsp.hosts.")
    (project / "pyproject.toml").write_text(tables)
    settings = {"evil": {"command": f"touch {pwned}"}, "local": {"command": f"touch {pwned}"}}
    (project / ".vscode").mkdir()
    (project / ".vscode" / "settings.json").write_text(json.dumps({"fx-lsp.hosts": settings}))
    done = fx_lsp(project, "bench", "model.py::doubled", "--host", "evil", "--yes")
    assert done.returncode == 2 and "there is no host evil" in done.stderr
    done = fx_lsp(project, "doctor", "--hosts", "--yes", "--json")
    assert [c["text"][:12] for c in json.loads(done.stdout) if c["about"].startswith("host ")] == ["this machine"]
    assert not pwned.exists()


def test_a_workspace_that_sets_the_environment_names_no_hosts(project: Path, monkeypatch: pytest.MonkeyPatch):
    pwned, config = project / "pwned", project / "config"
    config.mkdir(mode=0o700)
    named(config, EVIL.format(file=pwned))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(config))
    done = fx_lsp(project, "bench", "model.py::doubled", "--host", "evil", "--yes")
    assert done.returncode == 2 and "it is in the project" in done.stderr
    assert not pwned.exists()


def test_what_the_doctor_says(project: Path, own_settings: Path):
    named(own_settings, '[hosts.a]\nssh = "no-such-host.invalid"\n[hosts.b]\nshh = "b"\n')
    done = fx_lsp(project, "doctor", "--json")
    checks = {check["about"]: check for check in json.loads(done.stdout)}
    assert done.returncode == 1
    assert checks.pop("sandbox")["state"] == ("note" if gaps() else "right")
    assert {about: check["state"] for about, check in checks.items() if about != "another interpreter"} == snapshot(
        {
            "fx-lsp": "right",
            "interpreter": "right",
            "tracing": "right",
            "cache": "right",
            "extra": "right",
            "editors": "note",
            "hosts": "wrong",
            "host local": "note",
            "host a": "note",
        }
    )
    assert checks["hosts"]["text"].partition("hosts.toml")[2].startswith(":4: shh is unknown here")
    assert "torch" in checks["interpreter"]["text"]


def test_a_healthy_machine_checked_alone(project: Path, own_settings: Path):
    named(own_settings, '[hosts.a]\nssh = "no-such-host.invalid"\n[hosts.b]\nshh = "b"\n')
    done = fx_lsp(project, "doctor", "--no-hosts")
    assert done.returncode == 0, done.stdout
    checks = re.findall(r"^([✓·✗]) ([\w-]+)", done.stdout, re.MULTILINE)
    assert {("✓", "fx-lsp"), ("✓", "interpreter"), ("✓", "tracing")} <= {*checks}, done.stdout
    assert [about for _, about in checks if about.startswith("host")] == []
