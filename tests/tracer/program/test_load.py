"""Only what the target needs runs."""

import inspect
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import mpmath
import pygls
import pytest
import sympy
from conftest import in_fork
from inline_snapshot import snapshot

PRELUDE = "import torch\nfrom torch import Tensor\n"


def test_the_rest_of_the_file_never_runs(trace, tmp_path):
    ran = tmp_path / "ran"
    traced = trace(
        PRELUDE
        + f"""
open({str(ran)!r}, "w").close()
SCALE = 3.0

def f(x: Tensor):
    return x * SCALE

raise SystemExit("training done")
"""
    )
    assert "3.0" in traced.graph("forward")
    assert not ran.exists()


def test_where_a_slice_does_not_work_the_whole_file_runs_and_the_view_says_so(trace):
    traced = trace(
        PRELUDE
        + """
globals()["SCALE"] = 3.0

TWICE = eval("SCALE") * 2

def f(x: Tensor):
    return x * TWICE
"""
    )
    assert "6.0" in traced.graph("forward")
    assert "the whole file was run" in traced.trace.notes[0]
    assert "user.py" in traced.dependencies()


def test_imported_project_files_are_dependencies(trace, tmp_path):
    (tmp_path / "ops.py").write_text("def double(x):\n    return x * 2\n")
    traced = trace(
        PRELUDE
        + """
from ops import double

def f(x: Tensor):
    return double(x)
"""
    )
    assert traced.dependencies() == ["ops.py", "user.py::f"]
    division = traced.stage("forward").nodes[1]
    assert [s.file.rsplit("/", 1)[1] for s in division.spans] == ["ops.py", "user.py"]


def test_a_users_file_named_like_a_module_of_the_standard_library_shadows_nothing(trace, tmp_path):
    (tmp_path / "types.py").write_text("raise RuntimeError('not this one')\n")
    (tmp_path / "trace.py").write_text("raise RuntimeError('not this one')\n")
    traced = trace(
        PRELUDE
        + """
def f(x: Tensor):
    return torch.sort(x).values
"""
    )
    assert traced.trace.ops("forward")


def test_a_package_whose_init_fails_is_left_out_where_the_target_needs_nothing_of_it(trace, tmp_path):
    files = {
        "__init__.py": "from .heavy import everything",
        "heavy.py": "import a_package_that_nobody_has",
        "ops.py": "def double(x):\n    return x * 2",
    }
    source = PRELUDE + "from .{} import {}\n\ndef f(x: Tensor):\n    return {}(x)\n"
    traced = trace(source.format("ops", "double", "double"), files=files)
    assert [node.target for node in traced.stage("forward").nodes if node.op == "call_function"] == ["aten.mul.Tensor"]
    assert traced.trace.notes == (
        f"`{tmp_path.name}` was not imported as a package: "
        "ModuleNotFoundError: No module named 'a_package_that_nobody_has'",
    )
    failure = trace(source.format("heavy", "everything", "everything"), files=files).failure
    assert failure.message == (
        "the package `a_package_that_nobody_has` is not installed in the interpreter that fx-lsp uses"
    )


def test_a_module_that_a_package_does_not_have(trace):
    source = PRELUDE + "from pack.missing import g\n\ndef f(x: Tensor):\n    return g(x)\n"
    failure = trace(source, files={"pack/__init__.py": ""}).failure
    assert failure.message == "the package `pack` has no module `pack.missing` in the interpreter that fx-lsp uses"
    assert failure.hint.startswith("Check the name and the package's version, or choose another interpreter")


HELPERS = """
import no_such_package as nsp
from no_such_package.layers import Fast
try:
    import another_one
except ImportError:
    another_one = None

def double(x):
    return x * 2 if another_one is None else x * 3

def fast(x):
    return Fast(8)(x) + nsp.bias(x)
"""


def test_a_package_that_is_missing_and_that_the_target_does_without(trace, tmp_path):
    (tmp_path / "helpers.py").write_text(HELPERS)
    source = PRELUDE + "\nimport helpers\n\ndef f(x: Tensor):\n    return helpers.double(x)\n"
    traced = trace(source, "f")
    assert traced.graph("forward").splitlines()[1] == "mul: f32[4, 64] = aten.mul.Tensor(x, 2)"
    assert traced.trace.notes[0] == "not installed, and skipped: `no_such_package`"
    failure = trace(source.replace("double", "fast"), "f").failure
    assert failure.message == "the package `no_such_package` is not installed in the interpreter that fx-lsp uses"


BROKEN = """
import torch

@torch.library.register_fake("broken_package::not_compiled")
def _(x):
    return torch.empty_like(x)

{}

def double(x):
    return x * 2
"""


def installed(folder: Path, text: str) -> str:
    """Install a package below a folder, and return the line that makes it importable."""
    package = folder / "site-packages" / "broken_package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(text)
    return f"import sys\nsys.path.append({str(package.parent)!r})\n"


def test_a_package_whose_operators_cannot_be_loaded_is_what_its_python_is(trace, tmp_path):
    source = PRELUDE + installed(tmp_path, BROKEN.format("")) + "import broken_package\n\ndef f(x: Tensor):\n    {}\n"
    traced = trace(source.format("return broken_package.double(x)"), "f")
    assert traced.graph("forward").splitlines()[1] == "mul: f32[4, 64] = aten.mul.Tensor(x, 2)"
    failure = trace(source.format("return torch.ops.broken_package.not_compiled(x)"), "f").failure
    assert "'broken_package' object has no attribute 'not_compiled'" in failure.message


def test_a_fake_kernel_of_ones_own_is_for_an_operator_that_is_there(trace):
    source = "@torch.library.register_fake('own::none')\ndef _(x):\n    return x\n\n"
    failure = trace(PRELUDE + source + "def f(x: Tensor):\n    return torch.ops.own.none(x)\n", "f").failure
    assert "operator own::none does not exist" in failure.message


def test_a_package_that_raises_when_it_is_imported_is_left_out(trace, tmp_path):
    path = installed(tmp_path, BROKEN.format("1 / 0"))
    (tmp_path / "helpers.py").write_text(
        path + "import broken_package\n\ndef double(x):\n    return x * 2\n\n"
        "def half(x):\n    return broken_package.half(x)\n"
    )
    source = PRELUDE + "import helpers\n\ndef f(x: Tensor):\n    return helpers.{}(x)\n"
    failure = trace(source.format("half"), "f").failure
    assert [*trace(source.format("double"), "f").trace.notes, failure.kind, failure.message] == snapshot(
        [
            "skipped: `broken_package` cannot be imported: ZeroDivisionError: division by zero",
            "import",
            "`broken_package` cannot be imported: ZeroDivisionError: division by zero",
        ]
    )


def test_what_raises_in_another_file_is_left_out(trace, tmp_path):
    """A terminal, a folder of data or an account that is not here is needed by few of those who import a file."""
    (tmp_path / "helpers.py").write_text(
        "import os\n\nrows, columns = os.environ.get('NOT_SET', '').split()\nFACTOR = 3\n\n"
        "def triple(x):\n    return x * FACTOR\n\ndef wide(x):\n    return x * int(columns)\n"
    )
    source = PRELUDE + "from helpers import triple, wide\n\ndef f(x: Tensor):\n    return {}(x)\n"
    traced = trace(source.format("triple"), "f")
    assert traced.graph("forward").splitlines()[1] == "mul: f32[4, 64] = aten.mul.Tensor(x, 3)"
    reason = "ValueError: not enough values to unpack (expected 2, got 0)"
    assert traced.trace.notes == (f"skipped, because it raises when `helpers.py` is imported: line 3, {reason}",)
    message = trace(source.format("wide"), "f").failure.message
    assert message.startswith(f"it needs a value that is unavailable: {reason}, raised in ")
    own = PRELUDE + "SIZE, _ = ''.split()\n\ndef f(x: Tensor):\n    return x * SIZE\n"
    assert trace(own, "f").failure.message == snapshot(
        "not enough values to unpack (expected 2, got 0) (while importing the file)"
    )


def test_a_folder_without_sources_is_no_package(trace, tmp_path):
    """So a submodule of git looks that nobody has fetched."""
    (tmp_path / "no_such_package").mkdir()
    (tmp_path / "helpers.py").write_text(HELPERS)
    traced = trace(PRELUDE + "\nimport helpers\n\ndef f(x: Tensor):\n    return helpers.double(x)\n", "f")
    assert traced.trace.notes[0] == "not installed, and skipped: `no_such_package`"


def test_what_pytorch_calls_is_not_stopped() -> None:
    import torch

    from fx_lsp.tracer.program import time_limit

    def frame_in(*files: str) -> FrameType:
        """The frame of a function in the last file, called by one in the file before, and so on."""
        innermost: Callable[[], FrameType] = sys._getframe
        for file in reversed(files):
            namespace: dict[str, Any] = {"inner": innermost}
            exec(compile("def call(): return inner()", file, "exec"), namespace)
            innermost = namespace["call"]
        return innermost()

    kernel, own, user = torch.__file__, time_limit.__file__, "/home/me/net.py"
    assert time_limit.is_inside_torch(frame_in(user, kernel))
    assert time_limit.is_inside_torch(frame_in(user, kernel, own))
    assert not time_limit.is_inside_torch(frame_in(kernel, user))
    assert not time_limit.is_inside_torch(frame_in(user, own))
    assert time_limit.is_inside_torch(frame_in(user, kernel, sympy.__file__))
    assert time_limit.is_inside_torch(frame_in(user, kernel, mpmath.__file__, inspect.__file__))
    assert not time_limit.is_inside_torch(frame_in(kernel, user, sympy.__file__))
    assert not time_limit.is_inside_torch(frame_in(kernel, pygls.__file__))


AMID_MODES = """
def alarm(frame, event, argument):
    if event == "call" and frame.f_code in leaves:
        signal.raise_signal(signal.SIGALRM)


def work(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        torch.cat([tensor, tensor]).sum()
    sys.setprofile(None)
"""


def test_a_limit_that_ends_while_pytorch_switches_modes_does_not_abort() -> None:
    """Modes are restored by guards in C++: what is raised meanwhile ends the process with SIGABRT."""

    def limited() -> str:
        import torch
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.utils._python_dispatch import TorchDispatchMode

        from fx_lsp.tracer.program.time_limit import TimeUp, time_limit

        leaves = {TorchDispatchMode.__exit__.__code__, FakeTensorMode.__exit__.__code__}

        with FakeTensorMode() as mode:
            tensor = torch.empty(4)
        namespace: dict[str, Any] = {
            "signal": signal,
            "sys": sys,
            "time": time,
            "torch": torch,
            "tensor": tensor,
            "leaves": leaves,
        }
        exec(compile(AMID_MODES, torch.__file__, "exec"), namespace)
        try:
            with time_limit(0.01), mode:
                sys.setprofile(namespace["alarm"])
                namespace["work"](0.5)
                time.sleep(5)
        except TimeUp:
            return "stopped after PyTorch had returned" if sys.getprofile() is None else "stopped inside of PyTorch"
        return "not stopped"

    assert in_fork(limited) == "stopped after PyTorch had returned"


def test_a_timer_that_rings_while_frames_are_examined_raises_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a look at the frames takes longer than the timer's interval."""
    from fx_lsp.tracer.program import time_limit

    def slow(frame: FrameType | None) -> bool:
        end = time.monotonic() + 4 * time_limit.TICK
        while time.monotonic() < end:
            pass
        return False

    monkeypatch.setattr(time_limit, "is_inside_torch", slow)
    with pytest.raises(time_limit.TimeUp), time_limit.time_limit(0.05):
        while True:
            pass


def test_what_another_version_of_a_package_has_is_left_out(trace, tmp_path):
    """Code is often older than what is installed: a name has gone, or a module."""
    path = installed(tmp_path, "def double(x):\n    return x * 2\n")
    gone = "from broken_package import double, halve\nfrom broken_package.old import third\n"
    source = PRELUDE + path + gone + "\ndef f(x: Tensor):\n    return {}(x)\n"
    traced = trace(source.format("double"), "f")
    assert traced.graph("forward").splitlines()[1] == "mul: f32[4, 64] = aten.mul.Tensor(x, 2)"
    assert [note.partition(" (")[0] for note in traced.trace.notes] == snapshot(
        ["skipped: ImportError: cannot import name 'halve' from 'broken_package'"]
    )
    failures = [trace(source.format(name), "f").failure for name in ("halve", "third")]
    assert [failure.message.partition(" (")[0] for failure in failures] == snapshot(
        [
            "it needs a value that is unavailable: ImportError: cannot import name 'halve' from 'broken_package'",
            "the package `broken_package` has no module `broken_package.old` in the interpreter that fx-lsp uses",
        ]
    )


def test_a_module_that_has_gone_is_told_as_that(trace, tmp_path):
    path = installed(tmp_path, "")
    (tmp_path / "helpers.py").write_text(
        path + "from broken_package.old import third\n\ndef double(x):\n    return x * 2\n"
    )
    traced = trace(PRELUDE + "import helpers\n\ndef f(x: Tensor):\n    return helpers.double(x)\n", "f")
    assert traced.trace.notes == snapshot(("not in the installed version, and skipped: `broken_package.old`",))
