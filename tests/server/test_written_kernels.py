"""Kernels that are saved as a file, edited, and updated with the function that they are of."""

import copy
import os
import re
from pathlib import Path

import pytest
from lsprotocol import types
from pytest_lsp import LanguageClient
from sessions import FULL, REAL, Editor, editor
from warm import warm_python

from fx_lsp.server import from_proto
from fx_lsp.tracing.kernel_files.generated import WRONG
from fx_lsp.tracing.kernel_files.tuned import TUNED, TunedKernels, keep_tuned
from fx_lsp.tracing.remote.cases import BenchRequest, analysed
from fx_lsp.tracing.remote.history import source_hash

pytest.importorskip("triton")
pytestmark = pytest.mark.torch

TEXT = """\
import torch


# fx: x=f32[64, 256]
def scaled(x):
    with torch.no_grad():
        return torch.exp(x) * 2
"""
CURRENT = "kernels of m.py::scaled · up to date"
CHANGED = "kernels of m.py::scaled · the function has changed since then: update"
CHECKED = re.compile(r" · (checking…|compared with the original: right|wrong: |not checked: ).*")
"""The result of a check at the end of a title: other tests than those of checks do not wait for it."""
STORE, OWN, NEW = "tl.exp(x) * 2.0", "tl.exp2(x * 1.4427) * 2.0", "tl.exp(x) * 3.0"


class Writer(Editor):
    """An editor that changes what it has open as it is told to, unless `refuses`."""

    def __init__(self, client: LanguageClient, folder: Path) -> None:
        super().__init__(client, folder)
        self.texts: dict[str, str] = {}
        self.version = 1
        self.refuses = False
        client.feature(types.WORKSPACE_APPLY_EDIT)(lambda params: self.apply(params))

    def show(self, uri: str, text: str) -> None:
        """Opens a document, or gives it another text."""
        if uri in self.texts:
            self.version += 1
            self.change(uri, self.version, text)
        else:
            self.open("", text, uri=uri)
        self.texts[uri] = text

    def apply(self, params: types.ApplyWorkspaceEditParams) -> types.ApplyWorkspaceEditResult:
        for uri, edits in (params.edit.changes or {}).items() if not self.refuses else ():
            lines = from_proto.split_lines(self.texts[uri])
            for edit in reversed(edits):
                change = types.TextDocumentContentChangePartial(edit.range, edit.new_text)
                lines = list(from_proto.apply_change(lines, change, "utf-16"))
            self.show(uri, "".join(lines))
        return types.ApplyWorkspaceEditResult(applied=not self.refuses)

    async def top(self, uri: str) -> list[str]:
        """The titles over the first line, without the results of checks."""
        titles = [lens.command.title for lens in await self.lenses(uri) if lens.command and not lens.range.start.line]
        return [CHECKED.sub("", title) for title in titles]

    @property
    def said(self) -> list[str]:
        return [message.message for message in self.client.messages]


def session(folder: Path, able: bool = True):
    capabilities = copy.deepcopy(FULL)
    capabilities["workspace"]["applyEdit"] = able
    options = {"cache.path": str(folder / "cache.db"), "interpreter": warm_python()}
    return editor(folder, capabilities, options, command=REAL, make=Writer)


async def test_edits_of_the_buffer_are_kept(tmp_path: Path):
    async with session(tmp_path) as ed:
        source = (tmp_path / "m.py").as_uri()
        ed.show(source, TEXT)
        written = await ed.command("fxLsp.writeKernel", source, "scaled")
        path = tmp_path / "m_scaled_kernels.py"
        kernels, text = path.as_uri(), path.read_text()
        assert written == {"uri": kernels, "path": str(path), "kept": 0, "conflicts": []}
        assert [shown.uri for shown in ed.client.shown_documents] == [kernels]
        assert ed.said == []
        assert STORE in text

        edited = text.replace("tl.exp(x)", "tl.exp2(x * 1.4427)")
        ed.show(kernels, edited)
        assert await ed.top(kernels) == [CURRENT]
        ed.show(source, TEXT.replace("* 2", "+ 1"))
        assert await ed.top(kernels) == [CHANGED]

        ed.show(source, "import os\n" + TEXT.replace("256", "512"))
        assert await ed.top(kernels) == [CHANGED]
        written = await ed.command("fxLsp.writeKernel", kernels, "scaled")
        assert (written["kept"], written["conflicts"]) == (1, [])
        assert ed.said == ["m_scaled_kernels.py: updated, 1 edit kept"]
        assert OWN in ed.texts[kernels] and "f32[x_0, 512]" in ed.texts[kernels]
        assert path.read_text() == text, "what is open is changed there"
        assert await ed.top(kernels) == [CURRENT]

        ed.show(kernels, edited)  # undo
        assert await ed.top(kernels) == [CHANGED]
        await ed.command("fxLsp.writeKernel", kernels, "scaled")
        assert OWN in ed.texts[kernels] and "f32[x_0, 512]" in ed.texts[kernels]


async def test_conflicts_are_shown_and_have_to_be_resolved(tmp_path: Path):
    async with session(tmp_path) as ed:
        source = ed.open("m.py", TEXT)
        kernels = (await ed.command("fxLsp.writeKernel", source, "scaled"))["uri"]
        ed.show(kernels, (tmp_path / "m_scaled_kernels.py").read_text().replace(STORE, OWN))
        ed.change(source, 2, TEXT.replace("* 2", "* 3"))
        found = await ed.command("fxLsp.writeKernel", kernels, "scaled")
        lines = ed.texts[kernels].splitlines()
        (line, *_) = found["conflicts"]
        assert [text.split(", ", 1)[-1].strip() for text in lines[line : line + 7]] == [
            "<<<<<<< edited",
            "# m.py:7  return torch.exp(x) * 2",
            f"{OWN}, mask=mask)",
            "=======",
            "# m.py:7  return torch.exp(x) * 3",
            f"{NEW}, mask=mask)",
            ">>>>>>> generated",
        ]
        selection = ed.client.shown_documents[-1].selection
        assert selection is not None and selection.start.line == line
        count = len(found["conflicts"])
        left = f"{count} conflict{'s' * (count > 1)}"
        assert ed.said[-1].startswith(f"m_scaled_kernels.py: {left} between your edits and the newly generated code")
        assert await ed.top(kernels) == [f"kernels of m.py::scaled · {left} to resolve"]

        before = ed.texts[kernels]
        assert await ed.command("fxLsp.writeKernel", kernels, "scaled") is None
        assert ed.said[-1] == "fx-lsp: m_scaled_kernels.py has unresolved conflicts"
        assert ed.texts[kernels] == before


async def test_no_file_of_the_user_is_overwritten(tmp_path: Path):
    async with session(tmp_path) as ed:
        source = ed.open("m.py", TEXT)
        own = tmp_path / "m_scaled_kernels.py"
        own.write_text("mine = 1\n")
        second = str(tmp_path / "m_scaled_kernels_2.py")
        assert (await ed.command("fxLsp.writeKernel", source, "scaled"))["path"] == second
        assert (await ed.command("fxLsp.writeKernel", source, "scaled"))["path"] == second
        assert await ed.command("fxLsp.writeKernel", source, "scaled", str(own)) is None
        assert ed.said[-1].startswith("fx-lsp: m_scaled_kernels.py already exists, and was not generated here")
        assert own.read_text() == "mine = 1\n"
        assert await ed.top(own.as_uri()) == []


async def test_choices_of_a_view_go_into_the_file_and_stay(tmp_path: Path):
    async with session(tmp_path) as ed:
        source = ed.open("m.py", TEXT)
        view = (await ed.command("fxLsp.showStage", source, "scaled", "triton", "triton&fuse=no"))["uri"]
        ed.open("", await ed.document(view), uri=view)
        lens, *_ = await ed.lenses(view)
        assert lens.command is not None and lens.command.title.startswith("save as a file")
        assert lens.command.arguments is not None
        file = Path((await ed.command(lens.command.command, *lens.command.arguments, "kernels.py"))["path"])
        assert file == tmp_path / "kernels.py"
        unfused = file.read_text()
        assert unfused.count("@triton.jit") == 2

        file.write_text(unfused.replace("2.0", "2.5"))
        ed.change(source, 2, "\n" + TEXT.replace("64", "128"))
        found = await ed.command("fxLsp.writeKernel", file.as_uri(), "")
        assert found["kept"] == 1
        assert "2.5" in file.read_text() and file.read_text().count("@triton.jit") == 2


async def test_the_function_may_be_in_a_file_that_is_closed(tmp_path: Path):
    async with session(tmp_path) as ed:
        source = tmp_path / "m.py"
        source.write_text(TEXT)
        kernels = (await ed.command("fxLsp.writeKernel", source.as_uri(), "scaled"))["uri"]
        ed.show(kernels, (tmp_path / "m_scaled_kernels.py").read_text())
        assert await ed.top(kernels) == [CURRENT]
        source.write_text(TEXT.replace("* 2", "* 3"))
        assert await ed.top(kernels) == [CHANGED]
        await ed.command("fxLsp.writeKernel", kernels, "scaled")
        assert NEW in ed.texts[kernels]
        os.remove(source)
        assert await ed.top(kernels) == ["kernels of m.py::scaled, which no longer exists"]


async def test_what_an_editor_does_not_change_is_still_as_it_was(tmp_path: Path):
    async with session(tmp_path) as ed:
        source = ed.open("m.py", TEXT)
        kernels = (await ed.command("fxLsp.writeKernel", source, "scaled"))["uri"]
        ed.show(kernels, (tmp_path / "m_scaled_kernels.py").read_text())
        ed.change(source, 2, TEXT.replace("* 2", "* 3"))
        ed.refuses = True
        assert await ed.command("fxLsp.writeKernel", kernels, "scaled") is None
        assert ed.said[-1] == "fx-lsp: m_scaled_kernels.py could not be changed by the editor"
        assert await ed.top(kernels) == [CHANGED]


async def test_an_editor_that_takes_no_edits_saves_first(tmp_path: Path):
    async with session(tmp_path, able=False) as ed:
        source = ed.open("m.py", TEXT)
        path = tmp_path / "m_scaled_kernels.py"
        kernels = (await ed.command("fxLsp.writeKernel", source, "scaled"))["uri"]
        edited = path.read_text().replace("num_warps=4", "num_warps=8")
        ed.show(kernels, edited)
        ed.change(source, 2, TEXT.replace("* 2", "* 3"))
        assert await ed.command("fxLsp.writeKernel", kernels, "scaled") is None
        assert ed.said[-1] == "fx-lsp: save m_scaled_kernels.py first"
        path.write_text(edited)
        assert (await ed.command("fxLsp.writeKernel", kernels, "scaled"))["kept"] >= 1
        assert NEW in path.read_text()


async def test_what_has_no_kernels(tmp_path: Path):
    async with session(tmp_path) as ed:
        source = ed.open("m.py", TEXT + "\n\ndef broken(x):\n    return x @ undefined\n")
        assert await ed.command("fxLsp.writeKernel", source, "broken") is None
        assert "undefined" in ed.said[-1]
        assert [path.name for path in tmp_path.glob("*.py")] == []


async def test_the_errors_of_a_check_are_put_into_the_buffer(tmp_path: Path):
    async with session(tmp_path) as ed:
        source = ed.open("m.py", TEXT)
        kernels = (await ed.command("fxLsp.writeKernel", source, "scaled"))["uri"]
        text = (tmp_path / "m_scaled_kernels.py").read_text()
        wrong = text.replace(STORE, "tl.exp(x) * 2.5")
        ed.show(kernels, wrong)
        await ed.until(lambda: ed.texts[kernels].startswith(WRONG))
        assert ed.texts[kernels].endswith(wrong)
        assert (tmp_path / "m_scaled_kernels.py").read_text() == text, "what is open is changed there"


async def test_kernels_have_the_choices_that_the_project_keeps(tmp_path: Path):
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "m.py").write_text(TEXT)
    root = str(tmp_path)
    asked = BenchRequest(str(tmp_path / "m.py"), "scaled", TEXT, (root,))
    source = source_hash(analysed(asked)[0].plan("scaled"))
    times = {"plain": {"forward graph": 1.0}}
    kept = TunedKernels("m.py::scaled", source, "GPU", "2.11", "3.6", (), "plain", {"fuse": "no"}, times)
    keep_tuned(root, kept)
    async with session(tmp_path) as ed:
        uri = ed.open("m.py", TEXT)
        await ed.command("fxLsp.writeKernel", uri, "scaled")
        assert (tmp_path / "m_scaled_kernels.py").read_text().count("@triton.jit") == 2
        shown = await ed.command("fxLsp.showStage", uri, "scaled", "triton")
        assert "fuse=no" in shown["uri"] and (await ed.document(shown["uri"])).count("@triton.jit") == 2
        ed.change(uri, 2, TEXT.replace("exp", "sin"))
        shown = await ed.command("fxLsp.showStage", uri, "scaled", "triton")
        assert (await ed.document(shown["uri"])).count("@triton.jit") == 1, "the code has changed"
        (tmp_path / TUNED).write_text("{")
        await ed.command("fxLsp.showStage", uri, "scaled", "triton")
        assert ed.said[-1].startswith(f"fx-lsp: {TUNED} cannot be read")
