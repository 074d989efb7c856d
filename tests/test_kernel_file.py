"""`fx-lsp kernel -o FILE`: a file that was edited is updated."""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from fx_lsp.commands import kernel
from fx_lsp.commands.kernel import CompiledKernels
from fx_lsp.tracing.kernel_files import checking
from fx_lsp.tracing.kernel_files.checking import Checked, CheckPlace
from fx_lsp.tracing.kernel_files.generated import WRONG, Generated

KERNELS = '"""f as Triton kernels."""\n\na = 1\nb = 2\nc = 3\nd = 4\n'


class Project:
    """A project whose function `f` has kernels, `kernels`; what `fx-lsp kernel` prints and returns."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.chdir(folder)
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        monkeypatch.setattr(kernel, "_generated", self._generate)
        monkeypatch.setattr(checking, "compared", self._compare)
        self.source, self.output = folder / "model.py", folder / "k.py"
        self.source.write_text("def f(x): ...\ndef g(x): ...\n")
        self.kernels, self.checked, self._capsys = KERNELS, Checked("right  out\n"), capsys
        self.errors: tuple[str, ...] = ()

    async def _generate(self, arguments: object, chosen: kernel.Chosen) -> CompiledKernels:
        await asyncio.sleep(0)
        return CompiledKernels(Generated(chosen.file, chosen.name, "triton", self.kernels), self.errors)

    async def _compare(self, text: str, place: CheckPlace) -> Checked:
        await asyncio.sleep(0)
        return self.checked

    def run(self, *options: str, name: str = "f") -> tuple[int, str]:
        parser = ArgumentParser()
        kernel.add_arguments(parser)
        checked = [] if "--check" in options else ["--no-check"]
        code = kernel.run(parser.parse_args([f"model.py::{name}", "-o", "k.py", *checked, *options]))
        printed = self._capsys.readouterr()
        assert printed.out == ""
        return code, printed.err

    def edit(self, old: str, new: str) -> None:
        self.output.write_text(self.output.read_text().replace(old, new))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Project:
    return Project(tmp_path, monkeypatch, capsys)


def test_edits_are_kept(project: Project):
    assert project.run() == (0, "k.py: written\n")
    assert project.output.read_text() == KERNELS
    assert project.run() == (0, "k.py: unchanged\n")
    project.edit("a = 1", "a = 10")
    project.kernels = KERNELS.replace("d = 4", "d = 5")
    assert project.run() == (0, "k.py: updated, 1 edit kept\n")
    assert project.output.read_text() == project.kernels.replace("a = 1", "a = 10")
    assert project.run() == (0, "k.py: unchanged, 1 edit kept\n")


def test_conflicts_are_listed_until_they_are_resolved(project: Project):
    project.run()
    project.edit("d = 4", "d = 40")
    project.kernels = KERNELS.replace("d = 4", "d = 5")
    assert project.run("--check") == snapshot(
        (
            1,
            """\
not checked: there are conflicts
k.py: 1 conflict between your edits and the newly generated code: resolve them, and remove the markers
  k.py:6
""",
        )
    )
    conflicting = project.output.read_text()
    assert project.run() == snapshot(
        (
            1,
            """\
fx-lsp: k.py has unresolved conflicts
  k.py:6
""",
        )
    )
    assert project.output.read_text() == conflicting
    project.output.write_text(project.kernels.replace("d = 5", "d = 50"))
    assert project.run() == (0, "k.py: unchanged, 1 edit kept\n")


def test_a_file_of_the_user_is_overwritten_by_force_alone(project: Project):
    project.output.write_text("mine = 1\n")
    assert project.run() == snapshot(
        (
            2,
            "fx-lsp: k.py already exists, and was not generated here or its generated state is no longer known: "
            "--force overwrites it\n",
        )
    )
    assert project.output.read_text() == "mine = 1\n"
    assert project.run("--force") == (0, "k.py: written\n")
    assert project.output.read_text() == KERNELS


def test_edited_kernels_of_another_function_are_left_alone(project: Project):
    project.run()
    assert project.run(name="g")[0] == 0
    project.edit("a = 1", "a = 10")
    assert project.run() == snapshot((2, "fx-lsp: k.py has edited kernels of model.py::g: --force overwrites it\n"))


def test_the_merged_text_is_compared(project: Project):
    project.run()
    project.edit("a = 1", "a = 10")
    edited = project.output.read_text()
    project.checked = Checked("wrong  out\n", wrong=True)
    assert project.run("--check") == (1, "wrong  out\nk.py: updated, 1 edit kept\n")
    assert project.output.read_text() == f"{WRONG}#\n#     wrong  out\n\n{edited}"
    assert project.run() == (0, "k.py: unchanged, 1 edit kept\n"), "what was found is still so"
    assert project.output.read_text().startswith(WRONG)
    project.checked = Checked("not checked: the comparison takes more than 120 s\n")
    project.run("--check")
    assert project.output.read_text().startswith(WRONG)
    project.checked = Checked("right  out\n")
    assert project.run("--check")[0] == 0
    assert project.output.read_text() == edited


def test_what_does_not_compile_is_not_compared(project: Project):
    project.errors = ("f_kernel does not compile",)
    assert project.run("--check") == (1, "wrong  f_kernel does not compile\nk.py: written\n")
    assert project.output.read_text() == f"{WRONG}#\n#     wrong  f_kernel does not compile\n\n{KERNELS}"


def test_what_cannot_be_noted_is_written(project: Project, monkeypatch: pytest.MonkeyPatch):
    (project.source.parent / "cache").write_text("no folder")
    code, said = project.run()
    assert code == 0 and said.startswith("k.py: written\nthe generated state cannot be stored: ")
    assert project.output.read_text() == KERNELS
