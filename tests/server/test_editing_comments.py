"""Editing `# fx:` comments: the action that writes one, completion inside, problems while typing."""

import copy
from pathlib import Path

from inline_snapshot import snapshot
from lsprotocol import types
from sessions import FULL, Editor, editor, traced

TEXT = "def f(x): return x + 1\n\ndef broken(x): return guess\n"
LITERALS = {"codeActionLiteralSupport": {"codeActionKind": {"valueSet": []}}}


def capabilities(versioned: bool = True) -> dict[str, object]:
    able = copy.deepcopy(FULL)
    able["textDocument"]["codeAction"] = LITERALS
    able["workspace"]["workspaceEdit"] = {"documentChanges": versioned}
    return able


async def actions(e: Editor, uri: str, line: int, only: list[str] | None = None) -> list[types.CodeAction]:
    at = types.Range(types.Position(line, 4), types.Position(line, 4))
    shown = [d for d in e.client.diagnostics.get(uri, ()) if d.range.start.line == line]
    found = await e.client.text_document_code_action_async(
        types.CodeActionParams(types.TextDocumentIdentifier(uri), at, types.CodeActionContext(shown, only=only))
    )
    return [action for action in found or () if isinstance(action, types.CodeAction)]


async def labels(e: Editor, uri: str, line: int, character: int) -> list[str] | None:
    found = await e.client.text_document_completion_async(
        types.CompletionParams(types.TextDocumentIdentifier(uri), types.Position(line, character))
    )
    return None if found is None else [item.label for item in found]  # type: ignore[union-attr]


async def test_comments_that_ignore_nothing_are_removed_one_by_one_or_all(tmp_path: Path):
    text = "def f(x): return x + 1  # fx: ignore\n\ndef g(x): return x + 2  # fx: ignore[copy]\n"
    async with traced(tmp_path, text, capabilities()) as (e, uri):
        (fix,) = await actions(e, uri, 2, ["quickfix"])
        assert (fix.title, len(fix.diagnostics or ())) == ("Remove this comment", 1)
        assert [a.title for a in await actions(e, uri, 0, ["source"])] == ["Remove the comments that ignore nothing"]
        (every,) = await actions(e, uri, 0, ["source.fixAll.fx"])
        assert every.edit is not None and every.edit.document_changes is not None
        (change,) = every.edit.document_changes
        assert isinstance(change, types.TextDocumentEdit)
        assert [(edit.range.start.line, edit.new_text) for edit in change.edits] == [(0, ""), (2, "")]
        assert not [a for a in await actions(e, uri, 0) if str(a.kind).startswith("source")], "only if it is asked for"


async def test_inputs_are_pinned_in_the_version_they_belong_to(tmp_path: Path):
    async with traced(tmp_path, TEXT, capabilities()) as (e, uri):
        (action,) = await actions(e, uri, 0)
        assert (action.title, action.kind) == snapshot(
            ("Pin these inputs as a # fx: comment", types.CodeActionKind.RefactorRewrite)
        )
        assert action.edit is not None and action.edit.document_changes is not None
        (change,) = action.edit.document_changes
        assert isinstance(change, types.TextDocumentEdit)
        assert (change.text_document.uri, change.text_document.version) == (uri, 1)
        (edit,) = change.edits
        assert isinstance(edit, types.TextEdit)
        assert (edit.new_text, edit.range.start, edit.range.end) == snapshot(
            ("# fx: x=f32[2, 3]\n", types.Position(line=0, character=0), types.Position(line=0, character=0))
        )

        # only what is asked for is offered
        assert await actions(e, uri, 0, ["quickfix"]) == []
        assert await actions(e, uri, 0, ["source"]) == []
        assert len(await actions(e, uri, 0, ["refactor"])) == 1
        assert await actions(e, uri, 1) == []

        # what was tried is a fix of the problem
        (problem,) = await e.problems(uri)
        (action,) = await actions(e, uri, 2)
        assert (action.title, action.kind) == snapshot(
            ("Write a # fx: comment with the inputs that were tried", types.CodeActionKind.QuickFix)
        )
        assert [d.message for d in action.diagnostics or ()] == [problem.message]


async def test_clients_without_versions_get_plain_edits(tmp_path: Path):
    async with traced(tmp_path, TEXT, capabilities(versioned=False)) as (e, uri):
        (action,) = await actions(e, uri, 0)
        assert action.edit is not None and list(action.edit.changes or ()) == [uri]


async def test_a_client_that_takes_commands_only_gets_none(tmp_path: Path):
    async with traced(tmp_path, TEXT) as (e, uri):
        assert await actions(e, uri, 0) == []


async def test_completion_in_comments_only(tmp_path: Path):
    async with traced(tmp_path, "# é fx: no\n# fx: x=\n" + TEXT) as (e, uri):
        assert (await labels(e, uri, 1, 8) or [])[:2] == ["f32[2, 3]", "None"]
        assert await labels(e, uri, 2, 20) is None
        provider = e.result and e.result.capabilities.completion_provider
        assert provider is not None and list(provider.trigger_characters or ()) == ["=", "@"]


async def test_a_comment_is_checked_before_anything_is_traced(tmp_path: Path):
    async with editor(tmp_path) as e:
        uri = e.open("m.py", "# é\n# fx: é='é', x=f32[8\ndef f(x): return slow\n")
        (problem,) = await e.problems(uri)
        assert (problem.range.start, problem.range.end, problem.code) == snapshot(
            (types.Position(line=1, character=18), types.Position(line=1, character=19), "comment")
        )
        e.change(uri, 2, "# fx: x=f32[8]\n\ndef f(x): return slow\n")
        await e.until(lambda: [d.severity for d in e.client.diagnostics[uri]] == [types.DiagnosticSeverity.Hint])
