"""`fx-lsp record`: what is noted of real programs, and that they run as if nobody looked."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType

import pytest
from inline_snapshot import snapshot
from terminal import fx_lsp

from fx_lsp.tracing.calls.recordings import recordings

pytestmark = pytest.mark.torch

PROGRAM = """
    import sys, threading
    import torch
    from torch import nn
    from torch.overrides import TorchFunctionMode

    def scaled(x, factor=2.0, *more, bias=None, **others):
        return x * factor

    def outer(x):
        def inner(y):
            return y + 1
        return inner(x)

    class Block(nn.Module):
        def __init__(self, dim, act="gelu", norm=nn.LayerNorm):
            super().__init__()
            self.up, self.norm = nn.Linear(dim, 2 * dim), norm(2 * dim)
        def widened(self, x):
            return self.norm(self.up(x))
        def forward(self, x):
            return self.widened(x)

    class Small(Block):
        def __init__(self):
            super().__init__(4, "relu")

    class Named(Block):
        def forward(self, x, name):
            return super().forward(x)

    class Quiet(nn.Dropout):
        def forward(self, x): return super().forward(x)
    class Scale:
        def __init__(self, by):
            self.by = by
        def apply(self, x):
            return x * self.by
        @staticmethod
        def half(x):
            return x / 2
        @classmethod
        def make(cls, x):
            return cls(3)

    def typed(x, dtype, device):
        return x.to(device, dtype) if isinstance(dtype, torch.dtype) else x

    def spoken(x, short, long, thing, many):
        return x

    def nested(parts, table):
        return parts[0]

    def plain(n):
        return n

    def varied(x):
        return x

    def strided(x):
        return x

    def in_thread(x):
        return x

    def watched(x):
        return x

    class Spy(TorchFunctionMode):
        seen = 0
        def __torch_function__(self, func, types, args=(), kwargs=None):
            Spy.seen += 1
            return func(*args, **(kwargs or {}))

    def t(*sizes, dtype=None):
        return torch.ones(*sizes, dtype=dtype, requires_grad=dtype is None)

    scaled(t(2)); scaled(t(2)); scaled(t(3, 4).t(), -1, t(1), t(2, dtype=torch.int64), bias=t(4)[::2], gate=t(1) > 0)
    outer(t(2, 3)); quiet = Quiet(); quiet(t(2)); quiet(t(2)); quiet.eval()(t(2)); quiet(t(2)); quiet.train()(t(3))
    Block(8)(t(2, 8)); Small()(t(2, 4)); Named(2)(t(1, 2), "a")
    Scale(3).apply(t(5)); Scale.half(t(6)); Scale.make(t(7))
    typed(t(1), torch.float64, torch.device("cpu"))
    spoken(t(1), "short", "long" * 20, object(), list(range(100)))
    nested((t(1), [t(2), None], True), {"a": t(3), 1: 2})
    plain(3)
    for size in range(1, 21):
        varied(t(size))
    strided(t(2, 2)); strided(t(2, 2).t()); strided(t(2, 2).double()); strided(t(2, 2))
    thread = threading.Thread(target=in_thread, args=(t(1),)); thread.start(); thread.join()
    x = t(9)
    with Spy():
        watched(x)
    print(Spy.seen, [n for n in sys.modules if n.startswith("fx_lsp")], sorted({*sys.path} & {sys.argv[1]}))
"""

Record = Callable[..., "Recorded"]


class Recorded:
    """A finished `fx-lsp record`, and the texts that it kept."""

    def __init__(self, project: Path, done: subprocess.CompletedProcess[str]) -> None:
        self.project, self.done = project, done
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    def texts(self, file: str = "train.py") -> dict[str, list[str]]:
        return {name: [g.text for g in found] for (where, name), found in kept(self.project).items() if where == file}


def kept(project: Path):
    return recordings(str(project), str(project / "cache" / "fx-lsp" / "recorded"))


def record_in(project: Path, *command: str, **environment: str) -> Recorded:
    done = subprocess.run(command_line(*command), cwd=project, text=True, capture_output=True, timeout=300,
                          env=environment_of(project, **environment))  # fmt: skip
    return Recorded(project, done)


def command_line(*command: str) -> list[str]:
    return [sys.executable, "-m", "fx_lsp", "record", "--", *(command or (sys.executable, "train.py"))]


def environment_of(project: Path, **more: str) -> dict[str, str]:
    cache = str(project / "cache")
    return {**os.environ, "XDG_CACHE_HOME": cache, "PYTHONWARNINGS": "ignore", "COLUMNS": "120", **more}


def write(project: Path, **files: str) -> None:
    (project / "pyproject.toml").touch()
    for name, text in files.items():
        (project / f"{name}.py").write_text(textwrap.dedent(text))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    project = tmp_path_factory.mktemp("project")
    write(project, train=PROGRAM)
    recorded = record_in(project, sys.executable, "train.py", str(Path("fx_lsp/tracer/record/site").resolve()))
    assert recorded.code == 0, recorded.err
    return recorded


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        (
            "scaled",
            [
                "x=f32[2], factor=2.0, bias=None, more=()",
                "x=f32[4, 3](1, 4), factor=-1, bias=f32[2](2), more=(f32[1], i64[2]), gate=b8[1]",
            ],
        ),
        ("outer", ["x=f32[2, 3]"]),
        ("outer.inner", ["y=f32[2, 3]"]),
        ("Block", ["init(dim=8, act='gelu'), x=f32[2, 8]", "init(dim=2, act='gelu'), x=f32[1, 2]"]),
        ("Small", ["init(), x=f32[2, 4]"]),
        ("Named", ["init(dim=2, act='gelu'), x=f32[1, 2], name='a'"]),
        (
            "Block.widened",
            [
                "init(dim=8, act='gelu'), x=f32[2, 8]",
                "init(dim=4, act='relu'), x=f32[2, 4]",
                "init(dim=2, act='gelu'), x=f32[1, 2]",
            ],
        ),
        ("Quiet", ["x=f32[2]", "eval(), x=f32[2]", "x=f32[3]"]),
        ("Scale.apply", ["init(by=3), x=f32[5]"]),
        ("Scale.half", ["x=f32[6]"]),
        ("Scale.make", ["x=f32[7]"]),
        ("typed", ["x=f32[1], dtype=torch.float64, device=torch.device(type='cpu')"]),
        ("spoken", ["x=f32[1], short='short'"]),
        ("nested", ["parts=(f32[1], [f32[2], None], True), table={'a': f32[3], 1: 2}"]),
        ("strided", ["x=f32[2, 2]", "x=f32[2, 2](1, 2)", "x=f64[2, 2]"]),
        ("in_thread", ["x=f32[1]"]),
        ("watched", ["x=f32[9]"]),
    ],
)
def test_what_is_kept_of_a_call(program: Recorded, name: str, texts: list[str]):
    assert program.texts()[name] == texts


def test_the_context_of_a_call(tmp_path: Path):
    write(
        tmp_path,
        train="""\
        import torch

        def scaled(x, by):
            return x * by

        x, by = torch.ones(2), torch.ones(2, requires_grad=True)
        scaled(x, by)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            scaled(x, by)
        with torch.inference_mode():
            scaled(x, x)
        """,
    )
    assert record_in(tmp_path).texts() == {
        "scaled": [
            "x=f32[2].detach(), by=f32[2]",
            'no_grad(), autocast("cpu", bf16), x=f32[2].detach(), by=f32[2]',
            "inference_mode(), x=f32[2].detach(), by=f32[2].detach()",
        ]
    }


def test_calls_without_tensors_are_not_kept(program: Recorded):
    assert "plain" not in program.texts()
    assert not any("__init__" in name for name in program.texts())


def test_a_function_has_eight_signatures_and_a_tracer_sees_three(program: Recorded):
    (file,) = (program.project / "cache").rglob("*.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["text"] for line in lines if line["name"] == "varied"] == [f"x=f32[{n}]" for n in range(1, 9)]
    assert program.texts()["varied"] == ["x=f32[1]", "x=f32[2]", "x=f32[3]"]


def test_the_program_does_not_see_the_recorder(program: Recorded):
    assert program.out == "0 [] []\n"


def test_the_summary(program: Recorded):
    first, file, *lines = program.err.splitlines()
    assert first == snapshot("fx-lsp recorded 33 calls of 18 functions in 1 file")
    assert file == "train.py"
    assert lines[:3] == snapshot(
        [
            "  scaled         x=f32[2], factor=2.0, bias=None, more=()",
            "                 x=f32[4, 3](1, 4), factor=-1, bias=f32[2](2), more=(f32[1], i64[2]), gate=b8[1]",
            "  outer          x=f32[2, 3]",
        ]
    )


SHORT = """
    import os, signal, sys, torch
    def f(x):
        return torch.relu(x)
    f(torch.ones(2, 3))
    {then}
"""


@pytest.mark.parametrize(
    ("then", "code"),
    [
        ("os.abort()", 128 + signal.SIGABRT),
        ("os.kill(os.getpid(), signal.SIGKILL)", 128 + signal.SIGKILL),
        ("sys.exit(3)", 3),
        ("os._exit(4)", 4),
    ],
)
def test_a_program_that_ends_badly(tmp_path: Path, then: str, code: int):
    write(tmp_path, train=SHORT.replace("{then}", then))
    recorded = record_in(tmp_path)
    assert recorded.code == code
    assert recorded.texts() == {"f": ["x=f32[2, 3].detach()"]}


def test_then_the_graph_is_traced_with_what_was_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path, train=SHORT.replace("{then}", ""))
    assert record_in(tmp_path).code == 0
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    done = fx_lsp(tmp_path, "graph", "train.py::f", "--json")
    given = {"name": "x", "spec": "f32[2, 3]", "source": "recorded", "guessed": False, "requires_grad": False}
    assert json.loads(done.stdout)["inputs"] == [given]


def test_pytest(tmp_path: Path):
    write(
        tmp_path,
        model="def double(x):\n    return x * 2\n",
        test_model="""
            import pytest, torch
            from model import double
            @pytest.mark.parametrize("n", [1, 2])
            def test_double(n):
                helper(double(torch.ones(n)))
            def helper(y):
                assert y[0] == 2
        """,
    )
    recorded = record_in(tmp_path, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert recorded.code == 0, recorded.out
    assert recorded.texts("model.py") == {"double": ["x=f32[1].detach()", "x=f32[2].detach()"]}
    assert recorded.texts("test_model.py") == {"helper": ["y=f32[1].detach()", "y=f32[2].detach()"]}


def test_processes_at_once(tmp_path: Path):
    write(
        tmp_path,
        train="""
            import os, subprocess, sys
            programs = [subprocess.Popen([sys.executable, "work.py", n]) for n in "12"]
            sys.exit(sum(program.wait() for program in programs))
        """,
        work="""
            import os, sys, torch
            def f(x):
                return x
            def forked(x):
                return x
            f(torch.ones(int(sys.argv[1])))
            if os.fork() == 0:
                forked(torch.ones(int(sys.argv[1])))
                os._exit(0)
            os.wait()
        """,
    )
    recorded = record_in(tmp_path)
    assert recorded.code == 0, recorded.err
    found = recorded.texts("work.py")
    assert {name: sorted(texts) for name, texts in found.items()} == {
        "f": ["x=f32[1].detach()", "x=f32[2].detach()"],
        "forked": ["x=f32[1].detach()", "x=f32[2].detach()"],
    }


def test_an_environment_with_its_own_sitecustomize(tmp_path: Path):
    write(tmp_path, train=SHORT.replace("{then}", "print(sys.modules['sitecustomize'].__file__, sys.hello)"))
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import sys\nsys.hello = 'hello'\n")
    recorded = record_in(tmp_path, PYTHONPATH=str(site))
    assert recorded.out == f"{site / 'sitecustomize.py'} hello\n"
    assert recorded.texts() == {"f": ["x=f32[2, 3].detach()"]}


def test_a_program_without_torch(tmp_path: Path):
    write(tmp_path, train="import sys; print('torch' in sys.modules, sys.getprofile()); sys.exit(5)")
    recorded = record_in(tmp_path)
    assert (recorded.code, recorded.out) == (5, "False None\n")
    assert recorded.err == "fx-lsp recorded nothing: no Python process of the command imported torch\n"


def test_what_is_installed_is_not_the_projects(tmp_path: Path):
    write(tmp_path, train="import sys; sys.path.append('env/lib'); import installed, torch; installed.f(torch.ones(1))")
    library = tmp_path / "env" / "lib"
    library.mkdir(parents=True)
    (tmp_path / "env" / "pyvenv.cfg").touch()
    (library / "installed.py").write_text("def f(x):\n    return x\n")
    recorded = record_in(tmp_path)
    assert recorded.err == f"fx-lsp recorded nothing: no function under {tmp_path} was called with tensors\n"


def test_trouble_of_ours_is_one_line(tmp_path: Path):
    write(tmp_path, train=SHORT.replace("{then}", "print('done')"))
    settings = {"root": str(tmp_path), "store": str(tmp_path / "none"), "run": "1", "command": "train"}
    site = str(Path("fx_lsp/tracer/record/site").resolve())
    environment = environment_of(tmp_path, PYTHONPATH=site, FX_LSP_RECORD=json.dumps(settings))
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, text=True, capture_output=True, env=environment)
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert re.fullmatch(r"fx-lsp record: nothing is recorded in this process: FileNotFoundError.*\n", done.stderr)


def test_an_interrupt_is_passed_on(tmp_path: Path):
    write(
        tmp_path,
        train="""
            import signal, sys, time
            signal.signal(signal.SIGINT, lambda *_: sys.exit(7))
            print("ready", flush=True)
            time.sleep(20)
        """,
    )
    program = subprocess.Popen(command_line(), cwd=tmp_path, env=environment_of(tmp_path), text=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # fmt: skip
    with program:
        assert program.stdout is not None and program.stdout.readline() == "ready\n"
        program.send_signal(signal.SIGINT)
        assert program.wait(30) == 7


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--"], 2, "pass the command to run"),
        ([], 2, "pass the command to run"),
        (["--", "no-such-program"], 127, "no-such-program"),
    ],
)
def test_usage(tmp_path: Path, arguments: list[str], code: int, said: str):
    command = [sys.executable, "-m", "fx_lsp", "record", *arguments]
    done = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, env=environment_of(tmp_path))
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr and "Traceback" not in done.stderr


@pytest.mark.skipif(sys.version_info < (3, 11), reason="code objects have no qualified names to compare with")
def test_names_of_functions_from_the_source_alone(tmp_path: Path, warm_torch: None):
    from fx_lsp.tracer.record.project_code import _names_in

    write(tmp_path, train=PROGRAM + "\n    @staticmethod\n    @property\n    def decorated(x):\n        return x\n")
    file = tmp_path / "train.py"
    codes = [c for c in code_objects(compile(file.read_text(), str(file), "exec")) if not c.co_name.startswith("<")]
    names = _names_in(str(file))
    assert len(codes) > 20
    assert {c.co_qualname: names[c.co_firstlineno, c.co_name] for c in codes} == {
        c.co_qualname: c.co_qualname for c in codes
    }


def code_objects(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from code_objects(constant)
