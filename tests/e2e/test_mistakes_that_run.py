"""Mistakes that run, through the real server and tracer: a code, its page, and a comment that says otherwise."""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest
from lsprotocol import types
from sessions import FULL, Editor, editor
from warm import warm_python

pytestmark = [pytest.mark.torch, pytest.mark.asyncio]

SERVE = [sys.executable, "-m", "fx_lsp", "serve", "--trust"]
DIAGNOSTICS = {"relatedInformation": True, "versionSupport": True, "codeDescriptionSupport": True}
CAPABILITIES = {**FULL, "textDocument": {**FULL["textDocument"], "publishDiagnostics": DIAGNOSTICS}}
LITERALS = {"codeActionLiteralSupport": {"codeActionKind": {"valueSet": []}}}
PATIENCE = 300.0

SOURCE = """\
import torch
import torch.nn.functional as F


# fx: x=f32[4, 8]
def scores(x):
    return F.softmax(x.contiguous())
"""


async def lines(e: Editor, uri: str) -> list[str]:
    await e.until(lambda: e.client.diagnostics.get(uri), PATIENCE)
    return [f"{d.range.start.line + 1} {d.code}" for d in e.client.diagnostics[uri]]


async def test_a_code_opens_its_page(tmp_path: Path) -> None:
    sources = {"pytorch-warning": SOURCE, "shape": SOURCE.replace("F.softmax(x.contiguous())", "torch.mm(x, x)")}
    async with editor(tmp_path, CAPABILITIES, {"interpreter": warm_python()}, command=SERVE) as e:
        for code, source in sources.items():
            uri = e.open(f"{code}.py", source)
            assert await lines(e, uri) == [f"7 {code}"]
            (problem,) = e.client.diagnostics[uri]
            assert problem.code_description is not None
            page = Path(unquote(urlparse(problem.code_description.href).path))
            assert page.read_text(encoding="utf-8").startswith(f"# `{code}`")


async def test_a_comment_and_settings_say_what_is_told(tmp_path: Path) -> None:
    told = {"interpreter": warm_python(), "problems": {"no-effect": True}}
    async with editor(tmp_path, CAPABILITIES, told, command=SERVE) as e:
        uri = e.open("model.py", SOURCE)
        assert sorted(await lines(e, uri)) == ["7 no-effect", "7 pytorch-warning"]
        e.change(uri, 2, SOURCE.rstrip() + "  # fx: ignore[pytorch-warning]\n")
        await e.until(lambda: len(e.client.diagnostics[uri]) == 1, PATIENCE)
        assert await lines(e, uri) == ["7 no-effect"]


async def test_a_project_sets_the_severity(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.fx-lsp.severity]\npytorch-warning = "error"\nno-effect = "warning"\n'
    )
    async with editor(tmp_path, CAPABILITIES, {"interpreter": warm_python()}, command=SERVE) as e:
        uri = e.open("model.py", SOURCE)
        assert sorted(await lines(e, uri)) == ["7 no-effect", "7 pytorch-warning"]
        severities = {problem.code: problem.severity for problem in e.client.diagnostics[uri]}
        assert severities == {
            "pytorch-warning": types.DiagnosticSeverity.Error,
            "no-effect": types.DiagnosticSeverity.Warning,
        }


async def test_a_comment_is_offered_as_a_fix(tmp_path: Path) -> None:
    able = {**CAPABILITIES, "textDocument": {**CAPABILITIES["textDocument"], "codeAction": LITERALS}}
    async with editor(tmp_path, able, {"interpreter": warm_python()}, command=SERVE) as e:
        uri = e.open("model.py", SOURCE)
        await lines(e, uri)
        (problem,) = e.client.diagnostics[uri]
        context = types.CodeActionContext([problem], only=["quickfix"])
        asked = types.CodeActionParams(types.TextDocumentIdentifier(uri), problem.range, context)
        (action,) = await e.client.text_document_code_action_async(asked) or ()
        assert isinstance(action, types.CodeAction) and action.edit is not None and action.edit.changes is not None
        (edit,) = action.edit.changes[uri]
        assert (action.title, edit.new_text) == (
            "Ignore `pytorch-warning` here",
            "  # fx: ignore[pytorch-warning]",
        )
