"""Kernels that are checked in the background: those of a document, and those in a file that the user keeps."""

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from inline_snapshot import snapshot
from lsprotocol import types
from sessions import FULL, REAL, Editor, editor
from warm import warm_python

from fx_lsp.tracing.kernel_files.generated import WRONG

pytest.importorskip("triton")
pytestmark = pytest.mark.torch

TEXT = """\
import torch


# fx: x=f32[4, 8]
def scaled(x):
    return torch.relu(x) * 2
"""
OTHERWISE = """import os
import torch


# fx: x=f32[4, 8]
def scaled(x):
    with torch.no_grad():
        return x * 2 if os.environ.get("TRITON_INTERPRET") is None else x * 3
"""
"""A function that computes something else when its kernels are interpreted."""
RIGHT, BROKEN = "        return grad_x\n", "        return grad_x * 1.01\n"
FAILED = "These kernels failed their check:"


PATIENT = [
    *REAL[:2],
    f"""\
from fx_lsp.tracing.kernel_files import checking
checking.MAX_CHECK_SECONDS = 600.0
checking.CheckPlace.__init__.__defaults__ = (None, 600.0)
{REAL[2]}""",
]
"""A server whose checks may take as long as they do on a busy machine."""


def session(folder: Path, env: dict[str, str] | None = None):
    options = {"cache.path": str(folder / "cache.db"), "interpreter": warm_python()}
    return editor(folder, FULL, options, command=PATIENT, env=env)


async def checked(ed: Editor, uri: str) -> str:
    """The title of the first lens of a document, once its check has ended."""
    return await titled(ed, uri, lambda title: not title.endswith("checking…"))


async def titled(ed: Editor, uri: str, fits: Callable[[str], bool]) -> str:
    """The title of the first lens of a document, once it fits; it is read again as often as the server says."""
    while True:
        count = refreshes(ed)
        title, *_ = await ed.titles(uri)
        if fits(title):
            return title
        await ed.until(lambda count=count: refreshes(ed) > count)


def refreshes(ed: Editor) -> int:
    return ed.refreshed.count(types.WORKSPACE_CODE_LENS_REFRESH)


async def written(ed: Editor) -> tuple[str, Path]:
    """The source of a function, whose kernels are in a file that is not open."""
    source = ed.open("m.py", TEXT)
    path = Path((await ed.command("fxLsp.writeKernel", source, "scaled"))["path"])
    return source, path


def errors(ed: Editor, uri: str) -> list[tuple[int, str]]:
    """The lines and the first words of the errors of a check."""
    found = [d for d in ed.client.diagnostics.get(uri, ()) if d.code == "kernel"]
    return [(d.range.start.line, d.message.splitlines()[0]) for d in found]


def line_of(text: str, part: str) -> int:
    return next(n for n, line in enumerate(text.splitlines()) if line.startswith(part))


def save(ed: Editor, uri: str, version: int, path: Path, text: str) -> None:
    """Give a document and its file a text, and say that it is saved."""
    ed.change(uri, version, text)
    path.write_text(text)
    document = types.TextDocumentIdentifier(uri=uri)
    ed.client.text_document_did_save(types.DidSaveTextDocumentParams(text_document=document))


def ends(words: str) -> Callable[[str], bool]:
    return lambda title: title.endswith(words)


async def test_a_right_file_says_so_and_a_wrong_one_has_its_errors_at_its_top_and_at_the_function(tmp_path: Path):
    async with session(tmp_path) as ed:
        _, path = await written(ed)
        text = path.read_text()
        kernels = ed.open(path.name, text)
        (title,) = [t for t in await ed.titles(kernels) if t.startswith("kernels of")]
        assert title == "kernels of m.py::scaled · up to date · checking…"
        title = await checked(ed, kernels)
        assert title == "kernels of m.py::scaled · up to date · compared with the original: right"
        assert (path.read_text(), errors(ed, kernels)) == (text, [])

        save(ed, kernels, 2, path, text.replace(RIGHT, BROKEN))
        title = await titled(ed, kernels, ends("wrong: gradient of x and 2 more"))
        assert title == "kernels of m.py::scaled · up to date · wrong: gradient of x and 2 more"
        await ed.until(lambda: path.read_text().startswith(WRONG))
        text = path.read_text()
        assert "#     wrong  gradient of x" in text and text.endswith("\n")
        ed.change(kernels, 3, text)
        await ed.until(lambda: errors(ed, kernels) == [(line_of(text, "def scaled(x)"), FAILED)])

        save(ed, kernels, 4, path, text.replace(BROKEN, RIGHT))
        await titled(ed, kernels, ends("compared with the original: right"))
        await ed.until(lambda: path.read_text().startswith('"""scaled as Triton kernels'))
        await ed.until(lambda: errors(ed, kernels) == [])


async def test_a_file_that_was_edited_meanwhile_has_the_error_as_a_problem_alone(tmp_path: Path):
    async with session(tmp_path) as ed:
        _, path = await written(ed)
        path.write_text(path.read_text().replace(RIGHT, BROKEN))
        kernels = ed.open(path.name, path.read_text())
        edited = "# mine\n" + path.read_text()
        ed.change(kernels, 2, edited)
        await titled(ed, kernels, ends(", before the last edit"))
        await ed.until(lambda: errors(ed, kernels))
        assert errors(ed, kernels)[0][0] == line_of(edited, "def scaled(x)")
        assert not path.read_text().startswith(WRONG)


async def test_a_wrong_document_has_its_errors_at_its_top_and_at_the_function_and_a_right_one_says_so(tmp_path: Path):
    async with session(tmp_path) as ed:
        source = ed.open("m.py", OTHERWISE)
        kernels, text = await opened(ed, source)
        assert await checked(ed, kernels) == snapshot("save as a file · wrong: out and 2 more")
        await ed.until(lambda: kernels in ed.refreshed)
        shown = await ed.document(kernels)
        assert shown.startswith(WRONG) and shown.endswith(text)
        await ed.until(lambda: errors(ed, kernels) == [(line_of(shown, "def scaled(x)"), FAILED)])
        store = next(n for n, line in enumerate(shown.splitlines()) if "tl.store" in line)
        assert "x * 2" in (await ed.hover(kernels, store, 6) or "")
        (lens,) = [lens for lens in await ed.lenses(kernels) if lens.command and lens.command.title == "ptx"]
        assert lens.range.start.line == line_of(shown, "def scaled_kernel(")

        ed.refreshed.clear()
        ed.change(source, 2, TEXT)
        await ed.until(lambda: kernels in ed.refreshed)
        text = await ed.document(kernels)
        assert await titled(ed, kernels, ends("right")) == "save as a file · compared with the original: right"
        assert await ed.document(kernels) == text


@pytest.mark.skipif(sys.platform != "linux", reason="looks at the processes of Linux")
async def test_a_document_that_is_closed_is_no_longer_checked(tmp_path: Path):
    async with session(tmp_path, {"TMPDIR": str(tmp_path)}) as ed:
        source = ed.open("m.py", OTHERWISE.replace("x * 3", "x * sum(1 for _ in iter(int, 1))"))
        kernels, _ = await opened(ed, source)
        await ed.until(lambda: comparisons(tmp_path))
        document = types.TextDocumentIdentifier(uri=kernels)
        ed.client.text_document_did_close(types.DidCloseTextDocumentParams(text_document=document))
        await ed.until(lambda: not comparisons(tmp_path))
        await ed.until(lambda: not [*tmp_path.glob("*/kernels.py")])


def comparisons(folder: Path) -> list[Path]:
    """The processes that compare a file below a folder."""
    found: list[Path] = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = file.read_bytes().split(b"\0")
            found += [file.parent for w in words if w.startswith(bytes(folder)) and w.endswith(b"/kernels.py")]
    return found


async def opened(ed: Editor, source: str) -> tuple[str, str]:
    """The URI and the text of the kernels of a function, which the client opens."""
    kernels = (await ed.command("fxLsp.showStage", source, "scaled", "triton"))["uri"]
    text = await ed.document(kernels)
    ed.open("", text, uri=kernels)
    return kernels, text
