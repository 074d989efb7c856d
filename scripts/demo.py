"""What an editor shows of `examples/`: starts the real server, speaks LSP to it, and prints the answers."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.lsp.client import LanguageClient

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
COLOUR = sys.stdout.isatty() and "NO_COLOR" not in os.environ
CAPABILITIES = types.ClientCapabilities(
    general=types.GeneralClientCapabilities(position_encodings=[types.PositionEncodingKind.Utf32]),
    workspace=types.WorkspaceClientCapabilities(
        text_document_content=types.TextDocumentContentClientCapabilities(dynamic_registration=False)
    ),
)


@dataclass
class Editor:
    """A client with one workspace folder. `problems` is what the server last published, by URI."""

    client: LanguageClient
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    problems: dict[str, list[types.Diagnostic]] = field(default_factory=dict)
    published: asyncio.Event = field(default_factory=asyncio.Event)

    async def open(self, name: str) -> str:
        """Opens an example, waits until the server has nothing left to trace, and returns its URI."""
        path = EXAMPLES / name
        self.settled.clear()
        item = types.TextDocumentItem(uri=path.as_uri(), language_id="python", version=1, text=path.read_text())
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(text_document=item))
        await asyncio.wait_for(self.settled.wait(), 300)
        return path.as_uri()

    async def problem(self, uri: str, lines: range) -> None:
        """Waits until the server has published a problem in these lines: it does so a moment after it has settled."""
        while not any(problem.range.start.line in lines for problem in self.problems.get(uri, [])):
            self.published.clear()
            await asyncio.wait_for(self.published.wait(), 60)

    async def lenses(self, uri: str) -> list[types.CodeLens]:
        document = types.TextDocumentIdentifier(uri=uri)
        return list(await self.client.text_document_code_lens_async(types.CodeLensParams(document)) or [])

    async def hints(self, uri: str, lines: range) -> list[types.InlayHint]:
        where = types.Range(types.Position(lines.start, 0), types.Position(lines.stop, 0))
        params = types.InlayHintParams(text_document=types.TextDocumentIdentifier(uri=uri), range=where)
        return list(await self.client.text_document_inlay_hint_async(params) or [])

    async def hover(self, uri: str, position: types.Position) -> str:
        params = types.HoverParams(text_document=types.TextDocumentIdentifier(uri=uri), position=position)
        found = await self.client.text_document_hover_async(params)
        return found.contents.value if found and isinstance(found.contents, types.MarkupContent) else ""

    async def show(self, lens: types.CodeLens) -> str:
        """Clicks a lens; returns the document that it opens."""
        assert lens.command is not None
        params = types.ExecuteCommandParams(command=lens.command.command, arguments=lens.command.arguments)
        shown = await self.client.workspace_execute_command_async(params)
        content = types.TextDocumentContentParams(uri=shown["uri"] if isinstance(shown, dict) else shown.uri)
        return (await self.client.workspace_text_document_content_async(content)).text


async def main() -> None:
    editor = await connect()
    heading("attention.py in the editor: lenses over the function, shapes in its lines")
    uri = await editor.open("attention.py")
    await show_code(editor, uri, "def attention")

    heading("The cursor on `softmax`")
    print(await editor.hover(uri, find(uri, "softmax")))

    heading('A click on "show backward graph"')
    lenses = [lens for lens in await editor.lenses(uri) if lens.range.start.line == find(uri, "def attention").line]
    backward = next(lens for lens in lenses if lens.command and lens.command.title == "show backward graph")
    print((await editor.show(backward)).rstrip())

    heading("lif_neuron.py: a spiking neuron with a surrogate gradient")
    await show_code(editor, await editor.open("lif_neuron.py"), "def lif_step")

    heading("shape_bug.py: never run, and the mistake is marked already")
    await show_code(editor, await editor.open("shape_bug.py"), "class Classifier")

    await editor.client.shutdown_async(None)
    editor.client.exit(None)
    await editor.client.stop()
    heading("In your editor")
    print(NEXT.format(editors=ROOT / "editors", server=Path(sys.executable).parent / "fx-lsp"))


NEXT = """\
VS Code       make vsix && code --install-extension vscode-extension/fx-lsp.vsix
Neovim 0.11   vim.opt.runtimepath:append('{editors}/nvim')
              vim.lsp.enable('fx_lsp')
              and see :help fx-lsp
Emacs         (add-to-list 'load-path "{editors}/emacs")
              (require 'fx-lsp)
Others        {server} serve, as docs/how-to/editors.md says
Terminal      fx-lsp graph examples/attention.py::attention --stage joint"""


async def connect() -> Editor:
    """A running server, told which folder is open. It finds the interpreter as in an activated environment."""
    client = LanguageClient("fx-lsp demo", "1")
    editor = Editor(client)

    @client.feature("fxLsp/status")
    def status(params: Any) -> None:
        if params.quiescent:
            editor.settled.set()

    @client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    def publish(params: types.PublishDiagnosticsParams) -> None:
        editor.problems[params.uri] = list(params.diagnostics)
        editor.published.set()

    environment = {**os.environ, "VIRTUAL_ENV": sys.prefix}
    await client.start_io(sys.executable, "-m", "fx_lsp", "serve", "--trust", env=environment)
    folder = types.WorkspaceFolder(uri=EXAMPLES.as_uri(), name=EXAMPLES.name)
    await client.initialize_async(
        types.InitializeParams(
            capabilities=CAPABILITIES, workspace_folders=[folder], initialization_options={"codeLens": {"all": True}}
        )
    )
    client.initialized(types.InitializedParams())
    return editor


async def show_code(editor: Editor, uri: str, start: str) -> None:
    """Prints the definition that begins with `start`, with everything that an editor draws into it."""
    lines = text_of(uri).split("\n")
    first = find(uri, start).line
    body = lines[first + 1 :]
    last = first + next((n for n, line in enumerate(body, 1) if re.match(r"\S", line)), len(body) + 1)
    shown = range(first, last)
    lenses, hints = await editor.lenses(uri), await editor.hints(uri, shown)
    if any(
        lens.range.start.line in shown and lens.command.title.startswith("not traced")
        for lens in lenses
        if lens.command
    ):
        await editor.problem(uri, shown)
    while lines[shown.stop - 1].strip() == "":
        shown = range(shown.start, shown.stop - 1)
    for number in shown:
        indent = " " * (len(lines[number]) - len(lines[number].lstrip()))
        titles = [lens.command.title for lens in lenses if lens.command and lens.range.start.line == number]
        if titles:
            print(paint(indent + " | ".join(titles), "36"))
        print(with_hints(lines[number], [hint for hint in hints if hint.position.line == number]))
        for problem in editor.problems.get(uri, []):
            if problem.range.start.line == number:
                print(problem_text(problem))


def with_hints(line: str, hints: list[types.InlayHint]) -> str:
    for hint in sorted(hints, key=lambda h: h.position.character, reverse=True):
        at = hint.position.character
        label = (" " if hint.padding_left else "") + str(hint.label)
        line = line[:at] + paint(label, "2;3" if COLOUR else "") + line[at:]
    return line


def problem_text(problem: types.Diagnostic) -> str:
    start, end = problem.range.start, problem.range.end
    width = max(end.character - start.character, 1) if end.line == start.line else 1
    colour = "31" if problem.severity == types.DiagnosticSeverity.Error else "34"
    return paint(f"{' ' * start.character}{'~' * width} {problem.message}", colour)


def find(uri: str, text: str) -> types.Position:
    """Where `text` first stands, at its last word."""
    before, _, _ = text_of(uri).partition(text)
    column = len(before.rsplit("\n", 1)[-1]) + len(text) - len(text.split()[-1])
    return types.Position(before.count("\n"), column)


def text_of(uri: str) -> str:
    return (EXAMPLES / uri.rsplit("/", 1)[-1]).read_text()


def heading(text: str) -> None:
    print(f"\n{paint(text, '1')}\n{paint('─' * len(text), '2')}")


def paint(text: str, style: str) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if COLOUR else text


if __name__ == "__main__":
    asyncio.run(main())
