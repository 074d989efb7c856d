"""Limits of what is read of a project; what is done with a text grows little faster than the text."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from fx_lsp.model import Failure
from fx_lsp.tracing.analysis import analyse
from fx_lsp.tracing.calls.project_files import configuration_files, source_files, text_of
from fx_lsp.tracing.source import parsing
from fx_lsp.tracing.source.project import read_project
from fx_lsp.tracing.source.targets import discover

FUNCTION = "import torch\ndef f(x: torch.Tensor):\n    return torch.relu(x)\n"


def test_a_text_that_nobody_has_written_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "MAX_TEXT", len(FUNCTION))
    assert not isinstance(parsing.parse("/m.py", FUNCTION), Failure)
    failure = parsing.parse("/m.py", FUNCTION + "\n")
    assert isinstance(failure, Failure)
    assert failure.message == snapshot("the file has 63 characters; fx-lsp parses at most 62")


def classes(number: int) -> str:
    """Classes that each inherit from the one before."""
    each = (f"class C{n + 1}(C{n}):\n    def forward(self, x): return torch.relu(x)\n" for n in range(number))
    return "import torch\nclass C0(torch.nn.Module): pass\n" + "".join(each)


def calls(number: int) -> str:
    """Functions that each call the one before."""
    each = (f"def f{n + 1}(x): return f{n}(x)\n" for n in range(number))
    return "import torch\ndef f0(x): return torch.relu(x)\n" + "".join(each)


def bases(number: int) -> str:
    """A class with many bases."""
    names = [f"C{n}" for n in range(number)]
    each = (f"class {name}: pass\n" for name in names)
    last = f"class M({', '.join(names)}, torch.nn.Module):\n    def forward(self, x): return x\n"
    return "import torch\n" + "".join(each) + last


def comment(number: int) -> str:
    """A long comment."""
    return f"{FUNCTION}# {'x=f32[4], ' * number}\n"


def work(text: str) -> int:
    """Count the functions that are called to find the targets of a text."""
    count = 0

    def counted(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        discover("/m.py", text)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(
    "text, number, growth", [(classes, 100, 5.0), (calls, 400, 2.5), (bases, 100, 2.5), (comment, 1000, 1.1)]
)
def test_twice_the_text_is_about_twice_the_work(text: Callable[[int], str], number: int, growth: float) -> None:
    work(text(10))
    assert work(text(2 * number)) / work(text(number)) < growth


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A project with a FIFO and links to a device where files are expected."""
    (tmp_path / "m.py").write_text(FUNCTION)
    (tmp_path / "pyproject.toml").symlink_to("/dev/zero")
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "test_m.py").symlink_to("/dev/zero")
    os.mkfifo(tests / "test_other.py")
    for name in ("settings.yaml", "README.md", "notebook.ipynb"):
        (tmp_path / name).symlink_to("/dev/zero")
    return tmp_path


def test_devices_in_a_project_are_not_read(odd: Path) -> None:
    file = str(odd / "m.py")
    trouble = read_project(file).trouble
    assert trouble.replace(str(odd), "…") == snapshot("…/pyproject.toml is not read: it is not a regular file")
    assert source_files([str(odd)], file) == configuration_files([str(odd)], file) == []
    assert text_of(str(odd / "tests" / "test_m.py"), {}) is None
    analysis = analyse(file, FUNCTION, (str(odd),))
    assert [*analysis.targets] == ["f"]


def test_a_module_that_is_a_device_has_a_state_all_the_same(odd: Path) -> None:
    from fx_lsp.tracing.answers.disk import is_fresh, read_dependencies

    dependencies = read_dependencies([str(odd / "tests" / "test_m.py"), str(odd / "tests" / "test_other.py")], {})
    assert is_fresh(dependencies, {})
